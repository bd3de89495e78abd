"""A set of changed items that several readers drain independently. The readers need not visit all items, most of which
are idle.

Pure. All calls come from one thread, the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class ChangesSince(Generic[_T]):
    """One reader's view of a `ChangeSet`. It has the items that changed since the reader's last `take`; before the
    first `take` it has all items.
    """

    __slots__ = ("_everything", "_source", "_waiting")

    def __init__(self, source: ChangeSet[_T], everything: Callable[[], Iterable[_T]]) -> None:
        self._source = source
        self._everything = everything
        self._waiting: dict[_T, None] | None = None

    def take(self) -> dict[_T, None]:
        """Return the items that changed since the last `take`, each once, in the order in which they were noted. Items
        that no longer exist may be among them.
        """
        self._source.share_out()
        taken, self._waiting = self._waiting, {}
        if taken is not None:
            return taken
        self._source.readers.append(self)
        return dict.fromkeys(self._everything())

    def __contains__(self, item: _T) -> bool:
        """Return whether the next `take` will return the item, because it has changed."""
        return self._waiting is None or item in self._waiting or self._source.is_fresh(item)

    def hear(self, moved: dict[_T, None]) -> None:
        """Add changed items, which are kept until the next `take`. The change set calls this."""
        assert self._waiting is not None
        self._waiting |= moved


class ChangeSet(Generic[_T]):
    """A set of changed items, which each reader drains by `take` of its own view (`ChangesSince`). A reader costs
    nothing before its first `take`, and must go on taking after it.
    """

    __slots__ = ("_fresh", "note", "readers")

    def __init__(self) -> None:
        self._fresh: dict[_T, None] = {}
        self.readers: list[ChangesSince[_T]] = []
        """The readers that have called `take`."""
        self.note: Callable[[_T], None] = self._fresh.setdefault
        """Note that an item has changed. It is called for each append, so it only adds an entry to a table."""

    def since(self, everything: Callable[[], Iterable[_T]]) -> ChangesSince[_T]:
        """Return a view for a new reader. `everything` returns all present items, for the reader's first `take`."""
        return ChangesSince(self, everything)

    def is_fresh(self, item: _T) -> bool:
        """Return whether the item was noted as changed and not yet passed to the readers' views."""
        return item in self._fresh

    def share_out(self) -> None:
        """Pass the items noted as changed to the views of all readers."""
        if self._fresh:
            for reader in self.readers:
                reader.hear(self._fresh)
            self._fresh.clear()
