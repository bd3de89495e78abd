"""The scan of a segment during recovery: it checks batches, and rebuilds the indexes.

After the death of a process alone it reads headers. Then most batches are plain: nothing but offsets, times, sizes and
producers differs between their headers. An extension in C skims them, if it was built. All other batches are read in
Python, which finds the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....protocol.pure_python import PURE_PYTHON
from ....protocol.records.record_batch import CONTROL_FLAG, NO_PRODUCER_ID, BatchHeader
from .. import page_cache
from ..segments.batch_walk import SCAN_CHUNK, reading_few, walk_file
from ..segments.segment import Segment
from ..storage_errors import BrokenBatch, disk_error
from .recovered_epochs import RecoveredEpochs

if TYPE_CHECKING:
    from . import _plain_batches as _in_c
else:
    try:
        if PURE_PYTHON:
            raise ImportError("the walk in C is turned down")
        from . import _plain_batches as _in_c
    except ImportError:  # disabled, not built, or built for another Python
        _in_c = None

_TAIL_BYTES = 64 * 1024
"""The bytes at a segment's end whose batches are read whole in any case, since the last write may have been cut short.
"""
_NO_TIME = -1


class NotAsWritten(Exception):
    """The error for a file that is not as the dead process wrote it, so that its bodies are not trusted. The message
    has the reason."""


@dataclass(slots=True)
class Findings:
    """The leader epochs that a recovery has found, and the segments in which it has found no batch of a producer with
    an id."""

    epochs: RecoveredEpochs
    without_producers: set[Segment] = field(default_factory=set)


@dataclass(slots=True)
class Scan:
    """The scan of a segment. It has the position and the offset up to which batches were read."""

    segment: Segment
    verify_from: int
    """The offset from which on the CRC of batches is checked."""
    upto: int
    """The offset where the next segment begins, or where the range of indexes ends."""
    interval: int
    """The bytes between index entries."""
    contiguous: bool
    """True if each batch must start where the batch before ended."""
    trusts_bodies: bool
    """True if only the batches at the segment's end are read whole."""
    position: int = 0
    next_offset: int = field(init=False)
    has_producers: bool = False

    def __post_init__(self) -> None:
        self.next_offset = self.segment.base_offset

    @property
    def trusted_to(self) -> int:
        """The position up to which bodies are trusted."""
        return self.segment.size - _TAIL_BYTES if self.trusts_bodies else 0

    def note(self, header: BatchHeader) -> None:
        """Note the next batch in the indexes."""
        segment = self.segment
        if header.producer_id != NO_PRODUCER_ID:
            self.has_producers = True
        segment.note_batch(header, header.last_offset, self.position, self.interval)
        if header.attributes & CONTROL_FLAG:
            segment.transaction_index.is_incomplete = True
        self.position += header.size
        self.next_offset = header.next_offset

    def skim(self, fd: int, epoch: int) -> bool:
        """Note the plain batches that follow in this leader epoch. Returns whether there were any."""
        segment, position = self.segment, self.position
        if skim is None or self.next_offset < self.verify_from or position >= self.trusted_to:
            return False
        last = segment.time_index.last_fields()
        (
            self.position,
            self.next_offset,
            segment.since_index_entry,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            has_producers,
            offsets,
            times,
        ) = skim(
            fd,
            position,
            self.trusted_to,
            segment.base_offset,
            self.next_offset,
            self.upto,
            epoch,
            int(self.contiguous),
            self.interval,
            segment.since_index_entry,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            _NO_TIME if last is None else last[0],
        )
        self.has_producers |= has_producers
        segment.offset_index.extend(offsets)
        segment.time_index.extend(times)
        return self.position > position


def rebuild(scan: Scan, findings: Findings | None) -> tuple[int, BrokenBatch | None]:
    """Rebuild the indexes of a segment. Returns the offset after its last good batch, and the fault that stopped the
    scan before the segment's end, or None. Without `findings` the epochs are not checked.

    Raises NotAsWritten if bodies are trusted and the disk has refused a page of the segment. Raises KafkaError:
    KAFKA_STORAGE_ERROR.
    """
    segment = scan.segment
    segment.offset_index.reset()
    segment.time_index.reset()
    segment.transaction_index.reset()
    epochs = None if findings is None else findings.epochs
    descriptor = segment.descriptor()
    try:
        if scan.trusts_bodies:
            _check_pages(descriptor.fd)
        while _read_until_skimmed(scan, descriptor.fd, epochs):
            pass
    except BrokenBatch as broken:
        return scan.next_offset, broken
    except OSError as error:
        raise disk_error("read", segment.path, error) from error
    finally:
        descriptor.release()
    if findings is not None and not scan.has_producers:
        findings.without_producers.add(segment)
    return scan.next_offset, None


def _read_until_skimmed(scan: Scan, fd: int, epochs: RecoveredEpochs | None) -> bool:
    """Read batches in Python. Returns True once further batches were skimmed in C, so that reading goes on behind them;
    False at the end. Raises BrokenBatch, OSError."""
    for position, header in walk_file(
        fd,
        scan.position,
        scan.segment.size,
        next_offset=scan.next_offset,
        contiguous=scan.contiguous,
        upto=scan.upto,
        verify_from=scan.verify_from,
        bodies_trusted_to=scan.trusted_to,
        chunk=SCAN_CHUNK,
        read=reading_few() if scan.trusts_bodies else None,
    ):
        if epochs is not None:
            epochs.take(header, position)
        scan.note(header)
        if epochs is not None and scan.skim(fd, epochs.epochs.latest_epoch):
            return True
    return False


def _check_pages(fd: int) -> None:
    """Raise NotAsWritten if the disk has refused a page of this file since it was flushed. The cached pages are dropped
    then, as after a failed flush: the kernel counts a refused page as written."""
    try:
        page_cache.check_writes(fd)
    except OSError as error:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        raise NotAsWritten(f"the disk has refused writes: {error.strerror}") from error


skim = _in_c.skim if TYPE_CHECKING or _in_c is not None else None
