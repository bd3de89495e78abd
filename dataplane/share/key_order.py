"""The order of records with the same key in a share partition (`ottla.share.ordering=key`).

Of the unfinished records of a key only the first may be delivered. So a key stays blocked from the acquisition of a
record to its end, also while the record is released, delayed, or waits for its dead letter. Keys are known by a hash.
Two keys with one hash are kept in order, too.
"""

from __future__ import annotations

from collections.abc import Iterable


class KeyOrder:
    """The unfinished records of each key, in the order of offsets, as far as their keys are known.

    The memory is bounded by the number of unfinished records in the window.
    """

    __slots__ = ("_keys", "_queues", "walked_to")

    def __init__(self, start: int) -> None:
        self.walked_to = start
        """First offset whose key is not known. A record behind it may not be delivered before its key is known."""
        self._keys: dict[int, int] = {}
        self._queues: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._keys)

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
