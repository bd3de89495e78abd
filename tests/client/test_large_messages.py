"""Large messages split and reassembled: compared with a model, with every kind of cut, loss and repetition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.consuming.assigned import AssignedPartition
from ottla.client.consuming.fetched import FetchedRecords
from ottla.client.consuming.fetcher import Fetcher
from ottla.client.consuming.inbox import Inbox
from ottla.client.consuming.large_messages.assembly import (
    MESSAGE_OVERHEAD,
    REMEMBERED,
    Assembly,
    AssemblyOptions,
    GivenUp,
    LargeMessageStats,
)
from ottla.client.consuming.large_messages.places import given_before, place
from ottla.client.producing.deliveries import BatchResult, RecordDelivery
from ottla.client.producing.large_messages.split_message import SplitMessage
from ottla.client.producing.large_messages.splitter import Splitter
from ottla.client.producing.pending import PendingRecord
from ottla.client.producing.record_metadata import RecordMetadata
from ottla.client.records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ottla.client.segment_header import SEGMENT_HEADER, SegmentHeader, read_segment, segment_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import encode_batch
from ottla.protocol.records.record_batch import patch_offset_and_epoch

HERE = TopicPartition("t", 0)
THERE = TopicPartition("t", 1)
LOTS = AssemblyOptions(1 << 30, 1 << 30)
SEGMENT_BYTES = 4
SPLITTER = Splitter(SEGMENT_BYTES, 1 << 20, 1 << 20)


def message(number: int, segments: int) -> PendingRecord:
    """Return a message of `segments` segments; with one segment it is a plain record."""
    value = (b"%08d" % number * segments)[: SEGMENT_BYTES * (segments - 1) + 1]
    return b"k%d" % number, value, 1_000 + number, (("h", b"%d" % number),)


def parts(number: int, segments: int) -> list[PendingRecord]:
    made = message(number, segments)
    return list(SPLITTER.split(made, b"%016d" % number)) if SPLITTER.splits(made) else [made]


def as_read(
    records: list[PendingRecord], where: TopicPartition = HERE, first: int = 0
) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(*where, first + index, stamp, key, value, headers, 7)
        for index, (key, value, stamp, headers) in enumerate(records)
    ]


class Reader:
    """A consumer's work around an assembly, with a log in place of a cluster."""

    def __init__(
        self, log: list[PendingRecord], found: OffsetAndMetadata, options: AssemblyOptions = LOTS
    ) -> None:
        self.stats = LargeMessageStats()
        self.given_up: list[GivenUp] = []
        self.state = AssignedPartition(HERE)
        fetcher = SimpleNamespace(assigned={HERE: self.state}, changed=lambda: None)
        self.inbox = Inbox(cast(Fetcher, fetcher), Assembly(options, self.stats, self.given_up.append))
        self.inbox.reassigned()
        self.inbox.resume(self.state, found)
        self._log = log

    def fetch(self, batches: int) -> None:
        """Fetch the next batches, of two records each."""
        for _ in range(batches):
            start = self.state.fetch_offset
            some = self._log[start : start + 2]
            if some:
                batch = bytearray(encode_batch(some))
                patch_offset_and_epoch(batch, 0, start, 7)
                self.state.buffer.append(FetchedRecords(HERE, memoryview(batch), start))
                self.state.fetch_offset += len(some)

    def take(self, limit: int = 1_000) -> list[ConsumerRecord]:
        return self.inbox.take(set(), limit).get(HERE, [])

    def committable(self, offset: int | None = None) -> OffsetAndMetadata:
        return self.inbox.committable(HERE, self.inbox.positions()[HERE] if offset is None else offset)

    def seek(self, offset: int) -> None:
        self.inbox.resume(self.state, self.committable(offset))
        self.inbox.forget([HERE])

    def rest(self) -> list[ConsumerRecord]:
        self.fetch(len(self._log))
        return self.take()


class Drawn(NamedTuple):
    log: list[PendingRecord]
    expected: list[tuple[int, PendingRecord]]
    """Offsets, each with the message that must be given out there."""
    unfinished: int


