"""Reports of markers on their way into the Raft log of the active leader.

That a transaction has all its markers is true once leaders have said so, before the quorum has it in writing: its
client is told at once (rule T10). And nobody waits for the entry itself until something else is to be decided: reports
wait a moment for the next command, and share its entry of the log, its write to disk and its way to the brokers.
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
"""So long a report waits for company at most."""


class ToldMarkers:
    """What leaders have told of markers, beside what the image still lacks. Pure."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        #: number of the transaction, and which writers have their markers where, by the leadership that told it
        self._told: dict[str, tuple[int, dict[tuple[int, Place], int]]] = {}

    def note(self, command: ReportMarkers) -> list[TransactionMetadata]:
        """The decided transactions that have their last marker by this."""
        image = self._image()
        broker = image.brokers.get(command.broker_id)
        if broker is None or broker.broker_epoch != command.broker_epoch:
            return []
        named: dict[str, TransactionMetadata] = {}
        for transaction, producer_id, place in reported(image, command):
            name = transaction.transactional_id
            number, markers = self._told.get(name, (-1, {}))
            if number != transaction.number:
                markers = {}
                self._told[name] = transaction.number, markers
            markers[producer_id, place] = leader_epoch(image, place)
            named[name] = transaction
        return [one for one in named.values() if self._is_settled(one)]

    def changed(self, transactional_ids: Iterable[str]) -> None:
        """The image has something new of these."""
        decided = self._image().transactions.decided
        for name in transactional_ids:
            if name in self._told and name not in decided:
                del self._told[name]

    def clear(self) -> None:
        """This node leads no more."""
        self._told.clear()

    def _is_settled(self, transaction: TransactionMetadata) -> bool:
        """A marker that an earlier leadership told of is not in this one's log for sure: it may have been elected
        uncleanly, and tells itself of what it has written."""
        _, markers = self._told[transaction.transactional_id]
        if len(markers) < sum(transaction.lacking.values()):
            return False
        image = self._image()
        return all(
            markers.get((writer.producer_id, place)) == leader_epoch(image, place)
            for writer, place in transaction.outstanding
        )


class MarkerReports:
    """One writer: the event loop."""

    def __init__(self, told: ToldMarkers, propose: Callable[[bytes, Done], None]) -> None:
        self._told = told
        self._propose = propose
        self._held: list[tuple[bytes, Done]] = []
        self._timer: asyncio.TimerHandle | None = None
        #: what waits for the last one proposed, while that is on its way
        self._behind_last: list[Callable[[], None]] | None = None

    def take(self, command: ReportMarkers, encoded: bytes, done: Done) -> list[TransactionMetadata]:
        """Have it proposed soon, and `done` called with what becomes of it. The transactions that are over by it."""
        self._held.append((encoded, done))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HOLD_S, self.flush)
        return self._told.note(command)

    def flush(self) -> None:
        """Something else is to be proposed, or asked: what was reported before it counts for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, []
        for encoded, done in held:
            behind: list[Callable[[], None]] = []
            self._behind_last = behind
            self._propose(encoded, partial(self._came_to_its_end, done, behind))

    def propose_behind(self, encoded: bytes, done: Done) -> None:
        """Propose something else. What was reported before it comes before it in the log."""
        self.flush()
        self._propose(encoded, done)

    def once_applied(self, then: Callable[[], None]) -> None:
        """Call this when nothing is on its way of what was reported until now."""
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
