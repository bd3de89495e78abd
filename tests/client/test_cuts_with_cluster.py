"""Cuts and slices of partitions, asked of a cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from ottla import Admin, Cut, CutOffset, ErrorCode, KafkaError, NewTopic, Producer, TopicPartition
from ottla.client.connections.cluster import Cluster
from ottla.client.consuming.assigned import FetchOptions
from ottla.client.consuming.slice_reader import SliceReader
from ottla.testing import LocalCluster

pytestmark = pytest.mark.cluster
FIRST, SECOND = TopicPartition("cut", 0), TopicPartition("cut", 1)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with LocalCluster(settings={"auto.create.topics.enable": "false"}) as running:
        yield running.bootstrap_servers


def options(request_timeout_ms: int = 30_000) -> FetchOptions:
    return FetchOptions(
        read_committed=False,
        reset_timestamp=None,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        max_partition_bytes=2_000,
        request_timeout_ms=request_timeout_ms,
        retry_backoff_max_ms=100,
        check_crcs=True,
    )


async def test_a_cut_tells_where_to_go_on_from_it(address: str) -> None:
    """The long transaction is open at both cuts; the second one lies behind a commit, and may lie anywhere up to the
    record after it."""
    places = [FIRST, SECOND]
    async with (
        Admin(bootstrap_servers=address) as admin,
        Producer(bootstrap_servers=address, transactional_id="long") as slow,
        Producer(bootstrap_servers=address, transactional_id="fast") as fast,
    ):
        await admin.create_topics([NewTopic("cut", num_partitions=2)])
        before = await admin.find_cut(places)
        assert before.commit_index == -1
        await slow.begin_transaction()
        await slow.send_and_wait("cut", b"open", partition=0)
        async with fast.transaction():
            await fast.send("cut", b"a", partition=0)
            await fast.send("cut", b"b", partition=1)
        async with Producer(bootstrap_servers=address) as plain:
            await plain.send_and_wait("cut", b"plain", partition=0)
        cut = await admin.find_cut(places)
        assert cut.commit_index == before.commit_index + 1
        assert await admin.cut_offsets(cut, places) == {FIRST: CutOffset(4, 0, 3), SECOND: CutOffset(2, 2, 2)}
        assert await admin.cut_offsets(Cut(-1), places) == {
            FIRST: CutOffset(2, 0, 0),
            SECOND: CutOffset(1, 0, 0),
        }
        await slow.commit_transaction()
        after = await admin.find_cut(places)
        assert await admin.cut_offsets(after, [FIRST]) == {FIRST: CutOffset(5, 5, 5)}
        with pytest.raises(KafkaError, match="topic 'nowhere'"):
            await admin.find_cut([TopicPartition("nowhere", 0)])


async def test_application_versions_are_told_as_they_were_at_a_cut(address: str) -> None:
    async with (
        Admin(bootstrap_servers=address) as admin,
        Producer(bootstrap_servers=address, transactional_id="job") as job,
    ):
        await admin.create_topics([NewTopic("cut", num_partitions=2)])

        async def commit(version: int) -> Cut:
            transaction = await job.begin(app_version=version)
            await job.send("cut", b"x", partition=0)
            await transaction.commit()
            return await admin.find_cut([])

        none = await admin.app_versions_at(await admin.find_cut([]))
        assert (none.versions, none.is_whole) == ({}, True)
        third, seventh = await commit(3), await commit(7)
        assert (await admin.app_versions_at(third)).versions == {"job": 3}
        then = await admin.app_versions_at(third, told_offset=none.next_offset)
        assert (then.versions, then.is_whole) == ({"job": 3}, False)
        now = await admin.app_versions_at(seventh, told_offset=then.next_offset)
        assert (now.versions, now.is_whole) == ({"job": 7}, False)
        await admin.delete_transactional_id("job")
        gone = await admin.app_versions_at(seventh, told_offset=now.next_offset)
        assert gone.versions == {"job": -1}
        with pytest.raises(KafkaError, match="find a newer cut") as raised:
            await admin.app_versions_at(Cut(seventh.commit_index + 1))
        assert raised.value.code is ErrorCode.OFFSET_NOT_AVAILABLE


async def test_a_slice_is_read_as_it_stands_in_the_log(address: str) -> None:
    async with (
        Admin(bootstrap_servers=address) as admin,
        Producer(bootstrap_servers=address, transactional_id="x") as producer,
        Cluster(address) as cluster,
    ):
        await admin.create_topics([NewTopic("cut", num_partitions=2)])
        for number in range(20):
            await producer.begin_transaction()
            await producer.send_and_wait("cut", b"%d" % number * 100, partition=0)
            await (producer.commit_transaction() if number % 2 else producer.abort_transaction())
        async with SliceReader(cluster, options(), FIRST, 5) as reader:
            headers = [header for header, _ in (await reader.next_chunk()).batches()]
            assert len(headers) < 35, "a chunk has as many bytes as were asked for"
            while headers[-1].next_offset < 40:
                assert reader.position == headers[-1].next_offset
                headers += [header for header, _ in (await reader.next_chunk()).batches()]
            assert headers[0].base_offset == 5
            assert all(before.next_offset == after.base_offset for before, after in pairwise(headers))
            assert sum(header.is_control for header in headers) == 18
            reader.seek(30)
            (header, _), *_ = (await reader.next_chunk()).batches()
            assert header.base_offset == 30


async def test_what_cannot_be_read_of_a_slice_is_an_error(address: str) -> None:
    async with (
        Admin(bootstrap_servers=address) as admin,
        Producer(bootstrap_servers=address) as producer,
        Cluster(address) as cluster,
    ):
        await admin.create_topics([NewTopic("cut", num_partitions=2)])
        for _ in range(10):
            await producer.send_and_wait("cut", b"x", partition=0)
        await admin.delete_records({FIRST: 4})
        async with SliceReader(cluster, options(), FIRST, 3) as reader:
            with pytest.raises(KafkaError) as lost:
                await reader.next_chunk()
            assert lost.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        async with SliceReader(cluster, options(request_timeout_ms=300), FIRST, 10) as reader:
            with pytest.raises(KafkaError, match="cut-0 ends at 10; there is nothing at offset 10"):
                await reader.next_chunk()
        async with SliceReader(cluster, options(), FIRST, 10) as reader:
            waiting = asyncio.ensure_future(reader.next_chunk())
            await admin.delete_topics(["cut"])
            with pytest.raises(KafkaError, match="cut-0 is not there any more") as gone:
                await waiting
            assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_slice_is_of_the_topic_whose_id_is_known(address: str) -> None:
    """Another topic of the same name has a record at the same offset."""
    async with (
        Admin(bootstrap_servers=address) as admin,
        Producer(bootstrap_servers=address) as producer,
        Cluster(address) as cluster,
    ):
        ids = []
        for value in (b"former", b"new"):
            await admin.create_topics([NewTopic("cut", num_partitions=2)])
            ids.append((await admin.describe_topics(["cut"]))[0].id)
            await producer.send_and_wait("cut", value, partition=0)
            if value == b"former":
                async with SliceReader(cluster, options(), FIRST, 0, topic_id=ids[0]) as reader:
                    assert b"former" in bytes(next(iter((await reader.next_chunk()).batches()))[1])
                await admin.delete_topics(["cut"])
        async with SliceReader(cluster, options(), FIRST, 0, topic_id=ids[0]) as reader:
            with pytest.raises(KafkaError, match=r"topic 'cut'.*another topic has its name") as another:
                await reader.next_chunk()
            assert another.value.code is ErrorCode.UNKNOWN_TOPIC_ID
        async with SliceReader(cluster, options(), FIRST, 0, topic_id=ids[1]) as reader:
            assert b"new" in bytes(next(iter((await reader.next_chunk()).batches()))[1])


async def test_slices_leave_no_connections(address: str) -> None:
    """A process reads one slice after the other, and keeps its cluster for the next."""
    async with (
        Admin(bootstrap_servers=address) as admin,
        Producer(bootstrap_servers=address) as producer,
        Cluster(address) as cluster,
    ):
        await admin.create_topics([NewTopic("slices", num_partitions=1)])
        await producer.send_and_wait("slices", b"x")
        readers = [SliceReader(cluster, options(), TopicPartition("slices", 0), 0) for _ in range(20)]
        open_before = len(os.listdir("/proc/self/fd"))
        for reader in readers:
            async with reader:
                await reader.next_chunk()
        async with asyncio.timeout(30):
            while len(os.listdir("/proc/self/fd")) > open_before + len(readers) / 2:
                await asyncio.sleep(0.01)
