"""Logs with left-out offsets: an unflushed segment's loss is detected, and no gap is mistaken for a loss."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.durability import Durability
from ottla.dataplane.log.segments import segment_list
from ottla.dataplane.log.segments.segment_list import SegmentList
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.log.batches import make_batch

NOW = 10_000
CONFIG = LogConfig(segment_bytes=300)


def reopened(folder: Path, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(folder, CONFIG, clean_shutdown=False, recovery_point=recovery_point, now_ms=NOW)


def fetched(log: PartitionLog, offset: int) -> None:
    """Append one record as the leader of a compacted log sends it: some offsets before it may be missing."""
    log.append_as_follower(memoryview(make_batch(1, b"p" * 40, base_offset=offset)), NOW)


def offsets(log: PartitionLog) -> list[int]:
    found: list[int] = []
    for segment in log.segments:
        found += [header.base_offset for _, header in segment.walk(0, segment.base_offset)]
    return found


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_what_stands_behind_a_loss_goes(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Power fails without any flush.

    A middle segment has lost its last batches, or all; later segments are complete, so an unchecked log would hide the
    loss.
    """
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("lost") / "t-0"
    log, offset = reopened(folder), 0
    for _ in range(chance.randint(6, 20)):
        offset += chance.choice((0, 0, 1, 5))
        fetched(log, offset)
        offset += 1
    written = offsets(log)
    hit = chance.choice(log.segments[:-1])
    starts = [position for position, _ in hit.walk(0, hit.base_offset)]
    kept = chance.randrange(len(starts))
    before = sum(
        len(list(segment.walk(0, segment.base_offset)))
        for segment in log.segments
        if segment.base_offset < hit.base_offset
    )
    log.close(clean=False)
    os.truncate(hit.path, starts[kept])
    log = reopened(folder)
    assert offsets(log) == written[: before + kept]
    for offset in written[before + kept :]:  # The leader sends them again.
        fetched(log, offset)
    assert offsets(log) == written
    log.close(clean=False)


def leaves_out(log: PartitionLog) -> None:
    log.truncation.leave_out_to(7)


def is_cut_in_a_gap(log: PartitionLog) -> None:
    """Cut the log in a gap: it ends at offset 7, though its last record has offset 0."""
    fetched(log, 9)
    log.truncation.truncate_to(7)


@pytest.mark.parametrize("next_offset", [7, 8])
@pytest.mark.parametrize("happens", [leaves_out, is_cut_in_a_gap])
def test_what_is_left_out_between_segments_is_no_loss(
    tmp_path: Path, happens: Callable[[PartitionLog], None], next_offset: int
) -> None:
    log = reopened(tmp_path / "t-0")
    fetched(log, 0)
    happens(log)
    assert log.log_end_offset == 7
    fetched(log, next_offset)
    log.close(clean=False)
    log = reopened(tmp_path / "t-0")
    assert (offsets(log), log.log_end_offset) == ([0, next_offset], next_offset + 1)
    log.close(clean=False)


class Crash(Exception):
    """The end of the process."""


@contextmanager
def crashing(steps: int) -> Iterator[None]:
    """Crash after a number of steps of a moving log end, if there are as many."""
    left = steps

    def step() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Crash

    with ExitStack() as stack:
        for owner, name in (
            (segment_list, "note_gap"),
            (segment_list, "forget_gaps"),
            (SegmentList, "cut"),
            (SegmentList, "start_segment"),
            (Durability, "sync_cut"),
        ):
            real = getattr(owner, name)

            def done(*arguments: Any, real: Callable[..., None] = real) -> None:
                step()
                real(*arguments)

            stack.enter_context(patch.object(owner, name, done))
        with suppress(Crash):
            yield


