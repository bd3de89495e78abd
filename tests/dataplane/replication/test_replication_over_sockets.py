"""Whole replication over loopback: what clients of three brokers see."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata_records import (
    PartitionRecord,
    TopicRecord,
    TopicRemovedRecord,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.producers import InitProducerIdRequest
from tests.dataplane.log.batches import value_of

from .brokers_over_sockets import LAG_MS, BrokersOverSockets, RawConnection, running, until
from .harness import TOPIC_ID, batch


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[BrokersOverSockets]:
    async with running(tmp_path) as cluster:
        yield cluster


async def test_produce_and_fetch_through_three_replicas(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[1].port) as client:
        for number in range(50):
            answer = await client.produce(b"value %d" % number)
            assert (answer.error_code, answer.base_offset) == (0, number)
        part = await client.fetch(0)
        assert part.error_code == 0
        assert part.high_watermark == 50
        assert bytes(part.records).count(b"value") == 50
        by_id = await client.fetch(10, version=16)
        assert bytes(by_id.records).count(b"value") == 40
    for broker_id in (2, 3):
        await until(
            lambda b=broker_id: cluster[b].partition.high_watermark == 50, "the high watermark to arrive"
        )


async def test_large_batches_travel_as_slices_of_files(cluster: BrokersOverSockets) -> None:
    value = bytes(range(256)) * 2500
    async with RawConnection(cluster[1].port) as client:
        for _ in range(5):
            assert (await client.produce(value)).error_code == 0
        part = await client.fetch(4)
        assert value_of(part.records) == value
    await until(lambda: cluster[3].partition.log.log_end_offset == 5, "the third replica")


async def test_a_parked_fetch_is_answered_when_records_are_committed(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[1].port) as consumer, RawConnection(cluster[1].port) as producer:
        waiting = asyncio.create_task(consumer.fetch(0, max_wait_ms=9000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await producer.produce(b"news")
        assert value_of((await waiting).records) == b"news"
        started = time.monotonic()
        empty = await consumer.fetch(1, max_wait_ms=100)
        assert time.monotonic() - started >= 0.09
        assert (empty.error_code, len(empty.records)) == (0, 0)


async def test_the_leader_dies_and_the_next_write_is_acknowledged_at_once(
    cluster: BrokersOverSockets,
) -> None:
    async with RawConnection(cluster[1].port) as client:
        for number in range(20):
            await client.produce(b"%d" % number, producer=(5, 0, number))
    dead = cluster[1]
    async with RawConnection(cluster[2].port) as client:
        assert (await client.produce(b"early")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await dead.stop(clean=False)
        await until(lambda: cluster[2].lost == cluster[3].lost == [1], "a report of the ended connections")
        assert dead.lost == [], "it has ended its own"
        started = time.perf_counter()
        cluster.quorum.fence(1)
        answer = await client.produce(b"next", producer=(5, 0, 20))
        took_ms = (time.perf_counter() - started) * 1000
        assert (answer.error_code, answer.base_offset) == (0, 20)
        assert took_ms < 5000, f"{took_ms:.1f} ms"
        repeated = await client.produce(b"next", producer=(5, 0, 20))
        assert (repeated.error_code, repeated.base_offset) == (0, 20)
    cluster.start(1)
    await until(lambda: set(cluster.quorum.state.isr) == {1, 2, 3}, "the restarted broker to rejoin the ISR")
    assert cluster[1].partition.log.log_end_offset == 21


async def test_a_member_that_hangs_leaves_the_isr_and_writes_go_on(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[1].port) as client:
        await client.produce(b"a")
        await cluster[3].stop()
        started = time.monotonic()
        answer = await client.produce(b"b", timeout_ms=9000)
        assert answer.error_code == 0
        assert time.monotonic() - started >= LAG_MS / 2000
        assert set(cluster.quorum.state.isr) == {1, 2}


async def test_timeout_and_not_enough_replicas(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[1].port) as client:
        await client.produce(b"a")
        await cluster[2].stop()
        await cluster[3].stop()
        assert (await client.produce(b"b", timeout_ms=50)).error_code == ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.create_task(client.produce(b"c", timeout_ms=300))
        await until(lambda: cluster[1].partition.log.log_end_offset == 3, "the append")
        cluster.quorum.tell(cluster.quorum.partition(isr=[1]))
        assert (await waiting).error_code == ErrorCode.REQUEST_TIMED_OUT, "once the request's time is over"
        assert (await client.produce(b"d")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster[1].partition.log.log_end_offset == 3


async def test_what_produce_refuses(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[1].port) as client:
        corrupt = batch(b"damage")
        corrupt[-1] ^= 1
        transactional = batch(b"t", producer=(1, 0, 0))
        zstd = batch(b"z")
        zstd[22] |= 4
        transactional[22] |= 0x10
        cases = [
            ({"value": b"x", "acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
            ({"value": b"", "records": corrupt}, ErrorCode.CORRUPT_MESSAGE),
            ({"value": b"", "records": batch(b"1") + batch(b"2")}, ErrorCode.INVALID_RECORD),
            ({"value": b"", "records": zstd, "version": 6}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            ({"value": b"", "records": transactional}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            ({"value": b"x" * (1 << 20) + b"x" * 100}, ErrorCode.MESSAGE_TOO_LARGE),
            ({"value": b"gap", "producer": (9, 0, 3)}, ErrorCode.NONE),
            ({"value": b"gap", "producer": (9, 0, 7)}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ]
        for arguments, expected in cases:
            answer = await client.produce(**arguments)
            assert answer.error_code == expected, arguments
            if expected:
                assert answer.base_offset == -1
        await client.produce(b"quiet", acks=0)
        assert (await client.produce(b"by id", version=13)).error_code == 0
        assert cluster[1].partition.log.log_end_offset == 3


async def test_clients_do_not_write_where_groups_are_kept(cluster: BrokersOverSockets) -> None:
    groups = bytes([7]) * 16
    cluster.quorum.tell(
        TopicRecord(topic_id=groups, name="__consumer_offsets"),
        PartitionRecord(topic_id=groups, partition=0, replicas=[1], isr=[1], leader=1),
    )
    async with RawConnection(cluster[1].port) as client:
        data = PartitionProduceData(index=0, records=batch(b"no group"))
        request = ProduceRequest(
            acks=1, topic_data=[TopicProduceData(name="__consumer_offsets", partition_data=[data])]
        )
        answer = (await client.call(request, 9)).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_the_wrong_broker_names_the_leader(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[2].port) as client:
        topic = TopicProduceData(
            name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"x"))]
        )
        response = await client.call(ProduceRequest(acks=1, timeout_ms=100, topic_data=[topic]), 10)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 0)
        assert [(node.node_id, node.port) for node in response.node_endpoints] == [(1, cluster[1].port)]
        assert (await client.fetch(0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await client.fetch(0, version=11, max_wait_ms=0)).error_code == ErrorCode.NONE
    async with RawConnection(cluster[2].port) as client:
        await client.produce(b"lost", acks=0)
        assert await client._reader.read() == b"", "acks=0 to the wrong broker closes the connection"


async def test_epochs_and_offsets_of_consumers(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[1].port) as client:
        for value in (b"a", b"b", b"c"):
            await client.produce(value)

        async def listed(timestamp: int, version: int = 7, **kw: Any) -> tuple[int, int]:
            part = ListOffsetsPartition(partition_index=0, timestamp=timestamp, **kw)
            topic = ListOffsetsTopic(name="t", partitions=[part])
            response = await client.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), version)
            found = response.topics[0].partitions[0]
            return found.error_code, found.offset

        assert await listed(-1) == (0, 3)
        assert await listed(-2) == (0, 0)
        assert (await listed(-3))[0] == 0
        assert (await listed(-3, version=5))[0] == ErrorCode.UNSUPPORTED_VERSION
        assert await listed(0, version=1) == (0, 0)
        assert await listed(1 << 60) == (0, -1)
        assert (await listed(-1, current_leader_epoch=9))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await client.fetch(99)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await client.fetch(0, current_leader_epoch=5)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        cluster.quorum.tell(cluster.quorum.partition(leader_epoch=4))
        assert (await client.fetch(0, current_leader_epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        asked = OffsetForLeaderTopic(
            topic="t",
            partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=4)],
        )
        response = await client.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked]), 3)
        ended = response.topics[0].partitions[0]
        assert (ended.error_code, ended.leader_epoch, ended.end_offset) == (0, 0, 3)


async def test_producer_ids_are_never_given_twice(cluster: BrokersOverSockets) -> None:
    async def take(port: int) -> list[int]:
        ids = []
        async with RawConnection(port) as client:
            for _ in range(1100):
                answer = await client.call(InitProducerIdRequest(transactional_id=None), 1)
                assert (answer.error_code, answer.producer_epoch) == (0, 0)
                ids.append(answer.producer_id)
            ask = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
            refused = await client.call(ask, 1)
            assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        return ids

    first, second = await asyncio.gather(take(cluster[1].port), take(cluster[2].port))
    assert len({*first, *second}) == 2200


async def test_flush_messages_one_over_sockets(tmp_path: Path) -> None:
    # A disk that is busy must not put a follower out of the ISR: then it would not have to flush.
    cluster_of_three = running(tmp_path, durable=True, lag_ms=60_000)
    async with cluster_of_three as cluster, RawConnection(cluster[1].port) as client:
        for number in range(10):
            assert (await client.produce(b"%d" % number)).error_code == 0
            flushed = [cluster[broker].partition.log.recovery_point for broker in (1, 2, 3)]
            assert min(flushed) >= number + 1, "acknowledged means flushed everywhere"


@pytest.mark.parametrize("settings", [{"flush_messages": 3}, {"flush_ms": 50}])
async def test_flushes_by_number_and_by_time_over_sockets(tmp_path: Path, settings: dict[str, int]) -> None:
    async with running(tmp_path) as cluster, RawConnection(cluster[1].port) as client:
        partitions = [cluster[broker].partition for broker in (1, 2, 3)]
        for partition in partitions:
            partition.reconfigure(replace(partition.settings, **settings))
        for number in range(6):
            assert (await client.produce(b"%d" % number)).error_code == 0
        await until(lambda: all(partition.log.recovery_point >= 6 for partition in partitions), "the flushes")


async def test_a_deleted_topic_is_gone_and_its_successor_is_empty(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[1].port) as client:
        await client.produce(b"old")
        cluster.quorum.tell(TopicRemovedRecord(topic_id=TOPIC_ID))
        assert (await client.produce(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cluster.create_topic()
        answer = await client.produce(b"new")
        assert (answer.error_code, answer.base_offset) == (0, 0)
