"""Truncated records do not reappear below their replacements when power fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from tests.dataplane.log.batches import make_batch
from tests.simulation.machine.rooms import Room

FOLDER = Path("/simulated/alpha/flights-0")
CONFIG = LogConfig()
POWER_FAILURES = 60


def _open() -> PartitionLog:
    return PartitionLog.open(FOLDER, CONFIG, clean_shutdown=False, recovery_point=0, now_ms=1_000)


def _append(log: PartitionLog, offset: int, leader_epoch: int) -> None:
    """Append a batch; all batches have the same size, and no checksum covers the leader epoch."""
    batch = make_batch(base_offset=offset, leader_epoch=leader_epoch)
    log.append_as_follower(memoryview(batch), 1_000)


def _epochs(log: PartitionLog) -> list[int]:
    return [
        header.partition_leader_epoch
        for segment in log.segments
        for _, header in segment.walk(0, next_offset=segment.base_offset)
    ]


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        pytest.param(lambda log: log.truncation.truncate_to(1), [0], id="in a segment"),
        pytest.param(lambda log: log.truncation.truncate_to(2), [0, 5], id="a segment off"),
        pytest.param(lambda log: log.truncation.truncate_fully_and_start_at(1), [], id="all of it"),
    ],
)
def test_what_was_cut_does_not_stand_before_what_came_in_its_place(
    make_room: Callable[[int], Room], cut: Callable[[PartitionLog], None], kept: list[int]
) -> None:
    for seed in range(POWER_FAILURES):
        room = make_room(seed)

        def write() -> None:
            log = _open()
            for offset in range(4):
                _append(log, offset, 5 if offset else 0)
                if offset % 2:
                    log.roll(1_000)
            log.flush()
            cut(log)
            for offset in range(log.log_end_offset, 6):
                _append(log, offset, 6)
                log.roll(1_000)

        room.do(write)
        room.lose_power()
        epochs = room.do(lambda: _epochs(_open()))
        assert epochs == kept + [6] * (len(epochs) - len(kept)), seed
