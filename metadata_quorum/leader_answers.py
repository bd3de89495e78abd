"""The active leader's answers to questions of brokers. Other nodes do not answer, since only the leader knows the state
of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.messages.app_version_questions import AskAppVersions
from ..protocol.messages.transaction_questions import TransactionQuestion
from .app_version_answers import AppVersionAnswers
from .broker_sessions import BrokerSession
from .liveness import SessionTracker
from .marker_reports import MarkerReports
from .quorum_status import OffsetMarks, status
from .raft.node import RaftNode
from .state.app_version_history import AppVersionHistory
from .transaction_questions import TransactionAnswers


class LeaderAnswers:
    """The active leader's answers to questions that a broker's metadata image does not answer: quorum status,
    transactions, application versions."""

    def __init__(
        self,
        node_id: int,
        voters: Mapping[int, tuple[str, int]],
        raft: RaftNode,
        image: Callable[[], ClusterImage],
        app_versions: Callable[[], AppVersionHistory],
        tracker: SessionTracker,
        marks: OffsetMarks,
        reports: MarkerReports,
        now: Callable[[], float],
    ) -> None:
        """`now` returns monotonic seconds."""
        self._node_id = node_id
        self._voters = voters
        self._raft = raft
        self._image = image
        self._version_history = app_versions
        self._tracker = tracker
        self._marks = marks
        self._reports = reports
        self._now = now
        self._transactions = TransactionAnswers()
        self._app_versions = AppVersionAnswers()

    def status(self, session: BrokerSession, question: int) -> None:
        """Send the replication progress of all quorum nodes and brokers to the broker that asked."""
        replication = self._raft.replication
        if replication is not None:
            session.send(
                status(
                    question,
                    self._node_id,
                    self._raft.term,
                    self._voters,
                    replication,
                    self._raft.abstaining,
                    self._tracker.sightings(self._now()),
                    self._marks,
                    round(time.time() * 1000),
                )
            )

    def transactions(self, session: BrokerSession, question: TransactionQuestion) -> None:
        """Answer a question about transactions.

        A majority has confirmed this leader recently, and the answer includes every outcome that a client may have
        received.
        """
        if self._raft.is_leader:
            self._reports.once_applied(lambda: self._answer(session, question))

    def app_versions(self, session: BrokerSession, question: AskAppVersions) -> None:
        """Send a page of the application versions at a cut (a position in the order of commits) to the broker that
        asked."""
        if self._raft.is_leader:
            offset = self._image().offset
            session.send(
                self._app_versions.answer(session.broker_id, question, self._version_history(), offset)
            )

    def forget(self, broker_id: int) -> None:
        """Drop the unfinished listings of a broker whose session has ended."""
        self._transactions.forget(broker_id)
        self._app_versions.forget(broker_id)

    def _answer(self, session: BrokerSession, question: TransactionQuestion) -> None:
        if self._raft.is_leader:
            image = self._image()
            session.send(
                self._transactions.answer(session.broker_id, question, image.transactions, image.offset)
            )
