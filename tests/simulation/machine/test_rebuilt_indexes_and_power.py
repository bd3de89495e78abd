"""Unflushed indexes are not trusted after a power failure; indexes rebuilt at a start are flushed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from ottla.dataplane.log import LogConfig
from ottla.dataplane.log.checkpoints import CLEAN_SHUTDOWN
from ottla.dataplane.storage.directory import LogDirectory
from tests.dataplane.log.batches import make_batch
from tests.simulation.machine.rooms import DATA, Room, open_data

CONFIG = LogConfig(segment_bytes=8_000, index_interval_bytes=20)
LARGE = LogConfig(index_interval_bytes=20)
BATCHES = 300


def _open() -> LogDirectory:
    directory = open_data(CONFIG)
    assert not directory.failed
    return directory


def _entries(directory: LogDirectory) -> list[list[tuple[int, ...]]]:
    """Return the entries of the indexes of all closed segments."""
    log = directory.logs["flights", 0]
    return [
        [index.fields(number) for number in range(len(index))]
        for segment in log.segments[:-1]
        for index in (segment.offset_index, segment.time_index)
    ]


def _write() -> list[list[tuple[int, ...]]]:
    directory = _open()
    log = directory.create("flights", 0, bytes(16), CONFIG, now_ms=0)
    for number in range(BATCHES):
        log.produced.append(memoryview(make_batch(timestamp=1_000 + number)), 1, 1_000)
    assert len(log.segments) > 2
    entries = _entries(directory)
    directory.close(clean=True)
    return entries


def _rebuild(suffix: str, *, clean: bool, checkpoints: bool) -> None:
    """Start after the deletion of an index of the first segment."""
    (DATA / "flights-0" / f"{0:020d}{suffix}").unlink()
    if not clean:
        (DATA / CLEAN_SHUTDOWN).unlink()
    directory = _open()
    if checkpoints:
        directory.checkpoint()
    directory.close(clean=True)


def _found() -> list[list[tuple[int, ...]]]:
    directory = _open()
    assert directory.last_clean_broker_epoch is not None
    return _entries(directory)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("checkpoints", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_rebuilt_index_outlives_power(
    make_room: Callable[[int], Room], suffix: str, *, clean: bool, checkpoints: bool
) -> None:
    for seed in range(15):
        room = make_room(seed)
        entries = room.do(_write)
        room.do(partial(_rebuild, suffix, clean=clean, checkpoints=checkpoints))
        room.lose_power()
        assert room.do(_found) == entries, seed


def _flush_and_roll(*, flushes_again: bool) -> None:
    """Flush everything, and close the last segment there: the log is durable, and its indexes are not."""
    directory = _open()
    log = directory.create("flights", 0, bytes(16), LARGE, now_ms=0)
    for number in range(BATCHES):
        log.produced.append(memoryview(make_batch(timestamp=1_000 + number)), 1, 1_000)
    log.flush()
    directory.checkpoints.write_recovery_points({})
    log.roll(1_000)
    if flushes_again:
        log.flush()


def _times() -> tuple[int, list[tuple[int, ...]]]:
    """Return the number of segments, and all entries of the first time index."""
    directory = _open()
    log = directory.logs["flights", 0]
    assert log.log_end_offset == BATCHES
    index = log.segments[0].time_index
    return len(log.segments), [index.fields(number) for number in range(len(index))]


@pytest.mark.parametrize("flushes_again", [True, False])
def test_indexes_of_a_segment_that_ends_at_the_recovery_point(
    make_room: Callable[[int], Room], *, flushes_again: bool
) -> None:
    lasting = set()
    for seed in range(100):
        room = make_room(seed)
        room.do(partial(_flush_and_roll, flushes_again=flushes_again))
        room.lose_power()
        segments, times = room.do(_times)
        lasting.add(segments)
        if segments > 1:
            assert times == [(1_000 + number, number) for number in range(BATCHES)], seed
    assert 2 in lasting
