"""What the quorum's leader is told of the broker's logs: where they end, each time that is news."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ...protocol.messages.quorum_session import PartitionProgress

LogKey = tuple[bytes, int]
"""Topic id and partition."""
LogEnd = tuple[int, int]
"""Leader epoch of the last record, and log end offset."""


class LogEnds(Protocol):
    """The broker's logs."""

    def all(self) -> Iterable[LogKey]:
        """Of which it has a log."""
        ...

    def moved(self) -> Iterable[LogKey]:
        """Whose log may end elsewhere, have come or gone since this was asked last; not each of all that are idle."""
        ...

    def end_of(self, key: LogKey) -> LogEnd | None:
        """Where it ends; None if there is no such log here."""
        ...


class NoLogs:
    """Of a session whose broker has none."""

    def all(self) -> Iterable[LogKey]:
        """None."""
        return ()

    def moved(self) -> Iterable[LogKey]:
        """None."""
        return ()

    def end_of(self, _key: LogKey) -> LogEnd | None:
        """There is none."""
        return None


class ToldProgress:
    """The logs as the present leader was told of them last."""

    def __init__(self, ends: Callable[[], LogEnds]) -> None:
        """`ends` is asked for once something is told."""
        self._ends = ends
        self._told: dict[LogKey, LogEnd] = {}
        self._due: dict[LogKey, None] = {}
        """What may be news, in the order in which it is told."""

    def clear(self) -> None:
        """Another node leads: it is told everything."""
        self._told.clear()
        self._due = dict.fromkeys(self._ends().all())

    def news(self) -> list[PartitionProgress]:
        """The logs that moved since."""
        ends, due = self._ends(), self._due
        self._due = {}
        due |= dict.fromkeys(ends.moved())
        news: list[PartitionProgress] = []
        for key in due:
            end = ends.end_of(key)
            if end is None:
                self._told.pop(key, None)
            elif self._told.get(key) != end:
                self._told[key] = end
                news.append(_told(key, end))
        return news


def _told(key: LogKey, end: LogEnd) -> PartitionProgress:
    (topic_id, partition), (leader_epoch, log_end_offset) = key, end
    return PartitionProgress(
        topic_id=topic_id, partition=partition, leader_epoch=leader_epoch, log_end_offset=log_end_offset
    )
