"""Walks over many batch headers of a segment in search of a timestamp. They run in a thread, since a segment may have
millions of batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from ...protocol.records.record_batch import BatchHeader
from .segments.batch_walk import walk_file
from .segments.segment import Segment
from .storage_errors import BrokenBatch, damage, disk_error

HEADERS_SHORT: Final = 2_000
"""The number of headers that the event loop reads in a few milliseconds."""


class HeaderWalk(ABC):
    """A walk over batch headers of a segment, from the batch at byte `position` on, in search of the batch where a
    lookup by timestamp continues.

    It is created and closed in the event loop's thread; `find` blocks, and belongs in another thread.
    """

    def __init__(self, segment: Segment, position: int) -> None:
        """Open the segment for the walk, which begins at byte `position`. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        self._segment = segment
        self._position = position
        self._end = segment.size
        self._file = segment.descriptor()

    def find(self) -> int:
        """Return the byte position of the batch from which the lookup should continue; the segment's end if no batch
        qualifies.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the segment cannot be read, or is damaged.
        """
        path, next_offset = self._segment.path, self._segment.base_offset
        found = self._end
        try:
            for position, header in walk_file(
                self._file.fd, self._position, self._end, next_offset=next_offset
            ):
                if self.takes(header):
                    found = position
                if self.is_over(header):
                    break
        except BrokenBatch as broken:
            raise damage(path, broken.position, broken.reason) from broken
        except OSError as error:
            raise disk_error("read", path, error) from error
        return found

    def close(self) -> None:
        """Release the file."""
        self._file.release()

    @abstractmethod
    def takes(self, header: BatchHeader) -> bool:
        """Return whether the lookup should continue at this batch. A later batch for which this is true replaces it."""

    @abstractmethod
    def is_over(self, header: BatchHeader) -> bool:
        """Return whether the walk may stop at this batch, since no later batch can replace the result."""


class FirstSince(HeaderWalk):
    """A walk to the first batch that may have a record at or after a timestamp and the log start."""

    def __init__(self, segment: Segment, position: int, timestamp: int, log_start_offset: int) -> None:
        super().__init__(segment, position)
        self._timestamp = timestamp
        self._log_start_offset = log_start_offset

    def takes(self, header: BatchHeader) -> bool:
        """Return whether the batch may have a record at or after the timestamp and the log start."""
        return may_have(header, self._timestamp, self._log_start_offset)

    def is_over(self, header: BatchHeader) -> bool:
        """Return whether the walk may stop: the batch may have a record at or after the timestamp and the log start."""
        return self.takes(header)


class LatestBelow(HeaderWalk):
    """A walk to the first batch with the largest timestamp among the batches from the log start to below
    `upto_offset`."""

    def __init__(self, segment: Segment, position: int, upto_offset: int, log_start_offset: int) -> None:
        super().__init__(segment, position)
        self._upto_offset = upto_offset
        self._log_start_offset = log_start_offset
        self._latest_ms = -1

    def takes(self, header: BatchHeader) -> bool:
        """Return whether the batch lies in the range of offsets, and has a larger timestamp than all earlier
        batches."""
        counts = self._log_start_offset <= header.last_offset and header.base_offset < self._upto_offset
        if not counts or header.latest_known_ms <= self._latest_ms:
            return False
        self._latest_ms = header.latest_known_ms
        return True

    def is_over(self, header: BatchHeader) -> bool:
        """Return whether the walk may stop: the batch reaches `upto_offset`, where the range of offsets ends."""
        return header.next_offset >= self._upto_offset


def may_have(header: BatchHeader, timestamp: int, log_start_offset: int) -> bool:
    """Return whether a batch may have a record at or after a timestamp and the log start."""
    # A batch whose header has no largest timestamp may have any timestamp.
    is_late = header.max_timestamp >= timestamp or header.max_timestamp < 0 <= header.base_timestamp
    return is_late and header.last_offset >= log_start_offset
