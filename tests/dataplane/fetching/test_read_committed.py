"""Read-committed consumers: their last offset, the aborted transactions in answers, and the moment
at which they wake.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.consuming.fetched import FetchedRecords
from ottla.client.records import TopicPartition
from ottla.dataplane.handlers.list_offsets import MAX_TIMESTAMP, ListOffsetsHandlers
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import ANONYMOUS
from ottla.dataplane.server.handler import ClientRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.messages.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.records.record import encode_batch

from .consumers import OTHER_ID, OWN_ID, Consumer, Shelf, offsets, parts_of, wanted

ID = b"t" * 16
COMMITTED = {"isolation_level": 1}


class Writers:
    """Producers of one partition, and the ends of their transactions."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._sequences: dict[int, int] = {}
        self._markers = 0

    def write(self, producer_id: int, *values: bytes, timestamp_ms: int | None = None) -> int:
        """Append a transactional batch, or a plain one for producer -1, and return the next offset."""
        transactional = producer_id >= 0
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        now_ms = wall_ms() if timestamp_ms is None else timestamp_ms
        batch = encode_batch(
            [(None, value, now_ms) for value in values],
            producer_id=producer_id,
            producer_epoch=0 if transactional else -1,
            base_sequence=sequence if transactional else -1,
            transactional=transactional,
        )
        return self.partition.append(memoryview(bytearray(batch)), required_acks=1).last_offset + 1

    def end(self, producer_id: int, *, commit: bool) -> int:
        """Append the marker, and return the next offset."""
        self._markers += 1
        return self.partition.append_marker(
            producer_id, 0, commit=commit, number=self._markers, commit_index=self._markers
        )


def shelf_of(directory: Path, *, followed: bool = False) -> tuple[Shelf, Writers]:
    """Return a broker with one partition.

    `followed`: records are below the high watermark once the other broker has fetched them.
    """
    shelf = Shelf(directory)
    shelf.create("t", ID, 1)
    if followed:
        shelf.tell(shelf.state(ID, 0, epoch=1, isr=[OWN_ID, OTHER_ID]))
    return shelf, Writers(shelf.replica("t"))


def replicate(shelf: Shelf, upto: int) -> None:
    shelf.replica("t").fetched_by(OTHER_ID, OTHER_ID, upto)


def read(shelf: Shelf, offset: int, *, most: int = 1 << 20, **fields: Any) -> PartitionData:
    topic = wanted(ID, (0, offset), partition_max_bytes=most)
    return parts_of(Consumer(shelf).fetch([topic], **(COMMITTED | fields)))[ID, 0]


def aborted(part: PartitionData) -> list[tuple[int, int]]:
    assert part.aborted_transactions is not None
    return [(transaction.producer_id, transaction.first_offset) for transaction in part.aborted_transactions]


def taken(part: PartitionData, offset: int) -> tuple[list[bytes | None], int]:
    """Return the values that an application would see, and the consumer's next offset."""
    fetched = FetchedRecords(
        TopicPartition("t", 0), memoryview(bytes(part.records or b"")), offset, aborted(part)
    )
    return [record.value for record in fetched.take(10_000)], fetched.end_offset


async def test_an_open_transaction_ends_what_is_read(tmp_path: Path) -> None:
    shelf, writers = shelf_of(tmp_path, followed=True)
    writers.write(-1, b"plain")
    writers.write(7, b"in a transaction")
    replicate(shelf, writers.write(-1, b"behind it"))

    def seen() -> tuple[list[int], int, int]:
        part = read(shelf, 0)
        assert aborted(part) == []
        return offsets(part), part.last_stable_offset, part.high_watermark

    assert seen() == ([0], 1, 3)
    marked = writers.end(7, commit=True)
    assert seen() == ([0], 1, 3), "the marker may still be lost"
    everything = read(shelf, 0, isolation_level=0)
    assert (offsets(everything), everything.last_stable_offset) == ([0, 1, 2], 1)
    assert everything.aborted_transactions is None
    replicate(shelf, marked)
    assert seen() == ([0, 1, 2, 3], 4, 4)
    await shelf.close()


