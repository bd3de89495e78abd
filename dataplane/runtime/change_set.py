"""What has moved, for whoever would otherwise look at everything from time to time, most of which is idle.

Pure. All calls come from one thread, the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class ChangesSince(Generic[_T]):
    """What has moved since one reader asked last; everything when it asks first."""

    __slots__ = ("_everything", "_source", "_waiting")

    def __init__(self, source: ChangeSet[_T], everything: Callable[[], Iterable[_T]]) -> None:
        self._source = source
        self._everything = everything
        self._waiting: dict[_T, None] | None = None

    def take(self) -> dict[_T, None]:
        """Each once, in the order in which it was noted. What is gone since is among them: look at what is there."""
        self._source.share_out()
        taken, self._waiting = self._waiting, {}
        if taken is not None:
            return taken
        self._source.readers.append(self)
        return dict.fromkeys(self._everything())

    def __contains__(self, item: _T) -> bool:
        """Whether it is to be taken next."""
        return self._waiting is None or item in self._waiting or self._source.is_fresh(item)

    def hear(self, moved: dict[_T, None]) -> None:
        """Keep these until they are taken."""
        assert self._waiting is not None
        self._waiting |= moved


class ChangeSet(Generic[_T]):
    """Notes of what has moved. A reader costs nothing before it asks first, and must go on asking then."""

    __slots__ = ("_fresh", "note", "readers")

    def __init__(self) -> None:
        self._fresh: dict[_T, None] = {}
        self.readers: list[ChangesSince[_T]] = []
        """Those that have asked."""
        self.note: Callable[[_T], None] = self._fresh.setdefault
        """This one has moved. It is called for each append, so it is no more than an entry in a table."""

    def since(self, everything: Callable[[], Iterable[_T]]) -> ChangesSince[_T]:
        """A new reader; `everything` is all there is at the time."""
        return ChangesSince(self, everything)

    def is_fresh(self, item: _T) -> bool:
        """Whether it was noted, and not shared out yet."""
        return item in self._fresh

    def share_out(self) -> None:
        """Hand what was noted to all readers."""
        if self._fresh:
            for reader in self.readers:
                reader.hear(self._fresh)
            self._fresh.clear()
