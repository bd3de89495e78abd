"""The records of fetched batches that consumers see: positions, partial tails, control records,
aborted transactions.
"""

from __future__ import annotations

import random

import pytest

from ottla.client.consuming.fetched import FetchedRecords
from ottla.client.records import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import ControlRecord, ControlType, encode_batch, encode_control_batch
from ottla.protocol.records.record_batch import parse_header, patch_offset_and_epoch, patch_timestamp
from tests.protocol.record_codecs import record_codec_in_use as record_codec_in_use

HERE = TopicPartition("t", 3)


class LogBuilder:
    """A builder of batches at rising offsets, as a broker sends them."""

    def __init__(self, first_offset: int = 0) -> None:
        self.data = bytearray()
        self.next_offset = first_offset

    def add(self, *values: bytes, producer_id: int = -1, transactional: bool = False) -> LogBuilder:
        records = [(b"k", value, 1000 + index) for index, value in enumerate(values)]
        epoch, sequence = (0, 0) if producer_id >= 0 else (-1, -1)
        batch = encode_batch(
            records,
            compression=Compression.LZ4,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        return self._place(batch, len(values))

    def end(self, kind: ControlType, producer_id: int) -> LogBuilder:
        marker = ControlRecord(kind, 0)
        return self._place(
            encode_control_batch(marker, timestamp_ms=1, producer_id=producer_id, producer_epoch=0), 1
        )

    def _place(self, batch: bytes, count: int) -> LogBuilder:
        placed = bytearray(batch)
        patch_offset_and_epoch(placed, 0, self.next_offset, 7)
        self.data += placed
        self.next_offset += count
        return self


def fetched(
    log: LogBuilder, offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()
) -> tuple[FetchedRecords, list[ConsumerRecord]]:
    chunk = FetchedRecords(HERE, memoryview(bytes(log.data)), offset, aborted)
    return chunk, chunk.take(1000)


def test_records_carry_where_they_stand() -> None:
    _, records = fetched(LogBuilder(40).add(b"a", b"b"), 40)
    assert records == [
        ConsumerRecord("t", 3, 40, 1000, b"k", b"a", (), 7),
        ConsumerRecord("t", 3, 41, 1001, b"k", b"b", (), 7),
    ]


def test_reading_begins_in_the_middle_of_a_batch() -> None:
    chunk, records = fetched(LogBuilder().add(b"a", b"b", b"c").add(b"d"), 2)
    assert [record.value for record in records] == [b"c", b"d"]
    assert chunk.next_offset == chunk.end_offset == 4


def test_records_are_taken_in_portions() -> None:
    chunk = FetchedRecords(HERE, memoryview(bytes(LogBuilder().add(b"a", b"b", b"c").data)), 0)
    assert [record.value for record in chunk.take(2)] == [b"a", b"b"]
    assert chunk.next_offset == 2
    assert [record.value for record in chunk.take(2)] == [b"c"]
    assert chunk.take(2) == []


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    log = LogBuilder().add(b"a")
    size = len(log.data)
    log.add(b"b")
    for end in range(size, len(log.data)):
        chunk = FetchedRecords(HERE, memoryview(bytes(log.data[:end])), 0)
        assert chunk.end_offset == 1
        assert [record.value for record in chunk.take(10)] == [b"a"]


def test_a_flipped_bit_is_an_error_and_never_a_record() -> None:
    log = LogBuilder().add(b"a" * 100)
    log.data[-3] ^= 1
    chunk = FetchedRecords(HERE, memoryview(bytes(log.data)), 0)
    with pytest.raises(KafkaError) as caught:
        chunk.take(1)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_batch_is_not_passed_over() -> None:
    """Earlier records are taken first; then every attempt raises the error."""
    log = LogBuilder().add(b"a", b"b").add(b"c" * 100)
    log.data[-3] ^= 1
    log.add(b"d")
    chunk = FetchedRecords(HERE, memoryview(bytes(log.data)), 0)
    assert [record.value for record in chunk.take(10)] == [b"a", b"b"]
    for _ in range(2):
        with pytest.raises(KafkaError):
            chunk.take(10)
        assert chunk.next_offset == 2


def test_records_before_damage_within_a_batch_are_taken_first() -> None:
    batch = bytearray(encode_batch([(b"k", b"first", 1), (b"k", b"second", 2), (b"k", b"third", 3)]))
    batch[batch.index(b"third") - 1] = 0xFF
    batch += LogBuilder(3).add(b"d").data
    chunk = FetchedRecords(HERE, memoryview(bytes(batch)), 1, check_crcs=False)
    assert [(record.offset, record.value) for record in chunk.take(10)] == [(1, b"second")]
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            chunk.take(10)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
        assert chunk.next_offset == 2


def test_records_of_a_topic_with_log_append_time_have_the_time_of_their_batch() -> None:
    batch = bytearray(encode_batch([(None, b"a", 5), (None, b"b", 6)]))
    patch_timestamp(batch, 0, parse_header(batch), log_append_time=True, max_timestamp_ms=900)
    records = FetchedRecords(HERE, memoryview(bytes(batch)), 0).take(10)
    assert [(record.timestamp_ms, record.timestamp_type) for record in records] == [
        (900, LOG_APPEND_TIME)
    ] * 2
    _, records = fetched(LogBuilder().add(b"a"))
    assert records[0].timestamp_type == CREATE_TIME


def test_markers_are_skipped_and_the_position_passes_them() -> None:
    log = LogBuilder().add(b"a", producer_id=5, transactional=True).end(ControlType.COMMIT, 5)
    chunk, records = fetched(log)
    assert [record.value for record in records] == [b"a"]
    assert chunk.next_offset == 2


def test_records_of_aborted_transactions_are_left_out() -> None:
    log = (
        LogBuilder()
        .add(b"plain")
        .add(b"lost 1", b"lost 2", producer_id=5, transactional=True)
        .add(b"kept 1", producer_id=6, transactional=True)
        .end(ControlType.ABORT, 5)
        .add(b"kept 2", producer_id=5, transactional=True)
        .end(ControlType.COMMIT, 6)
        .end(ControlType.COMMIT, 5)
        .add(b"lost 3", producer_id=6, transactional=True)
        .end(ControlType.ABORT, 6)
    )
    _, records = fetched(log, aborted=((6, 8), (5, 1)))
    assert [record.value for record in records] == [b"plain", b"kept 1", b"kept 2"]


def test_what_is_passed_over_ends_transactions_all_the_same() -> None:
    """A consumer that goes on after a large message skipped the marker of an aborted transaction, and the same
    producer's next transaction was left out.
    """
    log = LogBuilder().add(b"no", producer_id=1, transactional=True).end(ControlType.ABORT, 1)
    log.add(b"yes", producer_id=1, transactional=True).end(ControlType.COMMIT, 1)
    chunk = FetchedRecords(HERE, memoryview(bytes(log.data)), 0, ((1, 0),))
    chunk.skip_to(2)
    assert [record.value for record in chunk.take(1000)] == [b"yes"]


def test_read_uncommitted_sees_everything_but_markers() -> None:
    log = LogBuilder().add(b"lost", producer_id=5, transactional=True).end(ControlType.ABORT, 5)
    _, records = fetched(log)
    assert [record.value for record in records] == [b"lost"]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_seen_is_what_was_committed_wherever_reading_begins(seed: int) -> None:
    """The model lists every record's fate; the broker lists transactions aborted at or after the fetch offset."""
    chance = random.Random(seed)
    log = LogBuilder()
    open_at: dict[int, int] = {}  # producer id -> first offset
    written: dict[int, list[int]] = {}  # producer id -> offsets in its open transaction
    fate: dict[int, bool] = {}
    aborted: list[tuple[int, int, int]] = []  # producer id, first offset, offset of the marker
    for _ in range(60):
        choice, producer_id = chance.random(), chance.randrange(3)
        here, count = log.next_offset, chance.randrange(1, 4)
        if choice < 0.2:
            log.add(*[b"x"] * count)
            fate |= dict.fromkeys(range(here, here + count), True)
        elif choice < 0.7:
            log.add(*[b"x"] * count, producer_id=producer_id, transactional=True)
            open_at.setdefault(producer_id, here)
            written.setdefault(producer_id, []).extend(range(here, here + count))
        elif producer_id in open_at:
            commits = chance.random() < 0.5
            log.end(ControlType.COMMIT if commits else ControlType.ABORT, producer_id)
            first = open_at.pop(producer_id)
            fate |= dict.fromkeys(written.pop(producer_id), commits)
            if not commits:
                aborted.append((producer_id, first, here))
    for producer_id in sorted(open_at):  # all is stable: nothing is left open
        log.end(ControlType.COMMIT, producer_id)
        fate |= dict.fromkeys(written[producer_id], True)
    for offset in range(log.next_offset):
        listed = [(producer_id, first) for producer_id, first, marker in aborted if marker >= offset]
        chance.shuffle(listed)
        chunk, records = fetched(log, offset, tuple(listed))
        assert [record.offset for record in records] == [
            at for at in sorted(fate) if fate[at] and at >= offset
        ]
        assert chunk.next_offset == log.next_offset
