"""Sorted entries of fixed size in a file: the common base of the offset index and the time index.

New entries are collected in memory and written at once (when there are many, when the segment is rolled, and when the
log is closed), so that an active segment needs no descriptor for its indexes. Written entries are read through a map.
Unwritten entries may be lost without harm, since recovery rebuilds the indexes of segments that were open.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import sys
from functools import cache
from pathlib import Path

from ....protocol.errors import KafkaError
from ..durable_files import shorten, write_atomically
from ..storage_errors import BrokenBatch, damage, disk_error
from .batch_search import count_until
from .descriptors import FileCache

logger = logging.getLogger(__name__)

_TAIL_BYTES_MAX = 32 * 1024


class SparseIndex:
    """An index file of a segment: entries of two numbers, sorted by both."""

    __slots__ = ("_entry", "_file", "_files", "_tail", "_write_from_bytes", "_written")

    def __init__(
        self, path: Path | str, entry: struct.Struct, files: FileCache, *, written_bytes: int = 0
    ) -> None:
        self._file = os.fspath(
            path
        )  # A Path would take three times the memory, and there are thousands of logs.
        self._entry = entry
        self._files = files
        self._tail = bytearray()
        self._write_from_bytes = _TAIL_BYTES_MAX
        self._written = written_bytes // entry.size

    @property
    def path(self) -> Path:
        """The path of the index file, whether it exists or not."""
        return Path(self._file)

    def __len__(self) -> int:
        return self._written + len(self._tail) // self._entry.size

    @property
    def size(self) -> int:
        """The bytes of all entries."""
        return self._written * self._entry.size + len(self._tail)

    def entry(self, number: int) -> tuple[int, int]:
        """Return the two numbers of the index entry at position `number`; negative positions count from the end, as in
        a list.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        if number < 0:
            number += len(self)
        first, second = self.fields(number)
        return first, second

    def fields(self, number: int) -> tuple[int, ...]:
        """Return all numbers of the index entry at position `number`. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        if number < self._written:
            return self._entry.unpack_from(self._mapped(), number * self._entry.size)
        return self._entry.unpack_from(self._tail, (number - self._written) * self._entry.size)

    def last_fields(self) -> tuple[int, ...] | None:
        """Return all numbers of the last entry, or None if there is no entry. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        tail, entry = self._tail, self._entry
        if tail:
            return entry.unpack_from(tail, len(tail) - entry.size)
        if not self._written:
            return None
        # Read without a map, which would take longer: each log that is opened needs its last entry.
        last = self._read((self._written - 1) * entry.size, entry.size)
        return entry.unpack(last) if len(last) == entry.size else self.fields(self._written - 1)

    def _read(self, position: int, size: int) -> bytes:
        """Read bytes of the file; fewer than `size` if the file is shorter. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        try:
            fd = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise disk_error("read", self.path, error) from error
        try:
            return os.pread(fd, size, position)
        except OSError as error:
            raise disk_error("read", self.path, error) from error
        finally:
            os.close(fd)

    def add(self, first: int, second: int) -> None:
        """Add an entry. Its batch is in the log already, so a disk that takes no more entries now is no failure: they
        stay in memory until the disk takes them."""
        self.extend(self._entry.pack(first, second))

    def extend(self, entries: bytes) -> None:
        """Add encoded entries, as `add` adds an entry."""
        self._tail += entries
        if len(self._tail) < self._write_from_bytes:
            return
        try:
            self.write()
        except KafkaError as error:
            logger.warning("%s; its entries stay in memory for now", error.message)
            self._write_from_bytes = len(self._tail) + _TAIL_BYTES_MAX
        else:
            self._write_from_bytes = _TAIL_BYTES_MAX

    def find(self, target: int, field: int) -> int:
        """Return the number of the last entry whose `field` is at or below `target`; -1 if none exists.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        entries, before, length = self._among(target, field)
        return before + self._count(entries, length, target, field) - 1

    def last_until(self, target: int, field: int) -> tuple[int, ...] | None:
        """Return all numbers of the last entry whose `field` is at or below `target`; None if none exists.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        entries, _, length = self._among(target, field)
        count = self._count(entries, length, target, field)
        return self._entry.unpack_from(entries, (count - 1) * self._entry.size) if count else None

    def _count(self, entries: bytearray | mmap.mmap, length: int, target: int, field: int) -> int:
        """Return how many of the first `length` index entries have the number at position `field` at or below
        `target`."""
        entry_bytes, at, field_bytes = _place(self._entry.format, field)
        return count_until(entries, length, entry_bytes, at, field_bytes, target)

    def _among(self, target: int, field: int) -> tuple[bytearray | mmap.mmap, int, int]:
        """Return the block of entries with the last one whose `field` is at or below `target`, if there is one. The
        result also has the number of entries before the block, and the number in the block."""
        written, tail, entry = self._written, self._tail, self._entry
        if written and not (tail and entry.unpack_from(tail)[field] <= target):
            return self._mapped(), 0, written
        return tail, written, len(tail) // entry.size

    def _mapped(self) -> mmap.mmap:
        """Return a map of the written entries. An access beyond the end of its file would end the process (SIGBUS), so
        the size of the file is checked each time.

        Raises KafkaError: KAFKA_STORAGE_ERROR for a file that another program has shortened or removed.
        """
        expected = self._written * self._entry.size
        mapped = self._files.map(self._file)
        size = 0 if mapped is None else min(len(mapped), mapped.size())
        if mapped is None or size < expected:
            self._files.forget_map(self._file)
            reason = f"the file should have {expected} bytes"
            raise damage(self.path, size, reason) from BrokenBatch(size, reason)
        return mapped

    def write(self) -> None:
        """Append the entries in memory to the file (no fsync).

        Raises KafkaError: KAFKA_STORAGE_ERROR; the entries stay in memory.
        """
        if not self._tail and self._written:
            return
        self._files.forget_map(self._file)
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._adopt_what_is_left(os.fstat(fd).st_size)
                at = self._written * self._entry.size
                shorten(fd, at)
                if self._tail and os.pwrite(fd, self._tail, at) != len(self._tail):
                    raise OSError("the disk took only a part")
            finally:
                os.close(fd)
        except OSError as error:
            raise disk_error("write", self.path, error) from error
        self._written += len(self._tail) // self._entry.size
        self._tail.clear()

    def _adopt_what_is_left(self, size: int) -> None:
        """Accept the size of the file, which is about to be continued. If another program has shortened it, the lost
        entries stay lost. Look-ups between their neighbours take longer, with the same results."""
        left = size // self._entry.size
        if left < self._written:
            logger.warning("%s was cut: %d of %d entries are left", self.path, left, self._written)
            self._written = left

    def keep(self, count: int) -> None:
        """Drop all index entries but the first `count`."""
        if count >= len(self):
            return
        if count >= self._written:
            del self._tail[(count - self._written) * self._entry.size :]
            return
        self._tail.clear()
        self._files.forget_map(self._file)
        try:
            os.truncate(self.path, count * self._entry.size)
        except OSError as error:
            raise disk_error("truncate", self.path, error) from error
        self._written = count

    def adopt(self, count: int) -> None:
        """Trust the file, which was not changed since, to have `count` entries."""
        self._written = count

    def adopt_file(self) -> bool:
        """Use the entries of an existing file unchanged. Returns False if the file is missing or has an odd size."""
        try:
            size = os.stat(self._file).st_size
        except OSError:
            return False
        if size % self._entry.size:
            return False
        self._written = size // self._entry.size
        self._tail.clear()
        return True

    def hold_back(self) -> None:
        """Write nothing to the file before `replace_file`, since the next process that opens the file may trust its
        content."""
        self._write_from_bytes = sys.maxsize

    def replace_file(self) -> None:
        """Replace the file durably by the entries, all of which were held back since `reset`.

        Raises KafkaError: KAFKA_STORAGE_ERROR; the file is unchanged.
        """
        assert not self._written, f"{self._file} has entries that were not held back"
        self._files.forget_map(self._file)
        write_atomically(self.path, self._tail, sync=True)
        self._written = len(self._tail) // self._entry.size
        self._tail.clear()
        self._write_from_bytes = _TAIL_BYTES_MAX

    def reset(self) -> None:
        """Empty the index in memory, whatever the file holds."""
        self._files.forget_map(self._file)
        self._tail.clear()
        self._written = 0


@cache
def _place(entry: str, field: int) -> tuple[int, int, int]:
    """Return the size of an entry of this format, the position of a field in it, and the field's size."""
    at = struct.calcsize(entry[: 1 + field])
    return struct.calcsize(entry), at, struct.calcsize(entry[0] + entry[1 + field])
