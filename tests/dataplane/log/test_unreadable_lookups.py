"""Lookups by time that must examine a batch with unreadable records."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.dataplane.log.timestamps import TimestampOffset, max_timestamp_offset, offset_for_timestamp
from ottla.protocol.records.record import encode_batch
from tests.dataplane.log.compaction.histories import History
from tests.poisoned import POISONS, poisoned


@pytest.mark.parametrize("kind", POISONS)
def test_the_header_says_that_it_is_in_the_batch(tmp_path: Path, kind: str) -> None:
    log = History(tmp_path, segment_bytes=1 << 20)
    log.write([(b"k", b"v")], timestamp_ms=100)
    batch = encode_batch([(b"k", b"v" * 9, 200), (b"k", b"v" * 9, 300), (b"k", b"v" * 9, 250)])
    at = log._append(poisoned(batch, kind))
    log.write([(b"k", b"v")], timestamp_ms=260)
    end = log.log.log_end_offset
    in_it = TimestampOffset(300, at, 0), TimestampOffset(300, at + 1, 0)  # limited to readable records
    assert offset_for_timestamp(log.log, 270, end) in in_it
    assert offset_for_timestamp(log.log, 301, end) is None
    assert offset_for_timestamp(log.log, 90, end) == TimestampOffset(100, 0, 0)
    assert max_timestamp_offset(log.log, end) in in_it
