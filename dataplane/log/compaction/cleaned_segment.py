"""A segment that compaction writes: `<base>.log.cleaned` with its indexes, under the same suffix."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ....protocol.records.record_batch import parse_header
from ..durable_files import sync_file
from ..segments.aborted_transaction import AbortedTransaction
from ..segments.descriptors import FileCache
from ..segments.offset_index import OffsetIndex
from ..segments.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from ..segments.segment_swap import CLEANED_SUFFIX
from ..segments.time_index import TimeIndex
from ..segments.transaction_index import TransactionIndex


class CleanedSegment:
    """A new segment that is appended to, then finished or abandoned. `spent` is called with every number of bytes
    written."""

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        index_interval_bytes: int,
        buffer_bytes: int,
        spent: Callable[[int], None],
    ) -> None:
        stem = f"{base_offset:020d}"
        files = FileCache()
        segment = Segment(directory, base_offset, files)
        segment.path = directory / f"{stem}{LOG_SUFFIX}{CLEANED_SUFFIX}"
        segment.offset_index = OffsetIndex(
            directory / f"{stem}{OFFSET_INDEX_SUFFIX}{CLEANED_SUFFIX}", base_offset, files
        )
        segment.time_index = TimeIndex(
            directory / f"{stem}{TIME_INDEX_SUFFIX}{CLEANED_SUFFIX}", base_offset, files
        )
        segment.transaction_index = TransactionIndex(
            directory / f"{stem}{TRANSACTION_INDEX_SUFFIX}{CLEANED_SUFFIX}", files
        )
        self._segment = segment
        self._interval = index_interval_bytes
        self._buffer = bytearray()
        self._buffer_bytes = buffer_bytes
        self._spent = spent
        self._fd = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    @property
    def size(self) -> int:
        """The number of bytes appended to the new segment."""
        return self._segment.size

    def append(self, batch: bytes | memoryview) -> None:
        """Append a batch to the new segment, and index it. Raises OSError."""
        header = parse_header(batch)
        segment = self._segment
        segment.note_batch(header, header.last_offset, segment.size, self._interval)
        segment.size += header.size
        self._buffer += batch
        if len(self._buffer) >= self._buffer_bytes:
            self._write()

    def note_abort(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction to the new segment's index; its marker was appended last."""
        self._segment.transaction_index.append(aborted)

    def _write(self) -> None:
        with memoryview(self._buffer) as left:
            at = 0
            while at < len(left):
                at += os.write(self._fd, left[at:])
        self._spent(len(self._buffer))
        self._buffer.clear()

    def finish(self, like: Path, *, had_aborts: bool) -> Path:
        """Write the rest and the indexes, flush all, and take the modification time of `like`. Returns the log file's
        path.

        If the replaced segments had aborted transactions in their index (`had_aborts`), this segment has an index of
        them even if it is empty. Raises OSError, KafkaError.
        """
        self._write()
        segment = self._segment
        segment.finish()
        if had_aborts:
            segment.transaction_index.write_even_if_empty()
        for path in segment.files[1:]:
            sync_file(path)
        os.fsync(self._fd)
        modified = like.stat().st_mtime_ns
        os.utime(self._fd, ns=(modified, modified))
        self._close()
        return segment.path

    def abandon(self) -> None:
        """Delete all files of the new segment."""
        self._close()
        segment = self._segment
        for path in segment.files:
            path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
