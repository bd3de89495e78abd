"""The whole cluster is away for a while: readers wait for it, and get an error when that takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from ottla import Consumer, NoBrokerReachable, Producer, TopicPartition
from ottla.testing import LocalCluster
from tests.client.listeners import KeptEvents

pytestmark = pytest.mark.cluster


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"before")
        yield cluster


async def test_a_member_reads_on_and_commits_when_the_only_broker_is_back(cluster: LocalCluster) -> None:
    events = KeptEvents()
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
    )
    consumer.subscribe(["t"], listener=events)
    async with consumer, asyncio.timeout(60):
        assert (await consumer.getone()).value == b"before"
        cluster.kill(1)
        reading = asyncio.create_task(consumer.getone())
        committing = asyncio.create_task(consumer.commit())
        looking = asyncio.create_task(consumer.end_offsets([TopicPartition("t", 0)]))
        tasks = (reading, committing, looking)
        assert not (await asyncio.wait(tasks, timeout=1))[0]  # long enough for many attempts
        await asyncio.to_thread(cluster.restart, 1)
        await committing
        assert await looking == {TopicPartition("t", 0): 1}
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"after")
        assert (await reading).value == b"after"
        assert await consumer.committed(TopicPartition("t", 0)) == 1
        assert not events.all("revoked", "lost")  # its place in the group was still its own


async def test_a_reader_is_told_when_nobody_answers_for_longer_than_the_request_timeout(
    cluster: LocalCluster,
) -> None:
    async with Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        request_timeout_ms=1_000,
    ) as consumer:
        async with asyncio.timeout(60):
            assert (await consumer.getone()).value == b"before"
            cluster.kill(1)
            began = asyncio.get_running_loop().time()
            for tellings in (1, 2):  # each time again
                with pytest.raises(NoBrokerReachable, match="no broker answers"):
                    await consumer.getone()
                assert asyncio.get_running_loop().time() - began >= tellings
            await asyncio.to_thread(cluster.restart, 1)
            async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send_and_wait("t", b"after")
            record = None
            while record is None:
                with suppress(NoBrokerReachable):  # noticed while it was away, and not yet raised
                    record = await consumer.getone()
            assert record.value == b"after"