@st.composite
def logs(draw: st.DrawFn, wholly_repeated: bool = True) -> Drawn:
    """Draw the concurrent writes of some producers; some die, some repeat uncertain writes."""
    waiting: list[Iterator[tuple[PendingRecord, PendingRecord | None]]] = []
    unfinished = 0
    for number in range(draw(st.integers(1, 6))):
        segments = draw(st.integers(1, 6))
        written = parts(number, segments)
        lines: list[tuple[PendingRecord, PendingRecord | None]] = [(record, None) for record in written]
        lines[-1] = (written[-1], message(number, segments))
        if segments > 1 and draw(st.booleans()):
            repeated = draw(st.integers(1, segments if wholly_repeated else segments - 1))
            lines[repeated:repeated] = [(record, None) for record in written[:repeated]]
        if segments > 1 and draw(st.integers(0, 3)) == 0:
            cut = draw(st.integers(1, len(lines) - 1))
            unfinished += all(whole is None for _, whole in lines[:cut])
            lines = lines[:cut]
        waiting.append(iter(lines))
    log: list[PendingRecord] = []
    expected: list[tuple[int, PendingRecord]] = []
    while waiting:
        producer = draw(st.sampled_from(waiting))
        for record, whole in producer:
            if whole is not None:
                expected.append((len(log), whole))
            log.append(record)
            break
        else:
            waiting.remove(producer)
    return Drawn(log, expected, unfinished)


def shape(records: list[ConsumerRecord]) -> list[tuple[int, PendingRecord]]:
    return [
        (record.offset, (record.key, record.value, record.timestamp_ms, tuple(record.headers)))
        for record in records
    ]


@given(logs(), st.lists(st.integers(1, 3), min_size=1))
def test_each_message_comes_once_and_whole_at_the_offset_of_its_last_segment(
    drawn: Drawn, steps: list[int]
) -> None:
    reader = Reader(drawn.log, OffsetAndMetadata(0))
    found: list[ConsumerRecord] = []
    for step in steps:
        reader.fetch(step)
        found += reader.take(step)
    found += [*reader.rest(), *reader.rest()]
    assert shape(found) == drawn.expected
    assert all(record.leader_epoch == 7 for record in found)
    large = sum(len(value or b"") > SEGMENT_BYTES for _, (_, value, _, _) in drawn.expected)
    assert reader.stats.assembled == large
    assert (reader.stats.buffered_bytes > 0) == (drawn.unfinished > 0)
    assert not reader.given_up


@given(logs(wholly_repeated=False), st.data())
def test_whoever_goes_on_at_what_was_committable_gets_everything_else_once(drawn: Drawn, data: Any) -> None:
    """Reading stops anywhere, with unseen records, and goes on in a new consumer, repeatedly.

    The new consumer cannot know its predecessor's state: a message that was written twice as a whole may come twice,
    like any record.
    """
    found: list[ConsumerRecord] = []
    committed = OffsetAndMetadata(0)
    for _ in range(4):
        reader, limit = Reader(drawn.log, committed), data.draw(st.integers(1, 5))
        for _ in range(data.draw(st.integers(0, 3))):
            reader.fetch(data.draw(st.integers(1, 2)))
            # A refill takes all unread and following records.
            reader.inbox.unread.add(reader.take(limit))
            for _ in range(data.draw(st.integers(0, 4))):
                if (record := reader.inbox.unread.take()) is not None:
                    found.append(record)
                    committed = reader.committable(record.offset + 1)
        if data.draw(st.booleans()):  # as when the partition goes to another member
            reader.inbox.hold([HERE])
        position = reader.committable()
        assert given_before(position) >= given_before(committed)
        committed = position
    found += Reader(drawn.log, committed).rest()
    assert shape(found) == drawn.expected


@given(logs(), st.data())
def test_a_record_that_was_given_is_given_again_after_a_seek(drawn: Drawn, data: Any) -> None:
    reader = Reader(drawn.log, OffsetAndMetadata(0))
    reader.fetch(data.draw(st.integers(0, 10)))
    for _ in range(3):
        given_out = [*reader.take(data.draw(st.integers(1, 9))), *reader.take(data.draw(st.integers(1, 9)))]
        if given_out:
            again = data.draw(st.sampled_from(given_out)).offset
            reader.seek(again)
            assert shape(reader.rest()) == [entry for entry in drawn.expected if entry[0] >= again]
            reader.seek(again)
            reader.fetch(data.draw(st.integers(0, 10)))


