"""The distribution of applied metadata changes from the controller to the feed, the leader's duties and the brokers'
sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from ..protocol.cluster.partition_change import Change, PartitionChange
from ..protocol.cluster.transaction_table import Phase
from ..protocol.messages.metadata_records import Record, encode_record
from ..protocol.messages.transaction_records import (
    TransactionalRecord,
    TransactionRecord,
    TransactionSettledRecord,
)
from .broker_sessions import BrokerSessions
from .feed import FeedEntry, MetadataFeed
from .leader_duties import LeaderDuties
from .marker_reports import ReportedMarkers
from .quorum_status import OffsetMarks
from .raft.node import RaftNode
from .state.controller import Controller
from .state.transaction_markers import leaders_of
from .state.workspace import Scope

_PLACES_LOOKED_AT_MAX = 100
"""Number of a transaction's partitions whose leaders are notified first."""


class Publication:
    """A collector of the changes that commands make in the image. At the end of the event loop's turn it publishes them
    to the feed, the leader's duties and the brokers' sessions."""

    def __init__(
        self,
        controller: Controller,
        raft: RaftNode,
        feed: MetadataFeed,
        marks: OffsetMarks,
        duties: LeaderDuties,
        reported_markers: ReportedMarkers,
        sessions: BrokerSessions,
        now: Callable[[], float],
    ) -> None:
        """`now` returns monotonic seconds."""
        self._controller = controller
        self._raft = raft
        self._feed = feed
        self._marks = marks
        self._duties = duties
        self._reported_markers = reported_markers
        self._sessions = sessions
        self._now = now
        #: changes for the feed, which end at `_noted_end`
        self._noted: list[FeedEntry] = []
        self._noted_end = 0
        #: true if they include changes other than transactions
        self._is_of_more = True
        #: brokers that others wait for: new leaders, and leaders that must write markers of a decided transaction
        self._first: set[int] = set()

    def note(self, changes: Sequence[tuple[Scope, Change]], history: int) -> None:
        """Note one command's changes of the image for the next `publish`; `history` is the history mark after the
        command."""
        end = self._controller.image.offset
        if end - len(changes) != self._noted_end:
            self._noted.clear()
            self._is_of_more = True
        self._noted_end = end
        records: list[Record] = []
        partitions: list[PartitionChange] = []
        for scope, change in changes:
            if isinstance(change, PartitionChange):
                partitions.append(change)
                is_new = change.state.partition_epoch == 0
                self._noted.append(FeedEntry(scope, change, history, continues=is_new))
            else:
                self._noted.append(FeedEntry(scope, encode_record(change), history))
                records.append(change)
        if not self._is_of_more:
            self._is_of_more = len(records) < len(changes) or not all(
                isinstance(record, TransactionalRecord) for record in records
            )
        self._duties.noted(records, self._now(), partitions)
        self._reported_markers.changed(
            record.transactional_id for record in records if isinstance(record, TransactionSettledRecord)
        )
        if self._duties.active:
            self._note_first(changes)

    def publish(self) -> None:
        """Publish the noted changes to the feed, the duties and the sessions. If the image jumped because a Raft
        snapshot was restored, the feed restarts there instead."""
        offset = self._controller.image.offset
        self._marks.note(offset, self._raft.applied_index)
        if self._noted_end != offset:
            self._noted.clear()
            self._noted_end = offset
            self._is_of_more = True
        if offset == self._feed.end_offset:
            return
        start = offset - len(self._noted)
        if start != self._feed.end_offset:
            self._feed.restart_at(start, 0 if self._noted else self._controller.history)
        self._feed.append(self._noted)
        self._noted.clear()
        if self._is_of_more:
            self._is_of_more = False
            self._duties.image_changed(self._now())
        first, self._first = self._first, set()
        self._sessions.push(frozenset(first))

    def _note_first(self, changes: Sequence[tuple[Scope, Change]]) -> None:
        """Note the new leaders of partitions, whose brokers receive the changes first. A follower that learns of a new
        leader before that leader is refused, and retries a millisecond later."""
        image = self._controller.image
        for _, change in changes:
            if isinstance(change, PartitionChange):
                self._first.add(change.state.leader)
            elif isinstance(change, TransactionRecord) and Phase(change.phase).is_decided:
                transaction = image.transactions.by_id.get(change.transactional_id)
                if transaction is not None:
                    self._first |= leaders_of(image, islice(transaction.lacking, _PLACES_LOOKED_AT_MAX))
