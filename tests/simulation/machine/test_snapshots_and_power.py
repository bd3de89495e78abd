"""Truncated records are gone for good, and so is the snapshots' information about their producers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from ottla.dataplane.log import LogConfig
from tests.dataplane.log.batches import make_batch
from tests.simulation.machine.rooms import Room, open_data

CONFIG = LogConfig()
WRITTEN, LEFT, PRODUCER = 10, 3, 7


_open = partial(open_data, CONFIG)


def _write() -> None:
    """Write records and stop cleanly, which leaves a producer snapshot at the end."""
    directory = _open()
    log = directory.create("flights", 0, bytes(16), CONFIG, now_ms=0)
    for sequence in range(WRITTEN):
        log.produced.append(memoryview(make_batch(producer=(PRODUCER, 0, sequence))), 1, 1_000)
    directory.close(clean=True)


def _cut(left: int) -> None:
    """Cut most of the log, and append batches without a producer, further than the log was."""
    log = _open().logs["flights", 0]
    if left:
        log.truncation.truncate_to(left)
    else:
        log.truncation.truncate_fully_and_start_at(0)
    for _ in range(WRITTEN + 5):
        log.produced.append(memoryview(make_batch()), 2, 1_000)


def _last_sequence() -> tuple[int, int]:
    """Return the log end, and the producer's last known sequence."""
    directory = _open()
    assert not directory.failed
    log = directory.logs["flights", 0]
    log.check()
    entry = log.producers.get(PRODUCER)
    return log.log_end_offset, -1 if entry is None else entry.last_sequence


@pytest.mark.parametrize("left", [LEFT, 0])
def test_no_producer_is_known_by_what_was_cut_off(make_room: Callable[[int], Room], left: int) -> None:
    """A retry of the producer would otherwise pass for a duplicate, and be lost."""
    ends = set()
    for seed in range(60):
        room = make_room(seed)
        room.do(_write)
        room.do(partial(_cut, left))
        room.lose_power()
        end, last_sequence = room.do(_last_sequence)
        assert last_sequence == left - 1, seed
        ends.add(end > WRITTEN)
    assert ends == {True, False}


def _roll() -> None:
    """Write records and close the segment, without any flush."""
    log = _open().create("flights", 0, bytes(16), CONFIG, now_ms=0)
    for sequence in range(WRITTEN):
        log.produced.append(memoryview(make_batch(producer=(PRODUCER, 0, sequence))), 1, 1_000)
    log.roll(1_000)


def _go_on() -> int:
    """Return the log end, then append batches without a producer."""
    log = _open().create("flights", 0, bytes(16), CONFIG, now_ms=0)
    end = log.log_end_offset
    for _ in range(WRITTEN + 5):
        log.produced.append(memoryview(make_batch()), 2, 1_000)
    return end


def test_no_producer_is_known_by_what_was_lost(make_room: Callable[[int], Room]) -> None:
    """Power fails, and records are lost whose producer a snapshot knows.

    Power fails again when the log is longer than that.
    """
    lost = set()
    for seed in range(400):
        room = make_room(seed)
        room.do(_roll)
        room.lose_power()
        end = room.do(_go_on)
        room.lose_power()
        _, last_sequence = room.do(_last_sequence_if_there)
        assert last_sequence < end, seed
        lost.add(end < WRITTEN)
    assert lost == {True, False}


def _last_sequence_if_there() -> tuple[int, int]:
    """Return the log end and the last sequence; the log's folder may be lost, too."""
    directory = _open()
    assert not directory.failed
    log = directory.get("flights", 0)
    entry = None if log is None else log.producers.get(PRODUCER)
    return 0 if log is None else log.log_end_offset, -1 if entry is None else entry.last_sequence
