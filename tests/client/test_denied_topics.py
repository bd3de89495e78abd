"""Topics that a consumer may not see or read, and missing topics: reads raise and the log warns, for every kind of
subscription.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client import sync
from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.failures import AuthorizationFailed
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.cluster.authorizer_settings import STANDARD_AUTHORIZER
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.cluster import RunningCluster, running_cluster

pytestmark = pytest.mark.cluster

LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{LOGIN_MODULE} required user_root="root-secret" user_ann="ann-secret";'
    ),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:root",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
MODES: dict[str, dict[str, Any]] = {
    "classic": {},
    "consumer": {"group_protocol": "consumer"},
    "no group": {"group_id": None},
}
RECORDS = 300
SOON_S = 30.0
"""Seconds that suffice for a slow machine, since silence lasts for ever."""


def options(cluster: RunningCluster, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": f"{user}-secret",
    }


def of_ann(cluster: RunningCluster, mode: str, *topics: str) -> dict[str, Any]:
    """Return the options of a consumer in a separate group."""
    group = "-".join((mode, *topics))
    return {**options(cluster, "ann"), "auto_offset_reset": "earliest", "group_id": group, **MODES[mode]}


def allowed(operation: AclOperation, name: str, kind: AclResourceType = AclResourceType.TOPIC) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:ann", "*", operation, AclPermission.ALLOW)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run a cluster in which ann may read `open` and see `seen`."""
    with running_cluster(
        tmp_path_factory.mktemp("denied"), quorum=1, brokers=1, settings=SETTINGS
    ) as running:
        asyncio.run(fill(running))
        yield running


async def fill(cluster: RunningCluster) -> None:
    root = options(cluster, "root")
    async with Admin(**root) as admin, Producer(**root) as producer:
        await admin.create_topics([NewTopic(name, num_partitions=1) for name in ("open", "secret", "seen")])
        await admin.create_acls(
            [
                allowed(AclOperation.READ, "open"),
                allowed(AclOperation.DESCRIBE, "seen"),
                allowed(AclOperation.READ, "*", AclResourceType.GROUP),
            ]
        )
        for _ in range(RECORDS):
            await producer.send("open", b"x")
        for name in ("secret", "seen"):
            await producer.send_and_wait(name, b"x")


def check(error: AuthorizationFailed, topic: str, operation: str) -> None:
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert error.resource == f"topic {topic!r}"
    assert error.operation == operation
    assert topic in str(error)


async def getmany(consumer: Consumer) -> None:
    while True:
        await consumer.getmany(timeout_ms=1_000, max_records=1)


async def one_by_one(consumer: Consumer) -> None:
    async for _ in consumer:
        pass


async def columns(consumer: Consumer) -> None:
    while True:
        await consumer.fetch_arrow(timeout_ms=1_000, max_records=1)


@pytest.mark.parametrize(
    ("topics", "operation"),
    [
        (("secret",), "DESCRIBE"),
        (("open", "secret"), "DESCRIBE"),
        (("seen",), "READ"),
        (("open", "seen"), "READ"),
    ],
)
@pytest.mark.parametrize("read", [getmany, one_by_one, columns])
@pytest.mark.parametrize("mode", MODES)
async def test_reads_name_the_topic_that_is_denied(
    cluster: RunningCluster, mode: str, read: Any, topics: tuple[str, ...], operation: str
) -> None:
    if read is columns:
        pytest.importorskip("pyarrow")
    async with Consumer(*topics, **of_ann(cluster, mode, read.__name__, *topics)) as consumer:
        async with asyncio.timeout(SOON_S):
            with pytest.raises(AuthorizationFailed) as raised:
                await read(consumer)
    check(raised.value, topics[-1], operation)


@pytest.mark.parametrize("mode", MODES)
def test_reads_without_an_event_loop_name_the_topic(cluster: RunningCluster, mode: str) -> None:
    with (
        sync.Consumer("open", "secret", **of_ann(cluster, mode, "sync")) as consumer,
        pytest.raises(AuthorizationFailed) as raised,
    ):
        while True:
            consumer.getone(timeout_ms=SOON_S * 1000)
    check(raised.value, "secret", "DESCRIBE")


