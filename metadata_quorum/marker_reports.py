"""The path of reports that transaction markers are written, from the partitions' leaders into the Raft log.

A transaction has all its markers as soon as leaders report so, before the quorum has logged it; its client is notified
at once (rule T10). No client waits for the log entry itself until the next decision. Reports therefore wait briefly for
the next command, and share its log entry, its disk write and its distribution to brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.cluster.transaction_table import Place, TransactionMetadata
from ..protocol.messages.transaction_commands import ReportMarkers
from .raft.effects import Done
from .state.transaction_markers import leader_epoch, reported

HOLD_S = 0.005
"""Longest time that a report waits for other commands."""


class ReportedMarkers:
    """Transaction markers that partition leaders have reported as written, and the image does not show yet. Pure."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        #: by transactional id: the transaction's number, and the leader epoch of the report for each writer's partition
        self._markers: dict[str, tuple[int, dict[tuple[int, Place], int]]] = {}

    def note(self, command: ReportMarkers) -> list[TransactionMetadata]:
        """Note a leader's report of written markers. Return the decided transactions whose last missing marker it
        names."""
        image = self._image()
        broker = image.brokers.get(command.broker_id)
        if broker is None or broker.broker_epoch != command.broker_epoch:
            return []
        named: dict[str, TransactionMetadata] = {}
        for transaction, producer_id, place in reported(image, command):
            name = transaction.transactional_id
            number, markers = self._markers.get(name, (-1, {}))
            if number != transaction.number:
                markers = {}
                self._markers[name] = transaction.number, markers
            markers[producer_id, place] = leader_epoch(image, place)
            named[name] = transaction
        return [transaction for transaction in named.values() if self._is_settled(transaction)]

    def changed(self, transactional_ids: Iterable[str]) -> None:
        """Drop the reports about those of these transactions that the image now shows as complete."""
        decided = self._image().transactions.decided
        for name in transactional_ids:
            if name in self._markers and name not in decided:
                del self._markers[name]

    def clear(self) -> None:
        """Drop all reports, since this node no longer leads."""
        self._markers.clear()

    def _is_settled(self, transaction: TransactionMetadata) -> bool:
        """Return whether a decided transaction has all its markers, according to the current leaders of its partitions.

        A report of an earlier leadership does not count: the current leader may have been elected uncleanly without
        that marker, and reports its own markers.
        """
        _, markers = self._markers[transaction.transactional_id]
        if len(markers) < sum(transaction.lacking.values()):
            return False
        image = self._image()
        return all(
            markers.get((writer.producer_id, place)) == leader_epoch(image, place)
            for writer, place in transaction.outstanding
        )


class MarkerReports:
    """The reports of written markers that wait briefly to be proposed together with the next command. Only the event
    loop uses it."""

    def __init__(self, markers: ReportedMarkers, propose: Callable[[bytes, Done], None]) -> None:
        self._markers = markers
        self._propose = propose
        self._held: list[tuple[bytes, Done]] = []
        self._timer: asyncio.TimerHandle | None = None
        #: callbacks that wait for the last proposed report, while that is pending
        self._behind_last: list[Callable[[], None]] | None = None

    def take(self, command: ReportMarkers, encoded: bytes, done: Done) -> list[TransactionMetadata]:
        """Take a report of written markers, which is proposed within `HOLD_S`, and return the transactions that it
        completes. `done` gets the outcome of the proposal."""
        self._held.append((encoded, done))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HOLD_S, self.flush)
        return self._markers.note(command)

    def flush(self) -> None:
        """Propose all waiting reports now, because a following command or question must see them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, []
        for encoded, done in held:
            behind: list[Callable[[], None]] = []
            self._behind_last = behind
            self._propose(encoded, partial(self._came_to_its_end, done, behind))

    def propose_behind(self, encoded: bytes, done: Done) -> None:
        """Propose another command; earlier reports precede it in the log."""
        self.flush()
        self._propose(encoded, done)

    def once_applied(self, then: Callable[[], None]) -> None:
        """Propose all waiting reports, and call `then` once they are applied or have failed."""
        self.flush()
        if self._behind_last is None:
            then()
        else:
            self._behind_last.append(then)

    def _came_to_its_end(
        self, done: Done, behind: list[Callable[[], None]], result: object, error: Exception | None
    ) -> None:
        if self._behind_last is behind:
            self._behind_last = None
        done(result, error)
        for then in behind:
            then()