@given(logs(), st.integers(MESSAGE_OVERHEAD + 4, 4 * MESSAGE_OVERHEAD), st.integers(1, 20))
def test_no_more_is_kept_than_allowed_and_what_is_given_up_is_counted(
    drawn: Drawn, buffer_bytes: int, expiry: int
) -> None:
    stats, given_up = LargeMessageStats(), list[GivenUp]()
    assembly = Assembly(AssemblyOptions(buffer_bytes, expiry), stats, given_up.append)
    found: list[ConsumerRecord] = []
    for record in as_read(drawn.log):
        whole, damage = assembly.take_in(HERE, [record])
        assert damage is None
        assert stats.buffered_bytes <= buffer_bytes
        found += whole
        held = assembly.start_of(HERE, record.offset + 1, record.offset + 1)
        assert record.offset + 1 - held <= expiry + 1
    assembly.finish()
    assert stats.buffered_bytes == 0
    assert set(shape(found)) <= set(drawn.expected)
    plain = sum(len(value or b"") <= SEGMENT_BYTES for _, (_, value, _, _) in drawn.expected)
    assert len(found) == plain + stats.assembled
    assert stats.evicted + stats.expired + stats.incomplete == len(given_up)
    assert stats.assembled + len(given_up) == len(drawn.expected) - plain + drawn.unfinished


@given(logs(), st.integers(0, 30))
def test_who_begins_in_the_middle_gets_what_begins_later_and_hears_of_the_rest(
    drawn: Drawn, start: int
) -> None:
    firsts: dict[bytes, int] = {}
    for offset, (_, _, _, headers) in enumerate(drawn.log):
        if (
            (content := segment_of(headers)) is not None
            and offset >= start
            and read_segment(content).number == 0
        ):
            firsts.setdefault(read_segment(content).message_id, offset)
    reader = Reader(drawn.log, OffsetAndMetadata(start))
    found = shape(reader.rest())
    whole = {b"%016d" % (record[2] - 1_000) for _, record in found if len(record[1] or b"") > SEGMENT_BYTES}
    assert whole <= firsts.keys()
    assert {entry for entry in found if len(entry[1][1] or b"") <= SEGMENT_BYTES} == {
        entry for entry in drawn.expected if entry[0] >= start and len(entry[1][1] or b"") <= SEGMENT_BYTES
    }
    assert reader.stats.incomplete == len(reader.given_up)


def test_an_old_message_is_given_up_before_a_young_one_of_any_partition() -> None:
    stats, given_up = LargeMessageStats(), list[GivenUp]()
    assembly = Assembly(AssemblyOptions(2 * MESSAGE_OVERHEAD + 16, 1_000), stats, given_up.append)
    old, young, youngest = parts(1, 3), parts(2, 3), parts(3, 3)
    assembly.take_in(HERE, as_read(old[:2]))
    assembly.take_in(THERE, as_read(young[:2], THERE, 50))
    assert not given_up
    assembly.take_in(THERE, as_read(youngest[:1], THERE, 52))
    assert [(message.partition, message.first_offset, message.last_offset) for message in given_up] == [
        (HERE, 0, 1)
    ]
    assert assembly.take_in(HERE, as_read(old[2:], first=2)) == ([], None)
    assert (stats.evicted, stats.incomplete) == (1, 0), "it is counted once"
    whole, _ = assembly.take_in(THERE, as_read([young[2], *youngest[1:]], THERE, 53))
    assert [record.offset for record in whole] == [53, 55]


def test_what_is_larger_than_the_buffer_is_passed_over_and_counted() -> None:
    reader = Reader([*parts(1, 300), *parts(2, 1)], OffsetAndMetadata(0), AssemblyOptions(600, 10_000))
    assert [record.key for record in reader.rest()] == [b"k2"]
    assert (reader.stats.evicted, reader.stats.buffered_bytes) == (1, 0)
    assert "large_message_buffer_bytes" in reader.given_up[0].reason
    assert reader.committable() == OffsetAndMetadata(301), "the dropped message holds nothing up"


