"""The file `.txnindex`: aborted transactions whose markers are in a segment, in Kafka's format.

A segment without any has no such file. Entries are in the order of the markers, so their last offsets rise. The entries
of an active segment are kept in memory, and recovery finds them again in the log.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

from ..durable_files import read_file
from ..storage_errors import BrokenBatch, damage, disk_error
from .aborted_transaction import AbortedTransaction
from .descriptors import FileCache
from .sparse_index import SparseIndex

_ENTRY = struct.Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
_VERSION = 0
_LAST_OFFSET = 3


class TransactionIndex(SparseIndex):
    """The transaction index of one segment: the aborted transactions whose markers the segment has."""

    __slots__ = ("is_incomplete",)

    def __init__(self, path: Path | str, files: FileCache) -> None:
        super().__init__(path, _ENTRY, files)
        self.is_incomplete = False
        """True if the segment has markers that were not read since the index was reset."""

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction that ends above all others, without access to the disk."""
        self._tail += _ENTRY.pack(_VERSION, *aborted)

    def transaction(self, number: int) -> AbortedTransaction:
        """Return the aborted transaction in the index entry at position `number`. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        _, *aborted = self.fields(number)
        return AbortedTransaction._make(aborted)

    def transactions(self) -> list[AbortedTransaction]:
        """Return the aborted transactions of the segment, one for each index entry. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        return [self.transaction(number) for number in range(len(self))]

    def collect(self, fetch_offset: int, upper_bound: int, found: list[AbortedTransaction]) -> bool:
        """Add to `found` the transactions that reach from below `upper_bound` to `fetch_offset` or further. Returns
        True if no later segment can have one. It works like Kafka's `collectAbortedTxns`.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        for number in range(self.find(fetch_offset - 1, _LAST_OFFSET) + 1, len(self)):
            aborted = self.transaction(number)
            if aborted.first_offset < upper_bound:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound:
                return True
        return False

    def truncate(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        if len(self):
            self.keep(self.find(offset - 1, _LAST_OFFSET) + 1)

    def write(self) -> None:
        """Append the entries in memory to the file (no fsync). Without any entry there is no file. An incomplete index
        does not change the file.

        Raises KafkaError: KAFKA_STORAGE_ERROR; the entries stay in memory.
        """
        if self.is_incomplete:
            return
        if len(self):
            super().write()
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise disk_error("delete", self.path, error) from error

    def _adopt_what_is_left(self, size: int) -> None:
        """Refuse a shortened file: consumers would get the data of aborted transactions whose entries are missing.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        expected = self.size - len(self._tail)
        if size < expected:
            reason = f"the file should have {expected} bytes"
            raise damage(self.path, size, reason) from BrokenBatch(size, reason)

    def complete(self, *, write: bool) -> None:
        """Note that the index has the aborts of all markers in the segment, read since the index was reset. With
        `write` the index is written at once and replaces any older file.

        Raises KafkaError: KAFKA_STORAGE_ERROR; the older file is intact.
        """
        self.is_incomplete = False
        if not write:
            return
        if not self._tail:
            self.write()
            return
        self.replace_file()

    def write_even_if_empty(self) -> None:
        """Write the index like `write`, but leave an empty file rather than none. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        super().write()

    def reset(self) -> None:
        """Empty the index in memory, whatever the file holds."""
        super().reset()
        self.is_incomplete = False

    def adopt_file(self) -> bool:
        """Use the entries of the file, or none if there is no file. Returns False if its content cannot be what was
        written."""
        self.reset()
        try:
            data = read_if_there(self.path)
        except OSError:
            return False
        if not data:
            return True
        try:
            decode_transactions(data)
        except ValueError:
            return False
        return super().adopt_file()


def read_if_there(path: Path) -> bytes:
    """Return the bytes of a file, or none if there is no file. Raises OSError."""
    try:
        return read_file(path)
    except FileNotFoundError:
        return b""


def decode_transactions(data: bytes) -> list[AbortedTransaction]:
    """Return the entries of a file. Raises ValueError if they cannot be what was written."""
    if len(data) % _ENTRY.size:
        raise ValueError(f"{len(data)} bytes are no entries of {_ENTRY.size}")
    found = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise ValueError(f"version {version} is not supported")
        found.append(AbortedTransaction._make(fields))
    for aborted in found:
        if not 0 <= aborted.first_offset <= aborted.last_offset or aborted.last_stable_offset < 0:
            raise ValueError(f"{aborted} ends before it begins")
    for before, after in pairwise(found):
        if after.last_offset <= before.last_offset:
            raise ValueError(f"{after} does not follow {before}")
    return found
