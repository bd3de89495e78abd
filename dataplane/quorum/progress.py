"""What the quorum's leader is told of the broker's logs: where they end, each time that is news."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
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
    """The logs as the present leader was told of them last.

    It is told in rounds. A round is about all logs that have moved before it begins, and may take many pieces: a broker
    with tens of thousands of logs would need a long turn to tell all of them, and the leader one to hear it. When a
    round has ended the leader knows where each log ended as of the image when the round began, or later. What moves
    meanwhile is left to the next round, or none would end while many are written to.
    """

    def __init__(self, ends: Callable[[], LogEnds]) -> None:
        """`ends` is asked for once something is told."""
        self._ends = ends
        self._told: dict[LogKey, LogEnd] = {}
        self._moved: dict[LogKey, None] = {}
        """What may be news in the next round."""
        self._round: Iterator[LogKey] | None = None
        """What is left of this one."""
        self._began_at = 0
        self.told_offset = 0
        """The leader has been told of all logs as of the image at this offset, or later; 0 before it was."""

    def clear(self) -> None:
        """Another node leads: it is told everything."""
        self._told.clear()
        self._moved = dict.fromkeys(self._ends().all())
        self._round, self.told_offset = None, 0

    @property
    def is_amid_round(self) -> bool:
        """Whether more has to be told before the leader knows of all."""
        return self._round is not None

    def news(self, image_offset: int, at_most: int | None = None) -> list[PartitionProgress]:
        """The next piece, for which at most so many logs are looked at. The image is at `image_offset`."""
        self._moved |= dict.fromkeys(self._ends().moved())
        if self._round is None:
            begun, self._moved = self._moved, {}
            self._round, self._began_at = iter(begun), image_offset
        some = list(islice(self._round, at_most))
        if at_most is None or len(some) < at_most:
            self._round, self.told_offset = None, self._began_at
        return self._news_of(some)

    def _news_of(self, keys: Iterable[LogKey]) -> list[PartitionProgress]:
        ends = self._ends()
        news: list[PartitionProgress] = []
        for key in keys:
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
