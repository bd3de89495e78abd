"""Batches of another cluster in the log of a copy: their offsets stay, and no existing batch is
ever removed for them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.copies import append_copied, end_at, look_for_marker
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import (
    NO_COMMIT_INDEX,
    ControlRecord,
    ControlType,
    encode_control_batch,
    read_control_record,
)
from ottla.protocol.records.record_batch import (
    check_integrity,
    parse_header,
    patch_offset_and_epoch,
    walk_batches,
)
from tests.dataplane.log.batches import make_batch

NOW = 1_000_000
TRANSACTIONAL = 0x10


def opened(folder: Path, *, clean: bool = True, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        folder, LogConfig(), clean_shutdown=clean, recovery_point=recovery_point, now_ms=NOW
    )


def spans(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Return the first and last offset of each batch, and its leader epoch."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
        data = piece.read()
        piece.release()
        if not data:
            break
        for _, header in walk_batches(data):
            found.append((header.base_offset, header.last_offset, header.partition_leader_epoch))
            offset = header.next_offset
    return found


def copied(log: PartitionLog, base_offset: int, count: int, *, epoch: int = 3, source_epoch: int = 9) -> None:
    batch = make_batch(count, base_offset=base_offset, leader_epoch=source_epoch)
    append_copied(log, memoryview(batch), epoch, NOW)


def test_offsets_stay_and_epochs_are_ours(tmp_path: Path) -> None:
    log = opened(tmp_path)
    copied(log, 0, 10)
    copied(log, 15, 5, epoch=4, source_epoch=2)
    assert spans(log) == [(0, 9, 3), (15, 19, 4)]
    assert log.leader_epochs.entries == ((3, 0), (4, 10))
    log.check()
    log.close(clean=False)
    again = opened(tmp_path, clean=False)
    assert spans(again) == [(0, 9, 3), (15, 19, 4)]


def test_the_same_offsets_do_not_come_again(tmp_path: Path) -> None:
    """Such a batch may come from a recreated topic, at the offset where the copy ends."""
    log = opened(tmp_path)
    copied(log, 0, 30)
    for base_offset, count in ((0, 40), (0, 10), (29, 1), (20, 20)):
        with pytest.raises(KafkaError) as refusal:
            copied(log, base_offset, count)
        assert refusal.value.code is ErrorCode.INVALID_RECORD
    assert spans(log) == [(0, 29, 3)]


def test_damaged_batches_are_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    batch = make_batch(5)
    batch[-1] ^= 1
    with pytest.raises(KafkaError) as refusal:
        append_copied(log, memoryview(batch), 0, NOW)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


def test_a_marker_has_no_place_among_our_decisions(tmp_path: Path) -> None:
    """Commit indexes rise along a log: one of another cluster would make later local ones look written."""
    log = opened(tmp_path)
    records = make_batch(2, leader_epoch=1, producer=(7, 0, 0), attributes=TRANSACTIONAL)
    marker = bytearray(
        encode_control_batch(
            ControlRecord(ControlType.COMMIT, 5, 4711), timestamp_ms=NOW, producer_id=7, producer_epoch=0
        )
    )
    patch_offset_and_epoch(marker, 0, 2, 1)
    append_copied(log, memoryview(records + marker), 0, NOW)
    assert not log.transactions.open
    assert log.producers.transactions.last_commit_index == NO_COMMIT_INDEX
    piece = log.read(2, 1 << 20, 3, at_least_one=True)
    data = piece.read()
    piece.release()
    header = parse_header(data)
    check_integrity(data, 0, header)
    record = read_control_record(data)
    assert record == ControlRecord(ControlType.COMMIT, 5, NO_COMMIT_INDEX)


def test_kafkas_markers_stay_as_they_are(tmp_path: Path) -> None:
    log = opened(tmp_path)
    marker = bytearray(
        encode_control_batch(
            ControlRecord(ControlType.ABORT, 5), timestamp_ms=NOW, producer_id=7, producer_epoch=0
        )
    )
    before = bytes(marker[21:])
    append_copied(log, memoryview(marker), 0, NOW)
    piece = log.read(0, 1 << 20, 1, at_least_one=True)
    assert bytes(piece.read())[21:] == before
    piece.release()


@pytest.mark.parametrize("clean", [True, False])
def test_the_log_goes_on_behind_a_gap_even_within_a_batch(tmp_path: Path, clean: bool) -> None:
    log = opened(tmp_path)
    copied(log, 0, 30)
    end_at(log, 50)
    assert log.log_end_offset == 50
    copied(log, 40, 20)  # the source's log starts at 50, within this batch
    copied(log, 60, 1)
    assert spans(log) == [(0, 29, 3), (40, 59, 3), (60, 60, 3)]
    log.check()
    log.close(clean=clean)
    assert spans(opened(tmp_path, clean=clean)) == [(0, 29, 3), (40, 59, 3), (60, 60, 3)]


def test_who_led_and_wrote_nothing_has_no_offsets_that_are_left_out(tmp_path: Path) -> None:
    """A follower at offset 50 has epoch 3: it would be asked to cut at 40, and go on at 50, for ever."""
    log = opened(tmp_path)
    copied(log, 0, 30)
    end_at(log, 40)
    log.leader_epochs.assign(4, 40)
    end_at(log, 50)
    log.leader_epochs.assign(5, 50)
    assert log.leader_epochs.end_offset_for(3, log.log_end_offset) == (3, 50)
    copied(log, 50, 1, epoch=5)
    assert log.leader_epochs.entries == ((3, 0), (5, 50))
    log.check()


def test_a_log_that_has_only_left_out_offsets_begins_before_them(tmp_path: Path) -> None:
    """The log's batches were cut off, and the source's log starts within a batch now."""
    log = opened(tmp_path)
    end_at(log, 100)
    copied(log, 105, 1)
    end_at(log, 105)
    assert (log.log_start_offset, log.log_end_offset) == (100, 105)
    copied(log, 90, 30)
    assert (log.log_start_offset, spans(log)) == (90, [(90, 119, 3)])
    log.check()
    log.close(clean=False)
    assert spans(opened(tmp_path, clean=False)) == [(90, 119, 3)]


def test_an_empty_log_begins_anywhere(tmp_path: Path) -> None:
    log = opened(tmp_path)
    end_at(log, 100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    copied(log, 90, 20)
    assert (log.log_start_offset, log.log_end_offset) == (90, 110)


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("copy"), st.integers(0, 12), st.integers(1, 8)),
            st.tuples(st.just("end"), st.integers(0, 60), st.just(0)),
        ),
        max_size=12,
    )
)
def test_it_is_a_list_of_batches(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    """The model appends batches after its end, and refuses all others; `end_at` cuts, or skips."""
    log = opened(tmp_path_factory.mktemp("copy"))
    batches: list[tuple[int, int]] = []
    end = 0
    for kind, number, count in steps:
        if kind == "copy":
            base = max(0, end + number - 4)
            is_free = not any(last >= base for _, last in batches)
            if base >= end or (base < end < base + count and is_free):
                copied(log, base, count)
                batches.append((base, base + count - 1))
                end = base + count
            else:
                with pytest.raises(KafkaError):
                    copied(log, base, count)
        else:
            end_at(log, number)
            cut = [batch for batch in batches if batch[1] < number]
            held = next((first for first, last in batches if first <= number <= last), number)
            end = min(held, number) if number < end else number
            batches = cut
        assert log.log_end_offset == end
        assert [(first, last) for first, last, _ in spans(log)] == [
            batch for batch in batches if batch[1] >= log.log_start_offset
        ]
        log.check()
    log.close(clean=True)


def marked(log: PartitionLog, base_offset: int) -> None:
    """Append a marker of the source."""
    marker = ControlRecord(ControlType.COMMIT, 1, 77)
    batch = bytearray(encode_control_batch(marker, timestamp_ms=NOW, producer_id=5, producer_epoch=0))
    patch_offset_and_epoch(batch, 0, base_offset, 9)
    append_copied(log, memoryview(batch), 3, NOW)


def first_marker_from(log: PartitionLog, offset: int, batches_max: int = 2) -> int | None:
    """Return the first marker from an offset on, searching a few batches at a time."""
    reached = offset
    while True:
        found, reached = look_for_marker(log, before := reached, batches_max)
        if found is not None or reached >= log.log_end_offset:
            return found
        assert reached > before


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
def test_the_first_marker_from_an_offset_on(tmp_path: Path, segment_bytes: int) -> None:
    """A promotion at a cut ends the log there: within a batch or a gap, and across segments."""
    config = LogConfig(segment_bytes=segment_bytes)
    log = PartitionLog.open(tmp_path, config, clean_shutdown=True, recovery_point=0, now_ms=NOW)
    assert first_marker_from(log, 0) is None
    copied(log, 0, 10)
    marked(log, 10)
    copied(log, 11, 9)
    copied(log, 30, 10)
    marked(log, 40)
    copied(log, 41, 3)
    assert [first_marker_from(log, offset) for offset in (0, 5, 10)] == [10, 10, 10]
    assert [first_marker_from(log, offset) for offset in (11, 25, 35, 40)] == [40] * 4
    assert [first_marker_from(log, offset) for offset in (41, 44, 99)] == [None] * 3
    end_at(log, 40)
    assert (log.log_end_offset, first_marker_from(log, 11)) == (40, None)
    log.check()
    log.close(clean=True)


def test_a_marker_below_the_log_start_is_none(tmp_path: Path) -> None:
    log = opened(tmp_path)
    copied(log, 0, 5)
    marked(log, 5)
    marked(log, 6)
    log.advance_log_start_offset(6)
    assert first_marker_from(log, 0) == 6