@pytest.mark.parametrize("offset", [1, 2, 4])
async def test_beyond_the_last_stable_offset_nothing_is_read(tmp_path: Path, offset: int) -> None:
    shelf, writers = shelf_of(tmp_path, followed=True)
    writers.write(-1, b"plain")
    writers.write(7, b"open")
    writers.write(7, b"open")
    replicate(shelf, 3)
    writers.write(-1, b"not replicated")
    part = read(shelf, offset)
    assert (part.error_code, part.records, aborted(part)) == (0, b"", [])
    assert (part.last_stable_offset, part.high_watermark) == (1, 3)
    assert read(shelf, 5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await shelf.close()


async def test_aborted_transactions_are_named(tmp_path: Path) -> None:
    shelf, writers = shelf_of(tmp_path)
    writers.write(7, b"aborted", b"aborted")  # 0, 1
    writers.write(8, b"committed")  # 2
    writers.write(-1, b"plain")  # 3
    writers.end(7, commit=False)  # 4
    writers.write(7, b"committed too")  # 5
    writers.end(8, commit=True)  # 6
    writers.end(7, commit=True)  # 7
    writers.write(9, b"aborted later")  # 8
    writers.end(9, commit=False)  # 9
    part = read(shelf, 0)
    assert aborted(part) == [(7, 0), (9, 8)]
    assert taken(part, 0) == ([b"committed", b"plain", b"committed too"], 10)
    assert aborted(read(shelf, 3)) == [(7, 0), (9, 8)], "it begins before, and its marker comes"
    assert aborted(read(shelf, 5)) == [(9, 8)]
    assert read(shelf, 0, isolation_level=0).aborted_transactions is None
    for version in range(4, 12):
        by_name = wanted(bytes(16), (0, 0), name="t")
        old = parts_of(Consumer(shelf, version).fetch([by_name], **COMMITTED))["t", 0]
        assert aborted(old) == [(7, 0), (9, 8)]
    await shelf.close()


async def test_only_those_are_named_that_concern_the_answer(tmp_path: Path) -> None:
    shelf, writers = shelf_of(tmp_path)
    log = writers.partition.log
    log.config = replace(log.config, index_interval_bytes=0)
    for number in range(200):
        writers.write(number, b"aborted")
        writers.end(number, commit=False)
        if number % 50 == 49:
            log.roll(0)
    for offset in (0, 98, 99, 100, 150, 399):
        part = read(shelf, offset, most=300)
        _, end = taken(part, offset)
        assert aborted(part) == [(first // 2, first) for first in range(offset // 2 * 2, end, 2)]
        assert len(aborted(part)) < 5
    await shelf.close()


async def test_after_a_restart(tmp_path: Path) -> None:
    shelf, writers = shelf_of(tmp_path)
    writers.write(7, b"aborted")
    writers.partition.log.roll(0)
    writers.end(7, commit=False)
    writers.write(8, b"committed")
    writers.end(8, commit=True)
    writers.partition.log.roll(0)
    writers.write(9, b"open")
    writers.write(-1, b"behind it")
    before = read(shelf, 0, isolation_level=0, max_bytes=1 << 20)
    await shelf.close()
    shelf, writers = shelf_of(tmp_path)
    values: list[bytes | None] = []
    offset = 0
    while offset < 4:
        part = read(shelf, offset)
        assert (part.last_stable_offset, part.high_watermark) == (4, before.high_watermark)
        more, offset = taken(part, offset)
        values += more
    assert (values, offset) == ([b"committed"], 4)
    writers.end(9, commit=False)
    assert taken(read(shelf, 4), 4) == ([b"behind it"], 7)
    await shelf.close()


@pytest.mark.parametrize("in_session", [False, True])
async def test_a_parked_fetch_waits_for_what_is_stable(tmp_path: Path, in_session: bool) -> None:
    shelf, writers = shelf_of(tmp_path, followed=True)
    consumer = Consumer(shelf)
    writers.write(-1, b"plain")
    position = [wanted(ID, (0, 1))]
    fields: dict[str, Any] = {"max_wait_ms": 60_000, "min_bytes": 150} | COMMITTED
    if in_session:
        session_id = consumer.fetch(position, session_epoch=0, **COMMITTED).session_id
        replicate(shelf, 1)
        consumer.fetch(session_id=session_id, session_epoch=1, **COMMITTED)
        consumer.send(session_id=session_id, session_epoch=2, **fields)
    else:
        replicate(shelf, 1)
        consumer.send(position, **fields)

    async def is_parked() -> bool:
        for _ in range(3):
            await asyncio.sleep(0)
        return not consumer.adapter.answers

    writers.write(7, b"v" * 500)
    replicate(shelf, writers.write(-1, b"v" * 500))
    assert await is_parked(), "it is replicated, but not stable"
    marked = writers.end(7, commit=True)
    assert await is_parked()
    replicate(shelf, marked)
    part = parts_of(await consumer.answered())[ID, 0]
    assert (offsets(part), part.last_stable_offset) == ([1, 2, 3], 4)
    await shelf.close()


async def test_fewer_bytes_than_asked_for_are_no_reason_to_wake(tmp_path: Path) -> None:
    """Bytes beyond the last stable offset do not count."""
    shelf, writers = shelf_of(tmp_path)
    consumer = Consumer(shelf)
    consumer.send([wanted(ID, (0, 0))], max_wait_ms=200, min_bytes=300, **COMMITTED)
    writers.write(-1, b"v" * 100)
    writers.write(7, b"v" * 1000)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not consumer.adapter.answers
    part = parts_of(await consumer.answered())[ID, 0]
    assert (offsets(part), part.last_stable_offset, part.high_watermark) == ([0], 1, 2)
    await shelf.close()


async def test_a_session_rests_at_the_last_stable_offset(tmp_path: Path) -> None:
    shelf, writers = shelf_of(tmp_path)
    writers.write(-1, b"plain")
    writers.write(7, b"open")
    consumer = Consumer(shelf)
    session_id = consumer.fetch([wanted(ID, (0, 1))], session_epoch=0, **COMMITTED).session_id
    (session,) = shelf.handlers.sessions

    def poll(epoch: int, **fields: int) -> list[int]:
        answer = parts_of(consumer.fetch(session_id=session_id, session_epoch=epoch, **(COMMITTED | fields)))
        return [offset for part in answer.values() for offset in offsets(part)]

    assert poll(1) == []
    assert not session.active, "there is nothing to look for before the high watermark moves"
    assert poll(2, isolation_level=0) == [1]
    assert poll(3) == []
    assert not session.active
    writers.end(7, commit=True)
    assert poll(4) == [1, 2]
    await shelf.close()


@pytest.mark.parametrize("version", [4, 9, 11, 12, 13, 18])
@pytest.mark.parametrize("level", [0, 1])
async def test_repeated_requests_are_answered_alike(tmp_path: Path, version: int, level: int) -> None:
    """The short cut gives the bytes of the full path, independent of requests with the other isolation level."""
    shelf, writers = shelf_of(tmp_path)
    draw = random.Random(version)
    repeating = Consumer(shelf, version)

    def answer(consumer: Consumer, offset: int, isolation_level: int) -> bytes:
        by_id = version >= 13
        topic = wanted(ID if by_id else bytes(16), (0, offset), name="" if by_id else "t")
        consumer.send([topic], max_bytes=400, isolation_level=isolation_level)
        return consumer.adapter.answers.pop()

    for step in range(40):
        producer_id = draw.randrange(-1, 3)
        if producer_id >= 0 and step % 3 == 2:
            writers.end(producer_id, commit=draw.random() < 0.5)
        else:
            writers.write(producer_id, b"v" * draw.randrange(100))
        end = writers.partition.log.log_end_offset
        for offset in (draw.randrange(end), draw.randrange(end), end):
            for isolation_level in (level, level, 1 - level):
                expected = answer(Consumer(shelf, version), offset, isolation_level)
                assert answer(repeating, offset, isolation_level) == expected
    await shelf.close()


async def test_a_follower_bounds_it_by_its_own_high_watermark(tmp_path: Path) -> None:
    leader, writers = shelf_of(tmp_path / "leader")
    follower, _ = shelf_of(tmp_path / "follower")
    follower.tell(follower.state(ID, 0, leader=OTHER_ID, epoch=1, isr=[OTHER_ID, OWN_ID]))
    copy, original = follower.replica("t"), writers.partition
    writers.write(-1, b"plain")
    writers.write(7, b"aborted")
    writers.write(-1, b"behind it")
    writers.end(7, commit=False)
    piece = original.log.read(0, 1 << 20, 4, at_least_one=True)
    copy.following.append_fetched(memoryview(bytearray(piece.read())), 0, 0)
    piece.release()

    def seen() -> tuple[list[int], int, list[tuple[int, int]]]:
        part = read(follower, 0)
        return offsets(part), part.last_stable_offset, aborted(part)

    assert seen() == ([], 0, [])
    copy.following.append_fetched(None, 1, 0)
    assert seen() == ([0], 1, [])
    copy.following.append_fetched(None, 3, 0)
    assert seen() == ([0], 1, [])
    assert len(copy.log.producers.transactions.ended) == 1
    copy.following.append_fetched(None, 4, 0)
    assert not copy.log.producers.transactions.ended, "no reader needs it any more"
    assert seen() == ([0, 1, 2, 3], 4, [(7, 1)])
    await leader.close()
    await follower.close()


async def test_ended_transactions_are_forgotten_as_the_high_watermark_moves(tmp_path: Path) -> None:
    shelf, writers = shelf_of(tmp_path, followed=True)
    transactions = writers.partition.log.producers.transactions
    for number in range(5):
        writers.write(number, b"v")
    ends = [writers.end(number, commit=True) for number in reversed(range(5))]
    assert len(transactions.ended) == 1, "the others are hidden by the one that began first"
    for number in range(5):
        writers.write(number, b"v")
        ends.append(writers.end(number, commit=False))
    assert len(transactions.ended) == 6
    for count, end in zip((6, 6, 6, 6, 5, 4, 3, 2, 1, 0), ends, strict=True):
        replicate(shelf, end)
        assert len(transactions.ended) == count
    await shelf.close()


# ListOffsets


async def listed(shelf: Shelf, timestamp: int, level: int = 1, replica_id: int = -1) -> tuple[int, int]:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    message = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=level,
        topics=[ListOffsetsTopic(name="t", partitions=[part])],
    )
    request = cast(
        ClientRequest,
        SimpleNamespace(access=EVERYTHING, session=PeerSession(ANONYMOUS, "::1", "L"), api_version=11),
    )
    response = await ListOffsetsHandlers(shelf.replicas).list_offsets(request, message)
    (answer,) = response.topics[0].partitions
    return answer.error_code, answer.offset


async def test_the_latest_offset_is_the_last_stable_one(tmp_path: Path) -> None:
    shelf, writers = shelf_of(tmp_path, followed=True)
    writers.write(-1, b"plain", timestamp_ms=1000)
    writers.write(7, b"open", timestamp_ms=2000)
    writers.write(-1, b"behind it", timestamp_ms=3000)
    replicate(shelf, 3)
    writers.write(-1, b"not replicated", timestamp_ms=4000)

    async def found(level: int, replica_id: int = -1) -> list[int]:
        results = []
        for timestamp in (LATEST, MAX_TIMESTAMP, 1000, 1001, 2500, 4000):
            error, offset = await listed(shelf, timestamp, level, replica_id)
            assert error == 0
            results.append(offset)
        return results

    assert await found(1) == [1, -1, 0, -1, -1, -1], "whether the largest timestamp counts is not known yet"
    assert await found(0) == [3, 2, 0, 1, 2, -1]
    assert await found(1, replica_id=-2) == [4, 3, 0, 1, 2, 3], "a debugging client sees everything"
    marked = writers.end(7, commit=True)
    assert (await found(1))[0] == 1
    replicate(shelf, marked)
    latest, largest = (await found(1))[:2]
    assert latest == marked == 5
    assert largest >= 0
    await shelf.close()


async def test_a_transaction_that_is_open_for_long_does_not_keep_a_new_leader_from_answering(
    tmp_path: Path,
) -> None:
    shelf, writers = shelf_of(tmp_path)
    writers.write(7, b"open")
    writers.write(-1, b"behind it")
    shelf.tell(shelf.state(ID, 0, epoch=1, isr=[OWN_ID, OTHER_ID]))
    assert await listed(shelf, LATEST) == (0, 0), "below the start of the epoch, but replicated up to there"
    await shelf.close()


# Anything together


@pytest.mark.parametrize("seed", range(12))
async def test_a_consumer_sees_the_committed_records_in_order(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    shelf, writers = shelf_of(tmp_path, followed=True)
    log = writers.partition.log
    log.config = replace(log.config, segment_bytes=draw.choice((600, 3000)), index_interval_bytes=200)
    # Offset, value and writer of all records; what became of each writer's, in order of the markers.
    records: list[tuple[int, bytes, int]] = []
    outcomes: list[tuple[int, int, bool]] = []
    seen: list[bytes | None] = []
    position = epoch = 0
    session_id, consumer = 0, Consumer(shelf)

    def expected(stable: int) -> Sequence[bytes]:
        def counts(offset: int, producer_id: int) -> bool:
            ends = (commit for who, end, commit in outcomes if who == producer_id and end > offset)
            return producer_id < 0 or next(ends)

        return [value for offset, value, who in records if offset < stable and counts(offset, who)]

    for step in range(300):
        producer_id = draw.randrange(-1, 4)
        action = draw.random()
        if action < 0.5:
            values = [b"%d-%d" % (step, number) for number in range(draw.randrange(1, 4))]
            end = writers.write(producer_id, *values)
            records += [
                (end - len(values) + number, value, producer_id) for number, value in enumerate(values)
            ]
        elif action < 0.7 and producer_id >= 0:
            commit = draw.random() < 0.5
            outcomes.append((producer_id, writers.end(producer_id, commit=commit), commit))
        elif action < 0.85:
            replicate(shelf, draw.randint(writers.partition.high_watermark, log.log_end_offset))
        named = [wanted(ID, (0, position), partition_max_bytes=draw.choice((1, 200, 5000)))]
        answer = consumer.fetch(named, session_id=session_id, session_epoch=epoch, **COMMITTED)
        session_id, epoch = answer.session_id, epoch + 1
        for part in parts_of(answer).values():
            high_watermark = writers.partition.high_watermark
            assert (
                part.last_stable_offset
                == log.transactions.last_stable_offset(high_watermark)
                <= high_watermark
            )
            values, position = taken(part, position)
            seen += values
            assert position <= part.last_stable_offset
            assert all(first < part.last_stable_offset for _, first in aborted(part))
        assert seen == expected(position)
    assert len(log.segments) > 3
    await shelf.close()