def test_an_end_that_never_comes_holds_offsets_up_only_for_so_long() -> None:
    plain = [part for number in range(2, 12) for part in parts(number, 1)]
    reader = Reader([*parts(1, 3)[:2], *plain], OffsetAndMetadata(0), AssemblyOptions(10_000, 8))
    reader.fetch(4)
    assert len(reader.take()) == 6
    assert reader.committable() == OffsetAndMetadata(0, "ottla-given-before:8")
    assert len(reader.rest()) == 4
    assert reader.committable() == OffsetAndMetadata(12)
    assert reader.stats.expired == 1


def test_segments_that_are_missing_in_the_middle() -> None:
    first, _, third, last = parts(1, 4)
    reader = Reader([first, third, last, *parts(2, 2)], OffsetAndMetadata(0))
    assert [record.key for record in reader.rest()] == [b"k2"]
    assert reader.stats.incomplete == 1


def damaged(kind: str) -> list[PendingRecord]:
    written = parts(1, 3)
    key, value, stamp, ((name, content), *rest) = written[1]
    header = read_segment(content)
    if kind == "value":
        written[1] = key, b"0" * len(value or b""), stamp, ((name, content), *rest)
    elif kind == "shorter":
        written[1] = key, b"0", stamp, ((name, content), *rest)
    elif kind == "longer":
        written[1] = key, b"0" * 100, stamp, ((name, content), *rest)
    elif kind == "another announcement":
        written[1] = key, value, stamp, ((name, header._replace(crc=header.crc ^ 1).encoded()), *rest)
    else:
        written[1] = key, value, stamp, ((name, b"nonsense"), *rest)
    return written


@pytest.mark.parametrize("kind", ["value", "shorter", "longer", "another announcement", "header"])
def test_damage_is_told_of_where_it_lies_until_one_seeks_past_it(kind: str) -> None:
    log = [*parts(7, 1), *damaged(kind), *parts(8, 2), *parts(9, 1)]
    reader = Reader(log, OffsetAndMetadata(0))
    reader.fetch(10)
    assert [record.key for record in reader.take()] == [b"k7"], "earlier records are given out"
    for _ in range(3):
        reader.fetch(10)
        with pytest.raises(KafkaError, match=r"t-0, offsets? .*seek to [34]") as raised:
            reader.take()
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
        assert reader.committable().offset <= 1
    reader.seek(4)
    assert [record.key for record in reader.rest()] == [b"k8", b"k9"]
    assert reader.committable() == OffsetAndMetadata(len(log))


def test_a_batch_that_is_damaged_does_not_cost_what_lies_across_it() -> None:
    log = [*parts(1, 4), *parts(2, 1)]
    reader = Reader(log, OffsetAndMetadata(0))
    reader.fetch(1)
    assert reader.take() == []
    torn = bytearray(encode_batch(log[2:4]))
    patch_offset_and_epoch(torn, 0, 2, 7)
    torn[-1] ^= 1
    reader.state.buffer.append(FetchedRecords(HERE, memoryview(torn), 2))
    with pytest.raises(KafkaError):
        reader.take()
    assert [record.key for record in reader.rest()] == [b"k1", b"k2"]


def test_without_an_assembly_segments_are_records() -> None:
    reader = Reader(parts(1, 3), OffsetAndMetadata(0))
    fetcher = SimpleNamespace(assigned={HERE: reader.state}, changed=lambda: None)
    reader.inbox = Inbox(cast(Fetcher, fetcher), None)
    reader.inbox.reassigned()
    reader.inbox.resume(reader.state, OffsetAndMetadata(1, "ottla-given-before:3"))
    assert [record.offset for record in reader.rest()] == [1, 2]
    assert reader.committable(2) == OffsetAndMetadata(2)


