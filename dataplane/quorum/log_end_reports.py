"""Reports to the quorum's leader of where this broker's logs end.

Heartbeats carry the reports. A report that is too long for one heartbeat is split into pieces; the next piece leaves
soon after the leader has answered the heartbeat with the piece before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

from ...protocol.messages.quorum_session import PartitionProgress

LOGS_AT_ONCE = 1000
"""The most logs that a piece looks at. The broker takes about five milliseconds to make such a piece, and the leader
as long to read it."""
NEXT_AFTER_S = 0.02
"""Seconds between the leader's answer to a piece and the next piece."""

LogKey = tuple[bytes, int]
"""Topic id and partition."""
LogEnd = tuple[int, int]
"""Leader epoch of the last record, and log end offset."""


class LogEnds(Protocol):
    """The end offsets of the logs on this broker, and which have changed."""

    def all(self) -> Iterable[LogKey]:
        """Return the keys of all logs of this broker."""
        ...

    def moved(self) -> Iterable[LogKey]:
        """Return the logs that may have a new end, were added or were removed since the last call.

        Idle logs may be among them, but not each time.
        """
        ...

    def end_of(self, key: LogKey) -> LogEnd | None:
        """Return the end of a log; None if this broker has no such log."""
        ...


class NoLogs:
    """The log ends of a broker without logs."""

    def all(self) -> Iterable[LogKey]:
        """Return no key."""
        return ()

    def moved(self) -> Iterable[LogKey]:
        """Return no key."""
        return ()

    def end_of(self, _key: LogKey) -> LogEnd | None:
        """Return None."""
        return None


class LogEndReports:
    """Reports to the quorum's leader of log ends, split into pieces that each fit into a heartbeat. `send` sends the
    leader a heartbeat, which asks for the next piece.

    A new leader receives reports about all logs of all brokers, which may be more than it can process at once. So each
    broker waits until the leader has answered the piece before. Pieces that queue up at the leader would keep its event
    loop from all other work.
    """

    def __init__(self, log_ends: Callable[[], LogEnds], send: Callable[[], None]) -> None:
        self._reported = ReportedLogEnds(log_ends)
        self._send = send
        self._at_most: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered = 0
        """Number of the heartbeat with the last piece if it is unanswered and more pieces are to follow; else 0."""

    @property
    def reported_offset(self) -> int:
        """A metadata offset: the leader has a report of all log ends as of the image at this offset, or later. 0 while
        it has none."""
        return self._reported.reported_offset

    @property
    def is_amid_round(self) -> bool:
        """True if more pieces of the present report are to follow, so that the leader has to answer the heartbeat with
        the last piece."""
        return self._reported.is_amid_round

    def new_leader(self, *, takes_pieces: bool) -> None:
        """Begin a report of all log ends, for a new leader of the quorum.

        It is a single piece if the leader has an older version, which would take the first piece for the whole report.
        """
        self._reported.clear()
        self._unanswered = 0
        self._at_most = LOGS_AT_ONCE if takes_pieces else None

    def piece(self, image_offset: int, *, waits: bool) -> list[PartitionProgress] | None:
        """Return the next piece of the report (log ends of some partitions), for a heartbeat that leaves now. None if
        it `waits` and the leader has not answered the last piece.

        The regular heartbeats do not wait, since a leader may not be able to answer yet.
        """
        if waits and self._unanswered:
            return None
        self._unanswered = 0
        return self._reported.next_piece(image_offset, self._at_most)

    def sent(self, number: int) -> None:
        """Note that the heartbeat of this number carries the last piece of the report so far, and that more pieces are
        to follow."""
        self._unanswered = number

    def answered(self, number: int) -> None:
        """Note that the leader has answered the heartbeat of this number. The report's next piece follows after a
        moment."""
        if 0 < self._unanswered <= number:
            self._unanswered = 0
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(NEXT_AFTER_S, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        if self._reported.is_amid_round:
            self._send()

    def stop(self) -> None:
        """Cancel the timer that sends the report's next piece."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ReportedLogEnds:
    """The log ends that the present leader knows from reports.

    Reports go in rounds. A round covers all logs that moved before the round began, and may take many pieces: a broker
    with tens of thousands of logs would need a long turn of its event loop for a single piece, and so would the leader.
    After a round the leader knows each log's end as of the image when the round began, or later. Logs that move during
    a round belong to the next one; otherwise no round would end while many logs are written to.
    """

    def __init__(self, ends: Callable[[], LogEnds]) -> None:
        """`ends` is called only when a report is made, not here."""
        self._ends = ends
        self._known: dict[LogKey, LogEnd] = {}
        self._moved: dict[LogKey, None] = {}
        """Logs for the next round."""
        self._round: Iterator[LogKey] | None = None
        """Logs that the present round has not looked at yet; None between rounds."""
        self._began_at = 0
        self.reported_offset = 0
        """An offset of the image: the leader has a report of all logs as of this image, or of a later one. 0 while it
        has none."""

    def clear(self) -> None:
        """Forget what log ends the former leader knows, since another node leads and needs a report of all logs."""
        self._known.clear()
        self._moved = dict.fromkeys(self._ends().all())
        self._round, self.reported_offset = None, 0

    @property
    def is_amid_round(self) -> bool:
        """True if a round of reports has begun and needs more pieces."""
        return self._round is not None

    def next_piece(self, image_offset: int, at_most: int | None = None) -> list[PartitionProgress]:
        """Return the next piece of the report: among the next `at_most` logs of the round, the ends that the leader
        does not know.

        A new round begins if none is under way. `image_offset` is the present offset of the image.
        """
        self._moved |= dict.fromkeys(self._ends().moved())
        if self._round is None:
            begun, self._moved = self._moved, {}
            self._round, self._began_at = iter(begun), image_offset
        keys = list(islice(self._round, at_most))
        if at_most is None or len(keys) < at_most:
            self._round, self.reported_offset = None, self._began_at
        return self._unknown_ends(keys)

    def _unknown_ends(self, keys: Iterable[LogKey]) -> list[PartitionProgress]:
        ends = self._ends()
        unknown: list[PartitionProgress] = []
        for key in keys:
            end = ends.end_of(key)
            if end is None:
                self._known.pop(key, None)
            elif self._known.get(key) != end:
                self._known[key] = end
                unknown.append(_progress(key, end))
        return unknown


def _progress(key: LogKey, end: LogEnd) -> PartitionProgress:
    (topic_id, partition), (leader_epoch, log_end_offset) = key, end
    return PartitionProgress(
        topic_id=topic_id, partition=partition, leader_epoch=leader_epoch, log_end_offset=log_end_offset
    )