@pytest.mark.parametrize("mode", MODES)
async def test_a_denial_is_told_though_another_topic_always_has_records(
    cluster: RunningCluster, mode: str
) -> None:
    read = 0
    async with Consumer("open", "seen", **of_ann(cluster, mode, "busy")) as consumer:
        with pytest.raises(AuthorizationFailed) as raised:
            while read < RECORDS:
                found = await consumer.getmany(timeout_ms=1_000, max_records=1)
                read += sum(map(len, found.values()))
                await asyncio.sleep(0.005)
    check(raised.value, "seen", "READ")


async def test_a_partition_assigned_by_hand_is_denied_wherever_it_begins(cluster: RunningCluster) -> None:
    """A known offset is not looked up, and an invisible topic has no leader."""
    place = TopicPartition("secret", 0)
    async with Consumer(**of_ann(cluster, "no group")) as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        async with asyncio.timeout(SOON_S):
            with pytest.raises(AuthorizationFailed) as raised:
                await getmany(consumer)
    check(raised.value, "secret", "DESCRIBE")


async def test_a_topic_is_read_once_it_is_allowed(cluster: RunningCluster) -> None:
    denied = asyncio.Semaphore(0)

    async def read(mode: str) -> None:
        async with Consumer("open", "later", **of_ann(cluster, mode, "later")) as consumer:
            async with asyncio.timeout(SOON_S):
                with pytest.raises(AuthorizationFailed):
                    await getmany(consumer)
                denied.release()
                seen: set[str] = set()
                while seen != {"open", "later"}:
                    try:
                        found = await consumer.getmany(timeout_ms=1_000)
                        seen |= {partition.topic for partition in found}
                    except AuthorizationFailed:
                        pass

    root = options(cluster, "root")
    async with Admin(**root) as admin, Producer(**root) as producer:
        await admin.create_topics([NewTopic("later", num_partitions=1)])
        await producer.send_and_wait("later", b"x")
        reading = [asyncio.ensure_future(read(mode)) for mode in MODES]
        for _ in MODES:
            await asyncio.wait_for(denied.acquire(), SOON_S)
        await admin.create_acls([allowed(AclOperation.READ, "later")])
        await asyncio.gather(*reading)


def warnings(caplog: pytest.LogCaptureFixture, topic: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if repr(topic) in record.getMessage()]


@pytest.mark.parametrize("mode", ["classic", "consumer"])
async def test_the_log_warns_once_of_a_topic_that_is_not_there(
    cluster: RunningCluster, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    missing, root = f"missing-{mode}", options(cluster, "root")
    given = {**of_ann(cluster, mode, "missing"), **root, "metadata_max_age_ms": 50}
    with caplog.at_level(logging.WARNING):
        async with Consumer("open", missing, **given) as consumer:
            async with asyncio.timeout(SOON_S):
                while not warnings(caplog, missing):
                    await consumer.getmany(timeout_ms=10)
                for _ in range(3):  # The topics are looked at every 50 ms.
                    await asyncio.sleep(0.1)
                    await consumer.getmany(timeout_ms=10)
                async with Admin(**root) as admin, Producer(**root) as producer:
                    await admin.create_topics([NewTopic(missing, num_partitions=1)])
                    await producer.send_and_wait(missing, b"x")
                while not await consumer.getmany(TopicPartition(missing, 0), timeout_ms=100):
                    pass
    assert len(warnings(caplog, missing)) == 1


async def test_without_a_group_the_log_warns_before_the_start_fails(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        consumer = Consumer("open", "missing", **options(cluster, "root"), request_timeout_ms=2_000)
        with pytest.raises(KafkaError, match="'missing'") as raised:
            await consumer.start()
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(warnings(caplog, "missing")) == 1


async def test_the_log_warns_of_a_partition_by_hand_of_a_topic_that_is_not_there(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with Consumer(**options(cluster, "root")) as consumer, asyncio.timeout(SOON_S):
            consumer.assign([TopicPartition("nowhere", 0)])
            while not warnings(caplog, "nowhere"):
                await consumer.getmany(timeout_ms=10)
            await consumer.getmany(timeout_ms=200)
    assert len(warnings(caplog, "nowhere")) == 1
