"""The order of records with the same key in a share partition (`ottla.share.ordering=key`).

Of the unfinished records of a key only the first may be delivered. So a key stays blocked from the acquisition of a
record to its end, also while the record is released, delayed, or waits for its dead letter. Keys are known by a hash.
Two keys with one hash are kept in order, too.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple


class ReadKeys(NamedTuple):
    """Hashes of keys that were read from the log. Records without a key are left out."""

    first: int
    """Offset from which on keys were read."""
    behind: int
    """First offset whose key was not read."""
    offsets: Sequence[int]
    hashes: Sequence[int]


_NOTHING: Final = ReadKeys(0, 0, (), ())


class KeyOrder:
    """The unfinished records of each key, in the order of offsets, up to the offset that the walk has reached.

    The memory is bounded by the number of unfinished records in the window, and by the keys of one read.
    """

    __slots__ = ("_firsts", "_hashes", "_later", "_offsets", "_read", "walked_to")

    def __init__(self, start: int) -> None:
        self.walked_to = start
        """First offset that the walk has not reached. No record from it on may be delivered."""
        # Keys that were read, up to the next read. The walk takes those from `walked_to` on.
        self._read = _NOTHING
        # The unfinished records that have a key, in order, and the hashes of their keys.
        self._offsets, self._hashes = array("q"), array("q")
        # First record of each key, and the records behind it if there are any.
        self._firsts: dict[int, int] = {}
        self._later: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """Return the number of records whose keys are in memory."""
        return len(self._offsets) + len(self._read.offsets)

    @property
    def read_to(self) -> int:
        """First offset that the walk cannot pass before its key is read."""
        return max(self.walked_to, self._read.behind)

    def learn(self, keys: ReadKeys) -> None:
        """Keep keys for the walk. They have to begin at `walked_to` or before."""
        self._read = keys if keys.first <= self.walked_to < keys.behind else _NOTHING

    def walk(self, upto: int) -> Iterator[tuple[int, int]]:
        """Walk up to an offset. Returns the passed records that have a key, each with its hash."""
        offsets, hashes = self._read.offsets, self._read.hashes
        first = bisect_left(offsets, self.walked_to)
        behind = bisect_left(offsets, upto, first)
        self.walked_to = max(self.walked_to, upto)
        if self.walked_to >= self._read.behind:
            self._read = _NOTHING
        return zip(offsets[first:behind], hashes[first:behind], strict=True)

    def skip(self, upto: int) -> None:
        """Walk up to an offset over records that are finished, or are not in the log."""
        self.walk(upto)

    def add(self, offset: int, key: int) -> bool:
        """Add an unfinished record behind all records that were added before. Returns whether an earlier record of the
        key blocks it."""
        self._offsets.append(offset)
        self._hashes.append(key)
        if key in self._firsts:
            self._later.setdefault(key, []).append(offset)
            return True
        self._firsts[key] = offset
        return False

    def finish(self, first: int, last: int) -> list[int]:
        """Remove the records between two offsets. Return the records that are the first of their keys now."""
        begin, end = self._indexes(first, last)
        freed: list[int] = []
        for index in range(begin, end):
            offset, key = self._offsets[index], self._hashes[index]
            if self._firsts[key] != offset:
                self._forget_later(key, offset)
            elif key in self._later:
                # One of this range is finished in its turn.
                following = self._firsts[key] = self._later[key][0]
                self._forget_later(key, following)
                freed.append(following)
            else:
                del self._firsts[key]
        del self._offsets[begin:end], self._hashes[begin:end]
        return [offset for offset in freed if offset > last]

    def _forget_later(self, key: int, offset: int) -> None:
        later = self._later[key]
        later.remove(offset)
        if not later:
            del self._later[key]

    def blocked(self, first: int, last: int) -> list[int]:
        """Return the records between two offsets that earlier records of their keys block."""
        begin, end = self._indexes(first, last)
        rows = zip(self._offsets[begin:end], self._hashes[begin:end], strict=True)
        return [offset for offset, key in rows if self._firsts[key] != offset]

    def _indexes(self, first: int, last: int) -> tuple[int, int]:
        begin = bisect_left(self._offsets, first)
        return begin, bisect_right(self._offsets, last, begin)

    def check(self) -> None:
        """Assert that the indexes agree."""
        records: dict[int, list[int]] = {}
        for offset, key in zip(self._offsets, self._hashes, strict=True):
            records.setdefault(key, []).append(offset)
        assert list(self._offsets) == sorted(set(self._offsets))
        assert self._firsts == {key: offsets[0] for key, offsets in records.items()}
        assert self._later == {key: offsets[1:] for key, offsets in records.items() if offsets[1:]}