def test_places_of_many_messages_are_remembered_as_long_as_they_are_unread() -> None:
    count = 3 * REMEMBERED
    log = [part for number in range(count) for part in parts(number, 2)]
    reader = Reader(log, OffsetAndMetadata(0))
    reader.fetch(count)
    reader.inbox.unread.add(reader.take(count // 2))
    reader.inbox.unread.add(reader.take(count))
    assert reader.committable().offset == 0
    while reader.inbox.unread.take() is not None:
        pass
    assert reader.take() == []
    assert reader.committable() == OffsetAndMetadata(2 * count)


@given(st.binary(max_size=60))
def test_a_header_is_read_as_it_was_written_or_refused(content: bytes) -> None:
    try:
        segment = read_segment(content)
    except ValueError:
        return
    assert segment.encoded() == content
    assert 0 <= segment.number < segment.segments <= segment.value_bytes


@pytest.mark.parametrize(
    ("segment", "why"),
    [
        (SegmentHeader(b"i" * 16, 0, 1, 9, 0), "segment 0 of 1"),
        (SegmentHeader(b"i" * 16, 2, 2, 9, 0), "segment 2 of 2"),
        (SegmentHeader(b"i" * 16, 0, 4_000_000_000, 9, 0), "9 bytes"),
    ],
)
def test_headers_that_make_no_sense_are_refused(segment: SegmentHeader, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_segment(segment.encoded())
    with pytest.raises(ValueError, match="version 2"):
        read_segment(b"\2" + segment.encoded()[1:])
    with pytest.raises(ValueError, match="no bytes"):
        read_segment(None)


@given(st.binary(min_size=5, max_size=200), st.integers(1, 4))
def test_a_value_is_split_and_nothing_else(value: bytes, segment_bytes: int) -> None:
    record: PendingRecord = (b"key", value, 5, (("a", b"1"), ("b", None)))
    segments = list(Splitter(segment_bytes, 200, 1_000).split(record, b"i" * 16))
    assert b"".join(segment[1] or b"" for segment in segments) == value
    assert all(0 < len(segment[1] or b"") <= segment_bytes and segment[2] == 5 for segment in segments)
    assert [segment[0] for segment in segments].count(b"key") == 1
    assert segments[-1][0] == b"key"
    assert len({segment[0] for segment in segments}) == len(segments), (
        "compaction must not take one for another's successor"
    )
    assert [headers[1:] for _, _, _, headers in segments[:-1]] == [()] * (len(segments) - 1)
    assert segments[-1][3][1:] == record[3]
    assert {segment[3][0][0] for segment in segments} == {SEGMENT_HEADER}


def test_limits_of_the_splitter() -> None:
    with pytest.raises(ValueError, match="large_message_segment_size is 1 to 899"):
        Splitter(900, 5_000, 1_000)
    with pytest.raises(ValueError, match="at least large_message_segment_size"):
        Splitter(100, 99, 1_000)
    splitter = Splitter(800, 5_000, 1_000)
    splitter.check((None, b"x" * 5_000, 0, ()))
    with pytest.raises(KafkaError, match="large_message_max_size is 5000") as refused:
        splitter.check((None, b"x" * 5_001, 0, ()))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError, match="key and headers") as refused:
        splitter.check((b"k" * 500, b"x" * 1_600, 0, ()))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_a_message_stands_where_its_last_segment_does_or_has_failed_with_the_first() -> None:
    def result() -> BatchResult:
        return BatchResult(asyncio.get_running_loop(), "t", 0)

    def sent() -> tuple[SplitMessage, RecordDelivery, list[BatchResult]]:
        """Return a message of three segments in two batches, the first of which has another record before."""
        message, batches = SplitMessage(result(), 3), [result(), result()]
        for batch, index in ((0, 1), (0, 2), (1, 0)):
            message.follow(RecordDelivery(batches[batch], index, 1))
        return message, RecordDelivery(message.result, 0, 5), batches

    _, delivery, batches = sent()
    batches[1].acknowledged(20, -1)
    assert not delivery.done()
    batches[0].acknowledged(7, -1)
    assert delivery.result() == RecordMetadata("t", 0, 20, 5)

    failure = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late")
    _, delivery, batches = sent()
    batches[0].failed(failure)
    assert delivery.exception() is failure
    batches[1].acknowledged(20, -1)
    assert delivery.exception() is failure


@settings(max_examples=200)
@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.text(max_size=40))
def test_what_others_note_with_an_offset_is_not_misread(start: int, offset: int, metadata: str) -> None:
    assert given_before(place(start, offset)) == max(start, offset)
    if not metadata.startswith("ottla-given-before:"):
        assert given_before(OffsetAndMetadata(start, metadata)) == start
    assert given_before(OffsetAndMetadata(start, "ottla-given-before:" + metadata + "x")) == start
