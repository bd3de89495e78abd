"""Single reads, batch reads and pauses, mixed: each record once, in the order of its partition."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from ottla import Consumer, Producer, TopicPartition
from ottla.testing import LocalCluster

pytestmark = pytest.mark.cluster
COUNT = 600


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.create_topic("t", partitions=2)

        async def fill() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                for number in range(COUNT):
                    await producer.send("t", b"%d" % number, partition=number % 2)

        asyncio.run(fill())
        yield cluster


@pytest.mark.parametrize("seed", range(5))
async def test_ways_to_read_may_be_mixed(cluster: LocalCluster, seed: int) -> None:
    chance, read = random.Random(seed), list[int]()
    print("seed", seed)
    both = [TopicPartition("t", index) for index in (0, 1)]
    async with (
        Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            max_poll_records=50,
            fetch_max_wait_ms=20,  # a fetch that was sent while one partition was paused holds up the other's so long
        ) as consumer
    ):
        async with asyncio.timeout(60):
            while len(read) < COUNT:
                paused = chance.choice([None, *both])
                if paused is not None:
                    consumer.pause(paused)
                one_of = chance.choice([(), (both[0],), (both[1],)])
                some = await consumer.getmany(*one_of, timeout_ms=5, max_records=chance.randrange(1, 20))
                assert not some.keys() & {paused}
                assert some.keys() <= set(one_of or both)
                read += [int(record.value or b"") for records in some.values() for record in records]
                if paused is not None:
                    consumer.resume(paused)
                if len(read) < COUNT:
                    read.append(int((await consumer.getone()).value or b""))
        assert [await consumer.position(partition) for partition in both] == [COUNT // 2] * 2
    for index in (0, 1):
        assert [number for number in read if number % 2 == index] == list(range(index, COUNT, 2))


async def test_what_was_fetched_of_a_paused_partition_waits(cluster: LocalCluster) -> None:
    async with Consumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        async with asyncio.timeout(60):
            first = await consumer.getone()
            here = TopicPartition("t", first.partition)
            consumer.pause(here)
            others = [await consumer.getone() for _ in range(COUNT // 2)]
            assert {record.partition for record in others} == {1 - first.partition}
            assert await consumer.position(here) == 1
            consumer.resume(here)
            assert (await consumer.getone()).offset == 1
