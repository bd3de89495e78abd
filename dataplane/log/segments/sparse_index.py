"""Sorted entries of fixed size in a file: what the offset index and the time index share.

New entries gather in memory and are written in one go (when there are many, when the segment is rolled, and
when the log is closed), so that an active segment needs no descriptor for its indexes. Written entries are
read through a map. Losing the unwritten ones is harmless: recovery rebuilds the indexes of segments that
were open.
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
from ..durable_files import write_atomically
from ..storage_errors import BrokenBatch, damage, disk_error
from .batch_search import count_until
from .descriptors import FileCache

logger = logging.getLogger(__name__)

_TAIL_BYTES_MAX = 32 * 1024


class SparseIndex:
    """Entries of two numbers, sorted by both."""

    __slots__ = ("_entry", "_file", "_files", "_tail", "_write_from_bytes", "_written")

    def __init__(
        self, path: Path | str, entry: struct.Struct, files: FileCache, *, written_bytes: int = 0
    ) -> None:
        self._file = os.fspath(path)  # As a Path it would take three times the memory, for thousands of logs.
        self._entry = entry
        self._files = files
        self._tail = bytearray()
        self._write_from_bytes = _TAIL_BYTES_MAX
        self._written = written_bytes // entry.size

    @property
    def path(self) -> Path:
        """Where it is, or would be."""
        return Path(self._file)

    def __len__(self) -> int:
        return self._written + len(self._tail) // self._entry.size

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return self._written * self._entry.size + len(self._tail)

    def entry(self, number: int) -> tuple[int, int]:
        """The two numbers of one entry; negative numbers count from the end, as in a list.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        if number < 0:
            number += len(self)
        first, second = self.fields(number)
        return first, second

    def fields(self, number: int) -> tuple[int, ...]:
        """All numbers of one entry, from the first on. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        if number < self._written:
            return self._entry.unpack_from(self._mapped(), number * self._entry.size)
        return self._entry.unpack_from(self._tail, (number - self._written) * self._entry.size)

    def last_fields(self) -> tuple[int, ...] | None:
        """All numbers of the last entry, None without any. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        tail, entry = self._tail, self._entry
        if tail:
            return entry.unpack_from(tail, len(tail) - entry.size)
        if not self._written:
            return None
        # Without a map, which takes longer than to read: each log that is opened is asked for it.
        last = self._read((self._written - 1) * entry.size, entry.size)
        return entry.unpack(last) if len(last) == entry.size else self.fields(self._written - 1)

    def _read(self, position: int, size: int) -> bytes:
        """Fewer bytes, if the file does not have them. Raises KafkaError: KAFKA_STORAGE_ERROR."""
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
        """Note an entry. The batch that it is about is in the log already, so a disk that takes no more entries now
        is no failure: they stay in memory until it takes them."""
        self._tail += self._entry.pack(first, second)
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
        """Number of the last entry whose `field` is at or below `target`; -1 if there is none.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        entries, before, length = self._among(target, field)
        return before + self._count(entries, length, target, field) - 1

    def last_until(self, target: int, field: int) -> tuple[int, ...] | None:
        """All numbers of the last entry whose `field` is at or below `target`; None if there is none.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        entries, _, length = self._among(target, field)
        count = self._count(entries, length, target, field)
        return self._entry.unpack_from(entries, (count - 1) * self._entry.size) if count else None

    def _count(self, entries: bytearray | mmap.mmap, length: int, target: int, field: int) -> int:
        """How many of the first `length` entries have a `field` at or below `target`."""
        entry_bytes, at, field_bytes = _place(self._entry.format, field)
        return count_until(entries, length, entry_bytes, at, field_bytes, target)

    def _among(self, target: int, field: int) -> tuple[bytearray | mmap.mmap, int, int]:
        """The entries with the last one whose `field` is at or below `target`, if there is one; how many entries come
        before these, and how many these are."""
        written, tail, entry = self._written, self._tail, self._entry
        if written and not (tail and entry.unpack_from(tail)[field] <= target):
            return self._mapped(), 0, written
        return tail, written, len(tail) // entry.size

    def _mapped(self) -> mmap.mmap:
        """The written entries. To touch a map behind the end of its file would end the process (SIGBUS), so the size
        of the file is looked at each time.

        Raises KafkaError: KAFKA_STORAGE_ERROR, for a file that somebody else has cut short or removed.
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
        """Append what gathered in memory to the file (no fsync).

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
                os.ftruncate(fd, at)
                if self._tail and os.pwrite(fd, self._tail, at) != len(self._tail):
                    raise OSError("the disk took only a part")
            finally:
                os.close(fd)
        except OSError as error:
            raise disk_error("write", self.path, error) from error
        self._written += len(self._tail) // self._entry.size
        self._tail.clear()

    def _adopt_what_is_left(self, size: int) -> None:
        """The file, which is about to be continued, has `size` bytes. If somebody else has cut it, the entries that
        are gone stay out: look-ups between its neighbours take longer and find the same."""
        left = size // self._entry.size
        if left < self._written:
            logger.warning("%s was cut: %d of %d entries are left", self.path, left, self._written)
            self._written = left

    def keep(self, count: int) -> None:
        """Drop all entries but the first `count`."""
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
        """The file, which was not touched since, has so many entries."""
        self._written = count

    def adopt_file(self) -> bool:
        """Take the entries of an existing file as they are; False if the file is missing or oddly sized."""
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
        """Write nothing to the file before `replace_file`: it may be trusted as it is by whoever opens it next."""
        self._write_from_bytes = sys.maxsize

    def replace_file(self) -> None:
        """Put the entries, all of which were held back since `reset`, durably in the place of the file.

        Raises KafkaError: KAFKA_STORAGE_ERROR; the file is as it was.
        """
        assert not self._written, f"{self._file} has entries that were not held back"
        self._files.forget_map(self._file)
        write_atomically(self.path, self._tail, sync=True)
        self._written = len(self._tail) // self._entry.size
        self._tail.clear()
        self._write_from_bytes = _TAIL_BYTES_MAX

    def reset(self) -> None:
        """Start over with no entry, whatever the file holds."""
        self._files.forget_map(self._file)
        self._tail.clear()
        self._written = 0


@cache
def _place(entry: str, field: int) -> tuple[int, int, int]:
    """The size of an entry of this format, where in it a field begins, and the field's size."""
    at = struct.calcsize(entry[: 1 + field])
    return struct.calcsize(entry), at, struct.calcsize(entry[0] + entry[1 + field])
