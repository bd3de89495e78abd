"""A log's producer state moves with it to another data folder, and survives the next start there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.dataplane.log import PartitionLog
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.storage.clean_shutdown import FILE_NAME
from tests.dataplane.log.batches import make_batch

from .test_folders import Broker, broker, until

DELETED, OTHERS = 7, 8


def _append(log: PartitionLog, producer_id: int, sequence: int) -> None:
    log.produced.append(memoryview(make_batch(producer=(producer_id, 0, sequence))), 0, wall_ms())


async def _moved(host: Broker, *, empty: bool) -> PartitionLog:
    """Delete a producer's records, then move the log: no batch names that producer."""
    host.create(1)
    log = host.replicas.get("t", 0).log
    for sequence in range(3):
        _append(log, DELETED, sequence)
    log.roll(wall_ms())
    if not empty:
        _append(log, OTHERS, 0)
    log.flush()
    log.advance_log_start_offset(3)
    assert len(log.segments) == 1
    target = host.move(0)
    await until(lambda: host.folder(0) is target and not target.retired, "the move")
    await until(lambda: not host.other(0).retired, "the old log to go")
    return host.replicas.get("t", 0).log


def _forget_what_the_stop_knew(path: Path) -> None:
    """Remove the stop's summary, so that the start reads the log's own files."""
    for known in path.glob(f"*/{FILE_NAME}"):
        known.unlink()


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("clean", [True, False])
async def test_a_producer_of_which_no_batch_is_left_moves_with_the_log(
    tmp_path: Path, *, clean: bool, empty: bool
) -> None:
    async with broker(tmp_path, clean=clean) as host:
        log = await _moved(host, empty=empty)
        entry = log.producers.get(DELETED)
        assert entry is not None
        assert entry.last_sequence == 2
    _forget_what_the_stop_knew(tmp_path)
    async with broker(tmp_path) as host:
        host.create(1)
        entry = host.replicas.get("t", 0).log.producers.get(DELETED)
        assert entry is not None
        assert entry.last_sequence == 2
