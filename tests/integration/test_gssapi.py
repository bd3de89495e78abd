"""Kerberos logins of Ottla's client, librdkafka, kafka-python and Java, and refusals without tickets."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from ottla import Admin, AuthenticationFailed, AuthorizationFailed, Consumer, Producer
from ottla.testing import LocalCluster
from tests import java
from tests.cluster import PAUSE_S
from tests.kerberos import REALM, Kdc, kdc, needs_kerberos

pytestmark = [pytest.mark.cluster, needs_kerberos, pytest.mark.xdist_group("test_gssapi")]

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
HOST = socket.gethostbyaddr("127.0.0.1")[0]
"""Name of the address according to Java, and to MIT's library if it looks names up."""
SERVICE = f"kafka/{HOST}@{REALM}"
RENEWED_AFTER_MS = 3_000
SASL_PLUGIN = sorted(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so"))


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with kdc(tmp_path_factory.mktemp("kdc"), looks_up=True) as running:
        for principal in (SERVICE, "ann", "ops/admin", "eve"):
            running.add(principal)
        running.keytab("broker", SERVICE)
        for name, principal in (("ann", "ann"), ("ops", "ops/admin"), ("eve", "eve")):
            running.keytab(name, principal)
        yield running


@pytest.fixture(scope="module")
def cluster(realm: Kdc) -> Iterator[LocalCluster]:
    """Run a cluster in which ann and administrators, by the names that a rule makes, have all rights, and eve none."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.plaintext.gssapi.sasl.jaas.config": f"{MODULE} required useKeyTab=true storeKey=true "
        f'keyTab="{realm.folder}/broker.keytab" principal="{SERVICE}";',
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$2.$1](admin.*),DEFAULT",
        "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann;User:admin.ops",
        "connections.max.reauth.ms": str(RENEWED_AFTER_MS),
    }
    with LocalCluster(brokers=1, settings=settings) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture
def ann(realm: Kdc, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tickets of a user who has run kinit."""
    cache = realm.ticket("ann")
    monkeypatch.setenv("KRB5CCNAME", str(cache))
    return cache


def ours(cluster: LocalCluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        **more,
    }


def by_keytab(realm: Kdc, cluster: LocalCluster, name: str, principal: str | None = None) -> dict[str, Any]:
    keytab = realm.folder / f"{name}.keytab"
    return ours(cluster, sasl_kerberos_principal=principal or name, sasl_kerberos_keytab=keytab)


async def test_our_client_by_a_ticket_through_renewals(ann: Path, cluster: LocalCluster, topic: str) -> None:
    until = time.monotonic() + 2.5 * RENEWED_AFTER_MS / 1000
    sent: list[bytes] = []
    async with Producer(**ours(cluster)) as producer:
        while time.monotonic() < until:
            sent.append(str(len(sent)).encode())
            await producer.send(topic, sent[-1])
            await asyncio.sleep(PAUSE_S)
    async with Consumer(topic, **ours(cluster), group_id=topic, auto_offset_reset="earliest") as consumer:
        read = [(await anext(consumer)).value for _ in sent]
    assert sorted(read) == sorted(sent)


async def test_our_client_by_a_keytab_is_who_the_rules_say(
    realm: Kdc, cluster: LocalCluster, topic: str
) -> None:
    async with Producer(**by_keytab(realm, cluster, "ops", "ops/admin")) as producer:
        await producer.send(topic, b"value")
    async with Admin(**by_keytab(realm, cluster, "eve")) as admin:
        with pytest.raises(AuthorizationFailed):
            await admin.describe_acls()


async def test_a_client_without_a_ticket_is_told_so(cluster: LocalCluster) -> None:
    with pytest.raises(AuthenticationFailed, match=r"by GSSAPI failed: No Kerberos credentials .*kinit"):
        async with Producer(**ours(cluster)):
            pass


async def test_a_client_that_asks_for_another_service_is_told_so(ann: Path, cluster: LocalCluster) -> None:
    with pytest.raises(
        AuthenticationFailed, match=r"is for broker/127\.0\.0\.1: .*sasl_kerberos_service_name"
    ):
        async with Producer(**ours(cluster, sasl_kerberos_service_name="broker")):
            pass


async def test_a_ticket_that_the_broker_cannot_read_is_refused(
    realm: Kdc, ann: Path, cluster: LocalCluster, topic: str
) -> None:
    """The keytab and the KDC's keys at the time of the ticket differ; a new ticket works."""
    async with Producer(**ours(cluster)) as producer:
        await producer.send(topic, b"value")
    realm.keytab("broker", SERVICE)
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism GSSAPI"):
        async with Producer(**ours(cluster)):
            pass
    realm.ticket("ann")
    async with Producer(**ours(cluster)) as producer:
        await producer.send(topic, b"value")


def test_our_command(ann: Path, cluster: LocalCluster, topic: str) -> None:
    argv = [sys.executable, "-m", "ottla.cli.main", "topic", "create", topic, "-b", cluster.bootstrap_servers]
    argv += ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=GSSAPI"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    without = {**os.environ, "KRB5CCNAME": "/nowhere"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=without)
    assert done.returncode != 0
    assert "kinit" in done.stderr


def test_config_check_tries_the_key(realm: Kdc, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 2)
    file = tmp_path / "broker.properties"
    settings = {
        "node.id": "1",
        "cluster.id": "c",
        "cluster.secret.file": str(secret),
        "controller.quorum.voters": "101@127.0.0.1:9093",
        "log.dirs": str(tmp_path),
        "listeners": "CLIENTS://127.0.0.1:9094",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "listener.name.clients.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.clients.gssapi.sasl.jaas.config": f"{MODULE} required useKeyTab=true "
        f'keyTab="{realm.folder}/broker.keytab" principal="{SERVICE}";',
    }
    (realm.folder / "broker.keytab").chmod(0o640)
    checked = {}
    for name in ("broker", "missing"):
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        file.write_text(text.replace("broker.keytab", f"{name}.keytab"))
        argv = [sys.executable, "-m", "ottla.cli.main", "config", "check", "-c", str(file), "-o", "json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        checked[name] = json.loads(done.stdout)
    assert checked["broker"]["listeners"][0]["mechanisms"] == [
        {"name": "GSSAPI", "users": f"those of Kerberos, by the key of {SERVICE}"}
    ]
    assert any("others may read" in remark and "keytab" in remark for remark in checked["broker"]["remarks"])
    assert not checked["missing"]["starts"]
    assert "missing.keytab cannot be used" in checked["missing"]["problem"]


def test_kafka_python(ann: Path, cluster: LocalCluster, topic: str) -> None:
    options = ours(cluster, sasl_kerberos_service_name="kafka")
    producer = KafkaProducer(**options)
    producer.send(topic, b"value").get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, **options, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    assert next(iter(consumer)).value == b"value"
    consumer.close()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.skipif(not SASL_PLUGIN, reason="needs libsasl2-modules-gssapi-mit")
def test_librdkafka(realm: Kdc, ann: Path, cluster: LocalCluster, topic: str) -> None:
    """Tests kcat's librdkafka, since confluent-kafka's has no Kerberos."""
    options = ["-b", cluster.bootstrap_servers, "-X", "security.protocol=SASL_PLAINTEXT", "-t", topic]
    options += ["-X", "sasl.mechanism=GSSAPI", "-X", f"sasl.kerberos.principal=ann@{REALM}"]
    options += ["-X", f"sasl.kerberos.keytab={realm.folder}/ann.keytab"]
    kcat(["-P", *options], "one\ntwo\n")
    assert kcat(["-C", *options, "-o", "beginning", "-e", "-q"]).split() == ["one", "two"]


def kcat(arguments: list[str], text: str = "") -> str:
    done = subprocess.run(
        ["kcat", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.java
@java.needs_java
def test_javas_clients(realm: Kdc, cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={MODULE} required useKeyTab=true storeKey=true "
        f'keyTab="{realm.folder}/ops.keytab" principal="ops/admin@{REALM}";\n'
    )
    bootstrap = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic)
    said = java.run(
        "org.apache.kafka.tools.VerifiableProducer",
        *(*bootstrap, "--acks", "-1", "--max-messages", "2000", "--throughput", "400"),
        *("--command-config", str(file)),
    )
    names = [json.loads(line)["name"] for line in said.splitlines() if line.startswith("{")]
    assert names.count("producer_send_success") == 2000
    read = java.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*bootstrap, "--from-beginning", "--max-messages", "2000", "--timeout-ms", "30000"),
        *("--command-config", str(file)),
    )
    assert sorted(map(int, read.split())) == list(range(2000))
