"""Situations that the check of retention must accept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.dataplane.log import LogConfig, PartitionLog
from tests.dataplane.log.batches import make_batch
from tests.simulation.cluster.retention import TOPIC, Retention

NOW_MS = 1_000_000


def append(log: PartitionLog, timestamp: int) -> None:
    log.produced.append(memoryview(make_batch(timestamp=timestamp)), 3, NOW_MS)


def test_what_is_copied_in_place_of_what_was_cut_has_its_own_age(tmp_path: Path) -> None:
    """A batch that replaces a truncated one of the same length, in a segment of the same base offset, has its own age
    (seed 4615).
    """
    machine: Any = SimpleNamespace(failures=[], now=0.0)
    workload: Any = SimpleNamespace(
        topics={}, configs={}, trimmed=set(), history=SimpleNamespace(add=lambda _: None)
    )
    retention = Retention(SimpleNamespace(machine=machine, brokers={}), workload, seed=1)  # type: ignore[arg-type]
    log = PartitionLog.open(
        tmp_path / f"{TOPIC}-0",
        LogConfig(retention_ms=1_000),
        clean_shutdown=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=NOW_MS,
    )
    with retention.watching():
        append(log, NOW_MS)
        log.old_segments.retain(1, NOW_MS)
        log.truncation.truncate_to(0)
        append(log, NOW_MS - 5_000)
        log.roll(NOW_MS)
        append(log, NOW_MS)
        assert log.old_segments.retain(2, NOW_MS) == 1
    assert not machine.failures
    log.close(clean=False)
