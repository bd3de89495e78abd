"""Observers read a log correctly although it is being changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.copies import append_copied
from ottla.dataplane.log.segments.segment import Segment
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.log.batches import make_batch
from tests.simulation.mirror.ledger import batches_of

NOW = 1_000_000


def three_batches(folder: Path) -> PartitionLog:
    """Make a log of three batches; the last is in a separate segment."""
    log = PartitionLog.open(folder, LogConfig(), clean_shutdown=True, recovery_point=0, now_ms=NOW)
    for base in range(3):
        if base == 2:
            log.roll(NOW)
        append_copied(log, memoryview(make_batch(1, base_offset=base)), 3, NOW)
    return log


def found(log: PartitionLog, start: int) -> list[int]:
    return [header.base_offset for header, _ in batches_of(log, start, log.log_end_offset)]


def test_each_batch_from_the_start_on_is_told_once(tmp_path: Path) -> None:
    log = three_batches(tmp_path)
    assert [found(log, start) for start in range(4)] == [[0, 1, 2], [1, 2], [2], []]


def test_a_log_in_the_middle_of_a_cut_is_to_be_looked_at_later(tmp_path: Path) -> None:
    """Seed 1768: an observer read the batches before the cut for ever, and waited for the last to come."""
    log = three_batches(tmp_path)
    truncate, codes = Segment.truncate, list[ErrorCode]()

    def truncating(segment: Segment, *place: Any) -> None:
        with pytest.raises(KafkaError) as refused:
            found(log, 0)
        codes.append(refused.value.code)
        truncate(segment, *place)

    with patch.object(Segment, "truncate", truncating):
        log.truncation.truncate_to(1)
    assert codes == [ErrorCode.OFFSET_NOT_AVAILABLE]
    assert found(log, 0) == [0]
