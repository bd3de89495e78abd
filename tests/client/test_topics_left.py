"""Topics that a client has left are deleted, and no client recreates them (KAFKA-2948, librdkafka#2786).

Brokers create topics that clients ask about, which is their default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.admin import Admin, NewTopic
from ottla.client.connections.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.protocol.errors import ErrorCode
from tests.cluster import RunningCluster, running_cluster

pytestmark = pytest.mark.cluster
AGE_MS = 50
MODES = {
    "classic": {"group_id": "classic"},
    "consumer": {"group_id": "consumer", "group_protocol": "consumer"},
    "no group": {},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with running_cluster(tmp_path_factory.mktemp("left"), quorum=1, brokers=1, settings=settings) as running:
        yield running


async def create(admin: Admin, *names: str) -> None:
    await admin.create_topics([NewTopic(name, num_partitions=1) for name in names])


async def looked_again(client: Cluster) -> None:
    """Wait until the client has refreshed all its topics once more."""
    asked = asyncio.Event()
    ask = client.ask_metadata

    async def note(*arguments: Any, **options: Any) -> None:
        await ask(*arguments, **options)
        asked.set()

    client.ask_metadata = note  # type: ignore[method-assign]
    try:
        for _ in range(2):  # The first answer may be of a question from before.
            asked.clear()
            async with asyncio.timeout(30):
                await asked.wait()
    finally:
        client.ask_metadata = ask  # type: ignore[method-assign]


async def test_a_deleted_topic_that_a_producer_wrote_to_stays_deleted(cluster: RunningCluster) -> None:
    async with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap, metadata_max_age_ms=AGE_MS) as producer,
    ):
        await create(admin, "once", "now")
        for topic in ("once", "now"):
            await producer.send_and_wait(topic, b"x")
        await admin.delete_topics(["once"])
        client = producer.parts.cluster
        async with asyncio.timeout(30):
            while client.metadata.topics["once"].error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await asyncio.sleep(0.01)
        await looked_again(client)
        assert set(await admin.list_topics()) >= {"now"}
        assert "once" not in await admin.list_topics()
        await producer.send_and_wait("once", b"y")  # Only a record recreates it.
        assert "once" in await admin.list_topics()


@pytest.mark.parametrize("mode", MODES)
async def test_a_consumer_asks_no_more_about_a_topic_that_it_has_left(
    cluster: RunningCluster, mode: str
) -> None:
    left, read = f"left-{mode[:2]}", f"read-{mode[:2]}"
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap,
        metadata_max_age_ms=AGE_MS,
        auto_offset_reset="earliest",
        **MODES[mode],  # type: ignore[arg-type]
    )
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin, consumer:
        await create(admin, left, read)
        for topic in (left, read):
            consumer.subscribe([topic])
            async with asyncio.timeout(30):
                while {partition.topic for partition in consumer.assignment()} != {topic}:
                    await consumer.getmany(timeout_ms=10)
        await admin.delete_topics([left])
        await looked_again(consumer._cluster)
        assert left not in await admin.list_topics()
        assert read in await admin.list_topics()
        await consumer.partitions_for(left)  # A question is no subscription.
        assert left not in await admin.list_topics()
        consumer.subscribe([left])
        async with asyncio.timeout(30):
            while left not in await admin.list_topics():
                await consumer.getmany(timeout_ms=10)