def test_a_crash_in_a_gap_leaves_the_end_before_or_the_one_to_be(tmp_path: Path) -> None:
    """After a cut at 7 the log does not end at 1: an in-sync replica has acknowledged all offsets before 7, even empty
    ones.
    """
    ends = []
    for steps in range(8):
        log = reopened(tmp_path / f"t-{steps}")
        fetched(log, 0)
        fetched(log, 9)
        with crashing(steps):
            log.truncation.truncate_to(7)
        log.close(clean=False)
        log = reopened(tmp_path / f"t-{steps}")
        assert offsets(log) == ([0, 9] if log.log_end_offset == 10 else [0])
        log.check()
        ends.append(log.log_end_offset)
        fetched(log, ends[-1])
        log.close(clean=False)
    assert ends == sorted(ends, reverse=True)
    assert set(ends) == {7, 10}


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whenever_the_process_dies_nothing_is_lost_but_what_was_to_go(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """The model appends records, leaves offsets out, cuts the log anywhere, and may stop after each step."""
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("ends") / "t-0"
    log = reopened(folder)
    for _ in range(chance.randint(3, 15)):
        had, end = offsets(log), log.log_end_offset
        match chance.choice(("fetch", "fetch", "leave out", "cut", "cut")):
            case "fetch":
                least = end + chance.choice((0, 0, 1, 5))
                fetched(log, least)
                had.append(least)
                kept, least = had, least + 1
            case "leave out":
                kept, least = had, end
                with crashing(chance.randint(0, 3)):
                    log.truncation.leave_out_to(end + chance.choice((1, 4)))
            case "cut":
                least = chance.randint(0, end)
                kept = [offset for offset in had if offset < least]
                with crashing(chance.randint(0, 6)):
                    log.truncation.truncate_to(least)
        log.close(clean=False)
        log = reopened(folder)
        log.check()
        found = offsets(log)
        assert kept == found[: len(kept)]
        assert found == had[: len(found)]
        assert log.log_end_offset >= max(least, found[-1] + 1 if found else 0)
    log.close(clean=False)


def test_a_gap_that_was_cut_off_is_none_any_more(tmp_path: Path) -> None:
    """New records at these offsets may be lost in a crash, and are not left out then."""
    log = reopened(tmp_path / "t-0")
    for offset in (0, 1, 2):
        fetched(log, offset)
    log.truncation.leave_out_to(7)
    log.truncation.truncate_to(1)
    for offset in (1, 2, 3):
        fetched(log, offset)
    active = log.segments[-1]
    starts = {header.base_offset: position for position, header in active.walk(0, active.base_offset)}
    log.close(clean=False)
    os.truncate(active.path, starts[3])
    log = reopened(tmp_path / "t-0")
    assert (offsets(log), log.log_end_offset) == ([0, 1, 2], 3)
    log.close(clean=False)


def test_a_gap_that_only_its_segment_tells_of_is_believed(tmp_path: Path) -> None:
    """Earlier versions wrote the file so."""
    log = reopened(tmp_path / "t-0")
    fetched(log, 0)
    leaves_out(log)
    fetched(log, 7)
    log.close(clean=False)
    (tmp_path / "t-0" / "offset-gaps").write_text("7\n")
    log = reopened(tmp_path / "t-0")
    assert (offsets(log), log.log_end_offset) == ([0, 7], 8)
    log.truncation.leave_out_to(20)
    log.close(clean=False)
    assert (tmp_path / "t-0" / "offset-gaps").read_text() == "7\n20 8\n"


@pytest.mark.parametrize("rotted", [b"7x", b"\xff7\n", b"7\n\n", b"7 1 1\n"])
def test_a_list_of_gaps_that_rotted_is_damage_of_this_log_alone(tmp_path: Path, rotted: bytes) -> None:
    log = reopened(tmp_path / "t-0")
    fetched(log, 0)
    leaves_out(log)
    log.close(clean=False)
    (tmp_path / "t-0" / "offset-gaps").write_bytes(rotted)
    with pytest.raises(KafkaError, match="offset-gaps is damaged") as raised:
        reopened(tmp_path / "t-0")
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_below_the_recovery_point_a_gap_is_believed(tmp_path: Path) -> None:
    """Flushed records are not removed: older versions left such gaps between compacted segments."""
    log = reopened(tmp_path / "t-0")
    for offset in (0, 1, 5, 6, 7, 8, 9, 10):
        fetched(log, offset)
    first, second = log.segments[:2]
    end = log.flush()
    kept = [position for position, _ in first.walk(0, 0)]
    written = offsets(log)
    lost = len(kept) - 1
    log.close(clean=False)
    os.truncate(first.path, kept[-1])
    log = reopened(tmp_path / "t-0", recovery_point=end)
    assert second.base_offset in [segment.base_offset for segment in log.segments]
    assert offsets(log) == written[:lost] + written[lost + 1 :]
    log.close(clean=False)


@pytest.mark.parametrize(
    ("hit", "byte", "flushed"),
    [
        (0, 0, False),
        (0, 3, False),
        (0, 4, False),
        (-1, 0, False),
        (-1, 3, False),
        (-1, 0, True),
        (-1, 3, True),
    ],
)
def test_an_offset_that_rotted_is_damage(tmp_path: Path, hit: int, byte: int, flushed: bool) -> None:
    """The CRC of a batch does not cover its offset, and any offset may follow any other here (seed 3216: the broker
    could not start because of it). But no segment holds offsets of the next one, or 2^31 of them.
    """
    log = reopened(tmp_path / "t-0")
    for offset in (0, 1, 5, 6, 9, 10, 11, 20):
        fetched(log, offset)
    segment = log.segments[hit]
    starts = [position for position, _ in segment.walk(0, segment.base_offset)]
    written = offsets(log)
    end = log.flush()
    log.close(clean=False)
    data = bytearray(segment.path.read_bytes())
    data[starts[-1] + byte] ^= 1
    segment.path.write_bytes(data)
    if flushed:
        with pytest.raises(KafkaError) as raised:
            reopened(tmp_path / "t-0", recovery_point=end)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    else:
        log = reopened(tmp_path / "t-0")
        whole = [offset for offset in written if offset < segment.base_offset]
        assert offsets(log) == written[: len(whole) + len(starts) - 1]
        log.close(clean=False)
