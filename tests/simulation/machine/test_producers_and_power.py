"""A log remembers its producers after a power failure, even if retention has removed all their records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.producers.producer_state import WINDOW
from tests.dataplane.log.batches import make_batch
from tests.simulation.machine.rooms import Room

FOLDER = Path("/simulated/alpha/flights-0")
CONFIG = LogConfig()


def _open(recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        FOLDER, CONFIG, clean_shutdown=False, recovery_point=recovery_point, now_ms=1_000
    )


def _append(log: PartitionLog, producer_id: int, sequence: int) -> bool:
    """Append a batch, and return whether it is a duplicate."""
    batch = make_batch(producer=(producer_id, 0, sequence))
    return log.produced.append(memoryview(batch), 0, 1_000).duplicate


def _delete_records(log: PartitionLog, below: int) -> None:
    log.advance_log_start_offset(below)
    while log.old_segments.retain(log.log_end_offset, 1_000):
        pass


def test_producers_of_deleted_records_are_known_after_power_was_lost(
    make_room: Callable[[int], Room],
) -> None:
    for seed in range(8):
        room = make_room(seed)

        def write() -> int:
            log = _open()
            _append(log, 7, 0)
            log.roll(1_000)
            _append(log, 8, 0)
            recovery_point = log.flush()
            _delete_records(log, 1)
            log.roll(1_000)
            _append(log, 9, 0)
            _delete_records(log, 2)
            return recovery_point

        def sends_again(recovery_point: int) -> list[bool]:
            log = _open(recovery_point)
            return [_append(log, producer_id, 0) for producer_id in (7, 8)]

        recovery_point = room.do(write)
        room.lose_power()
        assert room.do(partial(sends_again, recovery_point)) == [True, True]


def test_every_batch_of_a_window_is_known_though_it_was_deleted(make_room: Callable[[int], Room]) -> None:
    """The window holds all batches that a producer may have in flight: the first may be sent again after the others
    were appended.
    """
    for seed in range(8):
        room = make_room(seed)

        def write(seed: int) -> int:
            log = _open()
            recovery_point = 0
            for sequence in range(WINDOW):
                _append(log, 7, sequence)
                if sequence % 2 == seed % 2:
                    log.roll(1_000)
                if sequence == seed % WINDOW:
                    recovery_point = log.flush()
                _delete_records(log, sequence)
            log.flush()
            _delete_records(log, log.log_end_offset)
            return max(recovery_point, log.flush())

        def sends_again(recovery_point: int) -> list[bool]:
            log = _open(recovery_point)
            return [_append(log, 7, sequence) for sequence in range(WINDOW)]

        recovery_point = room.do(partial(write, seed))
        room.lose_power()
        assert room.do(partial(sends_again, recovery_point)) == [True] * WINDOW, seed


def test_segments_go_once_what_they_tell_of_producers_is_flushed(room: Room) -> None:
    def bases(log: PartitionLog) -> list[int]:
        return [segment.base_offset for segment in log.segments]

    def work() -> None:
        log = _open()
        _append(log, 7, 0)
        log.roll(1_000)
        _append(log, 8, 0)
        _delete_records(log, 1)
        assert (log.log_start_offset, bases(log), log.needs_flush) == (1, [0, 1], True)
        log.flush()
        _delete_records(log, 1)
        assert bases(log) == [1]
        log.roll(1_000)
        for sequence in range(1, WINDOW + 1):
            for producer_id in 7, 8:
                _append(log, producer_id, sequence)
        _delete_records(log, 2)
        assert bases(log) == [2], "the remaining files contain all of the log's state"

    room.do(work)


@pytest.mark.parametrize("active_is_empty", [False, True])
def test_what_no_snapshot_tells_is_noted_before_it_goes(room: Room, active_is_empty: bool) -> None:
    """The power failure removed the snapshot, or there was none because segments were compacted."""

    def work() -> None:
        log = _open()
        _append(log, 7, 0)
        log.roll(1_000)
        if not active_is_empty:
            log.produced.append(memoryview(make_batch()), 0, 1_000)
        for snapshot in FOLDER.glob("*.snapshot"):
            snapshot.unlink()
        log.flush()
        for expected in 0, 1:
            _delete_records(log, 1)
            assert log.segments[0].base_offset == expected
            log.flush()
        log.close(clean=False)
        assert _append(_open(log.recovery_point), 7, 0)

    room.do(work)
