"""Our own clients and the command line against our own brokers, over TLS and with logins that are renewed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import (
    Admin,
    AuthenticationFailed,
    ConnectionLost,
    Consumer,
    NewTopic,
    NoBrokerReachable,
    Producer,
    ShareConsumer,
    TlsFailed,
    TopicPartition,
    UserPassword,
)
from ottla.cli.main import main
from ottla.client.admin import GROUP_RESOURCE
from tests.cluster import PAUSE_S

from .tls_cluster import TlsCluster, tls_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
ADMIN, PASSWORD = "admin", "the admin's = secret"
SESSION_MS = 2_000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    """Run a cluster whose listener CLIENTS has TLS, and PLAIN, despite its name, TLS and logins."""
    with tls_cluster(
        tmp_path_factory.mktemp("secured"),
        listener_security_protocol_map="PLAIN:SASL_SSL,LOGINS:SASL_SSL,CLIENTS:SSL,BROKERS:SSL",
        listener_name_plain_sasl_enabled_mechanisms=",".join(MECHANISMS),
        listener_name_plain_plain_sasl_jaas_config=f'{_PLAIN} required user_{ADMIN}="{PASSWORD}";',
        connections_max_reauth_ms=str(SESSION_MS),
    ) as running:
        asyncio.run(_create_users(running))
        yield running


async def _create_users(cluster: TlsCluster) -> None:
    async with Admin(**options(cluster, "PLAIN")) as admin:
        await admin.alter_scram_credentials(
            [UserPassword(ADMIN, PASSWORD, name) for name in MECHANISMS if name != "PLAIN"]
        )


def options(cluster: TlsCluster, mechanism: str | None) -> dict[str, Any]:
    if mechanism is None:
        return {
            "bootstrap_servers": cluster.bootstrap("CLIENTS"),
            "security_protocol": "SSL",
            "ssl_cafile": cluster.ca_file,
        }
    return {
        "bootstrap_servers": cluster.bootstrap("PLAIN"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": cluster.ca_file,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ADMIN,
        "sasl_plain_password": PASSWORD,
    }


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
async def test_records_transactions_and_groups(mechanism: str | None, cluster: TlsCluster) -> None:
    secured, topic = options(cluster, mechanism), f"t-{uuid.uuid4().hex}"
    async with Admin(**secured) as admin:
        await admin.create_topics([NewTopic(topic, 2)])
    async with Producer(transactional_id=topic, **secured) as producer, producer.transaction():
        for number in range(20):
            await producer.send(topic, b"%d" % number * 5_000, partition=number % 2)
    found: list[bytes | None] = []
    async with (
        Consumer(
            topic,
            group_id=topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **secured,
        ) as consumer,
        asyncio.timeout(60),
    ):
        while len(found) < 20:
            for records in (await consumer.getmany(timeout_ms=5_000)).values():
                found += [record.value for record in records]
        await consumer.commit()
    assert sorted(filter(None, found)) == sorted(b"%d" % number * 5_000 for number in range(20))


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_logins_are_renewed_on_the_connections_that_stand(mechanism: str, cluster: TlsCluster) -> None:
    secured, topic = options(cluster, mechanism), f"t-{uuid.uuid4().hex}"
    async with Admin(**secured) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    async with Producer(**secured) as producer, Consumer(auto_offset_reset="earliest", **secured) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        loop = asyncio.get_running_loop()
        end_s, sent, read = loop.time() + 3 * SESSION_MS / 1000, 0, 0
        await producer.send_and_wait(topic, b"0")
        leader = producer.parts.cluster.connected(producer.parts.cluster.metadata.leader(topic, 0) or 0)
        while loop.time() < end_s or read <= sent:
            if loop.time() < end_s:
                sent += 1
                await producer.send_and_wait(topic, b"%d" % sent)
                await asyncio.sleep(PAUSE_S)
            for records in (await consumer.getmany(timeout_ms=50)).values():
                assert [record.value for record in records] == [
                    b"%d" % number for number in range(read, read + len(records))
                ]
                read += len(records)
        assert leader is not None
        assert leader.lost is None


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
async def test_tasks_of_share_groups_through_renewals(mechanism: str | None, cluster: TlsCluster) -> None:
    secured, topic = options(cluster, mechanism), f"t-{uuid.uuid4().hex}"
    async with Admin(**secured) as admin:
        await admin.create_topics([NewTopic(topic, 2)])
        await admin.alter_configs(GROUP_RESOURCE, topic, {"share.auto.offset.reset": "earliest"})
    async with (
        Producer(transactional_id=topic, **secured) as producer,
        ShareConsumer(topic, group_id=topic, **secured) as queue,
        asyncio.timeout(60),
    ):
        async with producer.transaction():
            for number in range(10):
                await producer.send(topic, b"%d" % number, partition=number % 2)
        tasks = [await queue.getone() for _ in range(10)]
        if mechanism is not None:  # The session of a login is over, and that of the share group goes on.
            await asyncio.sleep(1.5 * SESSION_MS / 1000)
        async with producer.transaction() as transaction:
            transaction.acknowledge(*tasks[:5])
        for task in tasks[5:9]:
            await task.accept()
        await tasks[9].release()
        again = await queue.getone()
        assert (again.value, again.delivery_count) == (tasks[9].value, 2)
        await again.accept()
    async with ShareConsumer(topic, group_id=topic, **secured) as queue:
        assert await queue.getmany(timeout_ms=500) == []


async def test_who_is_not_let_in_is_told_why(cluster: TlsCluster) -> None:
    for mechanism in MECHANISMS:
        with pytest.raises(AuthenticationFailed, match=f"login as 'admin' by {mechanism} failed"):
            async with Admin(**options(cluster, mechanism) | {"sasl_plain_password": "wrong"}):
                pass
    plain = {"bootstrap_servers": cluster.bootstrap("CLIENTS")}
    # Its answer in TLS may be lost when it closes the connection.
    reason = "the broker expects TLS|security_protocol may not be that of the listener"
    with pytest.raises((TlsFailed, NoBrokerReachable, ConnectionLost), match=reason):
        async with Admin(**plain):
            pass
    with pytest.raises(TlsFailed, match="not signed by anyone whom the client trusts"):
        async with Admin(security_protocol="SSL", **plain):
            pass


def test_users_by_the_command_line(
    cluster: TlsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("OTTLA_SASL_PASSWORD", PASSWORD)
    monkeypatch.setenv("OTTLA_NEW_PASSWORD", "of zoe")
    flags = [
        "-b",
        cluster.bootstrap("PLAIN"),
        "-X",
        "security.protocol=SASL_SSL",
        "-X",
        "sasl.mechanism=PLAIN",
    ]
    flags += ["-X", f"sasl.username={ADMIN}", "-X", f"ssl.ca.location={cluster.ca_file}"]
    assert main(["user", "create", "zoe", *flags]) == 0
    assert main(["user", "list", "zoe", *flags]) == 0
    assert "zoe" in capsys.readouterr().out
    assert main(["user", "delete", "zoe", "-y", *flags]) == 0
    assert main(["user", "delete", "zoe", "-y", *flags]) == 1
    assert "there is no user 'zoe'" in capsys.readouterr().err
