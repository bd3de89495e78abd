"""A segment: a `.log` file, its indexes, and facts about its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ....protocol.errors import KafkaError
from ....protocol.records.record import CONTROL_BATCH_BYTES_MAX, ControlRecord, read_control_record
from ....protocol.records.record_batch import BatchHeader
from ..storage_errors import BrokenBatch, damage, disk_error
from .batch_search import last_boundary
from .batch_walk import FEW_BYTES, LOOKUP_CHUNK, SCAN_CHUNK, reading_few, walk_file
from .descriptors import FileCache, SharedDescriptor
from .doomed_files import doom
from .offset_index import OffsetIndex
from .time_index import TimeIndex
from .transaction_index import TransactionIndex

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
"""The suffix of transaction indexes. Such a file exists only for a segment with aborted transactions."""
POSITION_MAX = 2**31 - 1


class Segment:
    """A file of batches from `base_offset` on.

    Only the last segment of a log is active: it alone grows, and keeps a dedicated descriptor meanwhile. Invariant:
    `size` is the number of bytes that belong to the log; the file may be longer for a moment.
    """

    __slots__ = (
        "_descriptor",
        "_files",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "since_index_entry",
        "size",
        "synced",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self, directory: Path, base_offset: int, files: FileCache, *, size: int = 0, now_ms: int = 0
    ) -> None:
        stem = f"{os.fspath(directory)}/{base_offset:020d}"
        self.path = Path(stem + LOG_SUFFIX)
        self.base_offset = base_offset
        self.size = size
        self.offset_index = OffsetIndex(stem + OFFSET_INDEX_SUFFIX, base_offset, files)
        self.time_index = TimeIndex(stem + TIME_INDEX_SUFFIX, base_offset, files)
        self.transaction_index = TransactionIndex(stem + TRANSACTION_INDEX_SUFFIX, files)
        self.created_ms = now_ms
        self.first_timestamp: int | None = None
        """Largest timestamp of the first batch, in ms, from which `segment.ms` counts."""
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.since_index_entry = 0
        self.synced = False
        """True if log and indexes were flushed after the segment stopped growing, with the producer snapshot at its
        end, if there is one."""
        self._files = files
        self._descriptor: SharedDescriptor | None = None

    @classmethod
    def adopt(cls, directory: Path, base_offset: int, files: FileCache) -> Self:
        """Return an inactive segment of complete files, which were flushed and have just been renamed to their names.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        segment = cls(directory, base_offset, files)
        try:
            status = segment.path.stat()
        except OSError as error:
            raise disk_error("read", segment.path, error) from error
        segment.size, segment.created_ms = status.st_size, int(status.st_mtime * 1000)
        segment.synced = True
        for index in (segment.offset_index, segment.time_index, segment.transaction_index):
            if not index.adopt_file():
                raise damage(index.path, 0, "it is no index")
        return segment

    @property
    def files(self) -> tuple[Path, ...]:
        """The paths of its log and its indexes, whether they exist or not."""
        return self.path, self.offset_index.path, self.time_index.path, self.transaction_index.path

    # Growing

    @property
    def is_open(self) -> bool:
        """True if the segment is open for appending."""
        return self._descriptor is not None

    def open(self, *, creates: bool = False) -> SharedDescriptor:
        """Open the segment for appending. Raises KafkaError: KAFKA_STORAGE_ERROR, also if there is no file, unless it
        `creates` one."""
        if self._descriptor is None:
            self._descriptor = SharedDescriptor.open(self.path, os.O_RDWR | (os.O_CREAT if creates else 0))
            self.synced = False
        return self._descriptor

    def close(self) -> None:
        """Release the descriptor for appending; slices that still use the descriptor keep it open."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.release()

    def finish(self) -> None:
        """Complete and write the indexes, when the segment is rolled or cleanly closed."""
        self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.write()
        self.time_index.write()
        self.transaction_index.write()

    def replace_indexes(self) -> None:
        """Complete the indexes like `finish`, for indexes that were held back: they replace the present files
        durably."""
        self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.replace_file()
        self.time_index.replace_file()
        self.transaction_index.write()

    def descriptor(self) -> SharedDescriptor:
        """Return a descriptor for reading, retained for the caller. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        own = self._descriptor
        return own.retain() if own is not None else self._files.descriptor(self.path)

    # Noting batches

    def note_batch(self, header: BatchHeader, last_offset: int, position: int, interval: int) -> None:
        """Note an appended batch at byte `position`: its timestamp, and an index entry if `interval` bytes lie since
        the last entry."""
        if self.since_index_entry > interval:
            self.offset_index.append(last_offset, position)
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
            self.since_index_entry = 0
        self.since_index_entry += header.batch_length + 12
        timestamp = header.max_timestamp
        if timestamp < 0:
            timestamp = header.latest_known_ms
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if self.first_timestamp is None:
            self.first_timestamp = timestamp

    def load_end(self) -> int:
        """Read the end of a segment whose indexes can be trusted. Returns the offset after its last batch.

        Raises BrokenBatch if the bytes after the last index entry are not a batch. Raises KafkaError:
        KAFKA_STORAGE_ERROR.
        """
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last() or (-1, self.base_offset)
        last = self.offset_index.last()
        start, next_offset = 0 if last is None else last[1], self.base_offset
        self.since_index_entry = self.size - start
        if start >= self.size > 0:
            raise BrokenBatch(self.size, f"{self.offset_index.path.name} points behind the end")
        self.first_timestamp = None
        for position, header in self.walk(start, next_offset):
            if position == 0:
                self.first_timestamp = header.latest_known_ms
            if position == start and last is not None and header.last_offset != last[0]:
                raise BrokenBatch(position, f"{self.offset_index.path.name} does not fit")
            if header.latest_known_ms > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.latest_known_ms, header.last_offset
            next_offset = header.next_offset
        if start:
            self.load_first_timestamp()
        return next_offset

    def load_first_timestamp(self) -> None:
        """Read the timestamp of the segment's first batch. Raises KafkaError, BrokenBatch."""
        self.first_timestamp = None
        first = next(self.walk(0, self.base_offset, LOOKUP_CHUNK), None)
        if first is not None:
            self.first_timestamp = first[1].latest_known_ms

    def load_max_timestamp(self) -> None:
        """Read the largest timestamp of an inactive segment from its time index, once."""
        if self.max_timestamp < 0:
            last = self.time_index.last()
            if last is not None:
                self.max_timestamp, self.max_timestamp_offset = last

    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp of its records, in ms; the file's modification time if no record has a
        timestamp.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.load_max_timestamp()
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self.written_ms()

    def written_ms(self) -> int:
        """Return the time at which the file was last written, in ms. Compaction keeps it.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        try:
            return int(self.path.stat().st_mtime * 1000)
        except OSError as error:
            raise disk_error("read", self.path, error) from error

    def walk(
        self, start: int, next_offset: int, chunk: int = SCAN_CHUNK
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the batches from byte `start` to the end; at most `chunk` bytes are read at a
        time.

        Raises BrokenBatch at bytes that are not a batch. Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        if start >= self.size:
            return
        read = reading_few() if chunk > FEW_BYTES else None
        descriptor = self.descriptor()
        try:
            yield from walk_file(
                descriptor.fd, start, self.size, next_offset=next_offset, chunk=chunk, read=read
            )
        except OSError as error:
            raise disk_error("read", self.path, error) from error
        finally:
            descriptor.release()

    def marker_at(self, position: int, header: BatchHeader) -> ControlRecord | None:
        """Return the transaction marker in the control batch at `position`; None if the batch is of another kind.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the file cannot be read or is damaged there.
        """
        if not header.has_producer_id or header.size > CONTROL_BATCH_BYTES_MAX:
            return None
        descriptor = self.descriptor()
        try:
            return read_control_record(os.pread(descriptor.fd, header.size, position))
        except OSError as error:
            raise disk_error("read", self.path, error) from error
        except KafkaError as error:
            raise damage(self.path, position, error.message) from error
        finally:
            descriptor.release()

    # Finding

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return (position, header) of the first batch whose last offset is at or above `offset`; None past the end.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the file cannot be read or is damaged there.
        """
        found = self.offset_index.lookup(offset)
        start = 0 if found is None else found[1]
        descriptor = self.descriptor()
        try:
            for position, header in walk_file(descriptor.fd, start, self.size, next_offset=self.base_offset):
                if header.base_offset + header.last_offset_delta >= offset:
                    return position, header
        except BrokenBatch as broken:
            raise damage(self.path, broken.position, broken.reason) from broken
        except OSError as error:
            raise disk_error("read", self.path, error) from error
        finally:
            descriptor.release()
        return None

    def end_before(self, position: int) -> int:
        """Return the offset after the last batch that ends at or before byte `position`, where a batch starts or the
        segment ends.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the file cannot be read or is damaged there.
        """
        found = self.offset_index.lookup_position(position - 1)
        start, next_offset = 0 if found is None else found[1], self.base_offset
        try:
            for at, header in self.walk(start, next_offset):
                if at >= position:
                    break
                next_offset = header.next_offset
        except BrokenBatch as broken:
            raise damage(self.path, broken.position, broken.reason) from broken
        return next_offset

    def last_boundary(self, start: int, limit: int) -> tuple[int, int]:
        """Return the end of the last whole batch within bytes `start` to `limit` (`start` if none fits), and the base
        offset of the batch that follows there, -1 at the end of the segment.

        `start` must be the start of a batch. Raises KafkaError: KAFKA_STORAGE_ERROR if the file cannot be read or is
        damaged there.
        """
        if limit >= self.size:
            return self.size, -1
        found = self.offset_index.lookup_position(limit)
        from_here = start if found is None else max(start, found[1])
        descriptor = self.descriptor()
        try:
            return last_boundary(descriptor.fd, from_here, limit, self.size, self.base_offset)
        except BrokenBatch as broken:
            raise damage(self.path, broken.position, broken.reason) from broken
        except OSError as error:
            raise disk_error("read", self.path, error) from error
        finally:
            descriptor.release()

    # Cutting and going away

    def truncate(self, position: int, offset: int) -> None:
        """Cut the bytes from `position` on, where the batch with `offset` starts.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        try:
            os.truncate(self.path, position)
        except OSError as error:
            raise disk_error("truncate", self.path, error) from error
        self.size = position
        self.synced = False
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.transaction_index.truncate(offset)

    def doom(self) -> list[Path]:
        """Rename the files so that they are deleted later. Returns their new paths.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.close()
        doomed = []
        for path in self.files:
            self._files.forget(path)
            doomed += doom(path)
        return doomed
