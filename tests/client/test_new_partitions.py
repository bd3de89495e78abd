"""A new partition is written to at once if a record names it, otherwise within the metadata's age."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.client.fake_cluster import FakeCluster, PartitionLog, fake_cluster
from tests.client.fake_coordinator import Coordinator
from tests.client.fake_transactions import transactional_cluster
from tests.client.test_cluster_metadata import answer

Send = Callable[[Producer], Awaitable[object]]


async def send(producer: Producer) -> object:
    return await producer.send_and_wait("t", b"new", partition=1)


async def send_columns(producer: Producer) -> object:
    pa = pytest.importorskip("pyarrow")
    return await (
        await producer.send_arrow("t", pa.table({"value": pa.array([b"new"], pa.binary())}), partition=1)
    )


async def send_named_by_rows(producer: Producer) -> object:
    pa = pytest.importorskip("pyarrow")
    rows = pa.table({"value": pa.array([b"new"], pa.binary()), "p": pa.array([1], pa.int32())})
    return await (await producer.send_arrow("t", rows, partition="p"))


async def send_large(producer: Producer) -> object:
    return await producer.send_and_wait("t", b"new" * 1_000, partition=1)


def add_partition(cluster: FakeCluster) -> None:
    cluster.logs.append(PartitionLog())


SENDS = [send, send_columns, send_named_by_rows, send_large]


@pytest.mark.parametrize("how", SENDS)
async def test_a_partition_that_is_named_is_looked_for(how: Send) -> None:
    async with (
        fake_cluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, large_message_segment_size=1_000) as producer,
    ):
        await producer.send_and_wait("t", b"known")
        add_partition(cluster)
        async with asyncio.timeout(25):
            await how(producer)
        assert len(cluster.logs[1].values) in (1, 3)


@pytest.mark.parametrize("how", SENDS)
async def test_one_that_comes_later_is_waited_for(how: Send) -> None:
    async with (
        fake_cluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, large_message_segment_size=1_000) as producer,
    ):
        await producer.send_and_wait("t", b"known")
        sending = asyncio.ensure_future(how(producer))
        done, _ = await asyncio.wait({sending}, timeout=0.1)
        assert not done
        await producer.send_and_wait("t", b"others go on")
        add_partition(cluster)
        async with asyncio.timeout(25):
            await sending
        assert len(cluster.logs[1].values) in (1, 3)


@pytest.mark.parametrize("how", SENDS)
async def test_one_that_does_not_come_is_named_with_those_there_are(how: Send) -> None:
    async with (
        fake_cluster() as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap, large_message_segment_size=1_000, max_block_ms=100
        ) as producer,
    ):
        async with asyncio.timeout(25):
            with pytest.raises(
                KafkaError, match="'t' has 1 partitions, there is none numbered 1, "
            ) as caught:
                await how(producer)
        assert "0.1 s of max_block_ms" in caught.value.message
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ValueError, match="partition is"):
            await producer.send("t", b"", partition=-1)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_transaction_takes_it_in(version: int) -> None:
    async with (
        transactional_cluster(version) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer,
    ):
        async with producer.transaction():
            await producer.send("t", b"known")
            cluster.fates.append([])
            add_partition(cluster)
            async with asyncio.timeout(25):
                await producer.send_and_wait("t", b"new", partition=1)
        assert cluster.committed(1) == [b"new"]


async def test_keys_and_records_without_key_go_there_within_the_age_of_metadata() -> None:
    async with (
        fake_cluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, metadata_max_age_ms=50, batch_size=200) as producer,
    ):
        await producer.send_and_wait("t", b"known")
        add_partition(cluster)
        async with asyncio.timeout(25):
            while b"keyed" not in cluster.logs[1].values or b"keyless" not in cluster.logs[1].values:
                await producer.send_and_wait(
                    "t", b"keyed", key=b"d"
                )  # of two partitions the second is its own
                await producer.send_and_wait("t", b"keyless")
                await asyncio.sleep(0.01)


async def test_a_broker_that_has_yet_to_hear_of_a_partition_takes_it_from_no_reader(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer without a group gave it up, got it again with the next answer, and restarted at its start offset."""
    refreshed = 0

    async def refresh(_topics: object = (), *, create: bool = False) -> None:
        nonlocal refreshed
        refreshed += 1
        coordinator.metadata.update(answer([(1, 0)] * (1 if refreshed > 2 else 2)))

    monkeypatch.setattr(coordinator, "refresh", refresh)
    added = TopicPartition("t", 1)
    async with Consumer("t", metadata_max_age_ms=1) as consumer:
        consumer.seek(added, 5)
        async with asyncio.timeout(25):
            while refreshed < 5:
                await asyncio.sleep(0.001)
        assert added in consumer.assignment()
        assert await consumer.position(added) == 5
