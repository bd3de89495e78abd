"""The order of records with the same key in a share partition (`ottla.share.ordering=key`).

Of the unfinished records of a key only the first may be delivered. So a key stays blocked from the acquisition of a
record to its end, also while the record is released, delayed, or waits for its dead letter. Keys are known by a hash.
Two keys with one hash are kept in order, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
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

    __slots__ = ("_keys", "_queues", "_read", "walked_to")

    def __init__(self, start: int) -> None:
        self.walked_to = start
        """First offset that the walk has not reached. No record from it on may be delivered."""
        # Keys that were read, up to the next read. The walk takes those from `walked_to` on.
        self._read = _NOTHING
        self._keys: dict[int, int] = {}
        self._queues: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """Return the number of records whose keys are in memory."""
        return len(self._keys) + len(self._read.offsets)

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

    def add(self, offset: int, key: int) -> None:
        """Add an unfinished record behind all records that were added before."""
        self._keys[offset] = key
        self._queues.setdefault(key, []).append(offset)

    def is_blocked(self, offset: int) -> bool:
        """Return whether an earlier record of the same key is unfinished."""
        key = self._keys.get(offset)
        return key is not None and self._queues[key][0] != offset

    def finish(self, first: int, last: int) -> list[int]:
        """Remove the records between two offsets. Return the records that are the first of their keys now."""
        freed: list[int] = []
        for offset in list(self._known(first, last)):
            key = self._keys.pop(offset)
            queue = self._queues[key]
            was_first = queue[0] == offset
            queue.remove(offset)
            if not queue:
                del self._queues[key]
            elif was_first:
                freed.append(queue[0])
        return [offset for offset in freed if offset in self._keys]

    def blocked(self, first: int, last: int) -> list[int]:
        """Return the blocked records between two offsets."""
        return [offset for offset in self._known(first, last) if self.is_blocked(offset)]

    def _known(self, first: int, last: int) -> Iterable[int]:
        if last - first < len(self._keys):
            return (offset for offset in range(first, last + 1) if offset in self._keys)
        return (offset for offset in self._keys if first <= offset <= last)

    def check(self) -> None:
        """Assert that both indexes agree."""
        found = {offset: key for key, queue in self._queues.items() for offset in queue}
        assert found == self._keys
        assert all(queue == sorted(queue) for queue in self._queues.values())
