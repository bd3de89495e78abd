"""Stock clients log in by every mechanism, are refused without the password, and renew their login."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from ottla.testing import LocalCluster
from tests.cluster import PAUSE_S

pytestmark = pytest.mark.cluster

LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
RENEWED_AFTER_MS = 3_000
REFUSED_MS = 5_000
"""Milliseconds for which kafka-python retries although a password was refused."""
USERS = {
    "PLAIN": ("admin", 'admin\'s = "secret"'),
    "SCRAM-SHA-256": ("ann", "ann's secret"),
    "SCRAM-SHA-512": ("bob", "bob's secret"),
}
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


def confluent_options(cluster: LocalCluster, mechanism: str, password: str | None = None) -> dict[str, Any]:
    user, right = USERS[mechanism]
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": right if password is None else password,
        "log_level": 0,
    }


def python_options(cluster: LocalCluster, mechanism: str, password: str | None = None) -> dict[str, Any]:
    """Return the login options of aiokafka and kafka-python."""
    user, right = USERS[mechanism]
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": right if password is None else password,
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Run three brokers whose only listener requires a login, also from their followers."""
    password = USERS["PLAIN"][1].replace('"', '\\"')
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": ",".join(USERS),
        "listener.name.plaintext.plain.sasl.jaas.config": f'{LOGIN_MODULE} required user_admin="{password}";',
        "connections.max.reauth.ms": str(RENEWED_AFTER_MS),
    }
    with LocalCluster(brokers=3, settings=settings) as cluster:
        admin = AdminClient(confluent_options(cluster, "PLAIN"))
        for mechanism, kind in SCRAM.items():
            user, password = USERS[mechanism]
            set_password(admin, user, kind, password)
        yield cluster


def set_password(admin: AdminClient, user: str, kind: ScramMechanism, password: str) -> None:
    change = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode())
    (done,) = admin.alter_user_scram_credentials([change]).values()
    done.result(30)


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex}"


@pytest.mark.parametrize("mechanism", USERS)
def test_librdkafka_in_transactions_through_renewals(
    cluster: LocalCluster, topic: str, mechanism: str
) -> None:
    options = confluent_options(cluster, mechanism)
    producer = confluent_kafka.Producer({**options, "transactional.id": topic})
    producer.init_transactions(30)
    sent = 0
    until = time.monotonic() + 2.5 * RENEWED_AFTER_MS / 1000
    while time.monotonic() < until:
        producer.begin_transaction()
        producer.produce(topic, str(sent).encode(), partition=0)
        producer.commit_transaction(30)
        sent += 1
        time.sleep(PAUSE_S)
    consumer = confluent_kafka.Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(read) < sent:
        assert time.monotonic() < deadline, f"{len(read)} of {sent} were read"
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            read.append(message.value())
    consumer.close()
    assert read == [str(n).encode() for n in range(sent)]


@pytest.mark.parametrize("mechanism", USERS)
async def test_aiokafka(cluster: LocalCluster, topic: str, mechanism: str) -> None:
    options = python_options(cluster, mechanism)
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(topic, b"value")
    async with AIOKafkaConsumer(topic, **options, group_id=topic, auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).value == b"value"


@pytest.mark.parametrize("mechanism", USERS)
def test_kafka_python(
    cluster: LocalCluster, topic: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = python_options(cluster, mechanism)
    producer = KafkaProducer(**options)
    producer.send(topic, b"value").get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, **options, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    assert next(iter(consumer)).value == b"value"
    consumer.close()
    with pytest.raises(KafkaError):
        KafkaProducer(**python_options(cluster, mechanism, "wrong"), bootstrap_timeout_ms=REFUSED_MS)
    assert "[Error 58]" in caplog.text  # SASL_AUTHENTICATION_FAILED: it tries again until that time is over


@pytest.mark.parametrize("mechanism", USERS)
def test_kcat(cluster: LocalCluster, topic: str, mechanism: str) -> None:
    def kcat(*arguments: str, password: str | None = None) -> subprocess.CompletedProcess[str]:
        options = confluent_options(cluster, mechanism, password)
        given = [
            text for key, value in options.items() if key != "log_level" for text in ("-X", f"{key}={value}")
        ]
        command = ["kcat", *given, *arguments]
        return subprocess.run(
            command, input="value\n", capture_output=True, text=True, timeout=60, check=False
        )

    assert kcat("-P", "-t", topic).returncode == 0
    assert kcat("-C", "-t", topic, "-e", "-q").stdout == "value\n"
    refused = kcat("-L", "-m", "3", password="wrong")
    assert refused.returncode != 0
    assert "Authentication failed" in refused.stderr


@pytest.mark.parametrize("mechanism", USERS)
def test_a_wrong_password_is_refused_by_name_of_the_mechanism(cluster: LocalCluster, mechanism: str) -> None:
    said: list[str] = []
    options = confluent_options(cluster, mechanism, "wrong")
    producer = confluent_kafka.Producer({**options, "error_cb": lambda error: said.append(error.str())})
    deadline = time.monotonic() + 60
    while not said and time.monotonic() < deadline:
        producer.poll(0.1)
    assert f"invalid credentials with SASL mechanism {mechanism}" in said[0]


def test_whoever_does_not_log_in_is_served_nothing(cluster: LocalCluster) -> None:
    options = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(options).list_topics(timeout=3)


def test_a_changed_password_ends_the_sessions_of_its_user(cluster: LocalCluster, topic: str) -> None:
    admin = AdminClient(confluent_options(cluster, "PLAIN"))
    set_password(admin, "eve", ScramMechanism.SCRAM_SHA_256, "first")
    said: list[str] = []
    options = confluent_options(cluster, "SCRAM-SHA-256") | {"sasl.username": "eve", "sasl.password": "first"}
    eve = confluent_kafka.Producer({**options, "error_cb": lambda error: said.append(error.str())})
    eve.produce(topic, b"value")
    assert eve.flush(30) == 0
    set_password(admin, "eve", ScramMechanism.SCRAM_SHA_256, "second")
    deadline = time.monotonic() + 60
    while not any("invalid credentials" in text for text in said):
        assert time.monotonic() < deadline, said
        eve.poll(0.1)
    described = admin.describe_user_scram_credentials(["eve"])["eve"].result(30)
    assert [info.iterations for info in described.scram_credential_infos] == [4096]
    (done,) = admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("eve", ScramMechanism.SCRAM_SHA_256)]
    ).values()
    done.result(30)
    with pytest.raises(confluent_kafka.KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["eve"])["eve"].result(30)


def test_passwords_are_in_no_file_and_no_log(cluster: LocalCluster) -> None:
    directory = cluster._directory
    assert directory is not None
    secrets = [password.encode() for _, password in list(USERS.values())[1:]]
    for path in directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [secret for secret in secrets if secret in content], path
