"""Brokers' commands on their way into the Raft log, and the replies on their way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.cluster.transaction_table import TransactionMetadata
from ..protocol.messages.broker_commands import RegisterBroker
from ..protocol.messages.command import Command
from ..protocol.messages.partition_commands import AlterPartition, ElectionType, ElectLeaders
from ..protocol.messages.quorum_commands import Session, decode_command, encode_command, encode_result
from ..protocol.messages.quorum_session import CommandReply, CommandStatus, SubmitCommand
from ..protocol.messages.transaction_commands import AddToTransaction, EndTransaction, ReportMarkers
from ..protocol.wire.codec import MalformedMessage
from .admin_audit import AdminAudit
from .broker_sessions import BrokerSession
from .feed import MetadataFeed
from .history_check import HistoryCheck
from .leader_duties import LeaderDuties
from .marker_reports import MarkerReports
from .raft.effects import NotLeader, OutcomeUnknown, Overloaded
from .raft.node import RaftNode
from .state.controller import Applied
from .transactional_id_room import refusal_for_room

_DECODED_ONCE = (AddToTransaction, AlterPartition, EndTransaction, ReportMarkers)
"""Those of transactions are nearly all commands, and an ISR change may be about a thousand partitions. Nothing changes
them on the way: they need not be decoded twice."""


class CommandReplies:
    """How one node replies to those who submit commands: brokers, and operators who hold the cluster secret."""

    def __init__(self, node_id: int, raft: RaftNode) -> None:
        self._node_id = node_id
        self._raft = raft

    def to_proposed(self, sequence: int, applied: object, error: Exception | None) -> CommandReply:
        """What came of a command that this node has proposed. Raises `error` unless it is one that has a reply."""
        if isinstance(error, OutcomeUnknown):
            return CommandReply(sequence=sequence, status=CommandStatus.UNKNOWN)
        if isinstance(error, NotLeader | Overloaded):
            return self.not_leader(sequence)
        if error is not None:
            raise error
        assert isinstance(applied, Applied)
        return CommandReply(
            sequence=sequence,
            status=applied.status,
            leader_id=self._node_id,
            metadata_offset=applied.metadata_offset,
            result=applied.result,
        )

    def not_leader(self, sequence: int) -> CommandReply:
        """Another node has to be asked: the leader, as far as it is known."""
        leader_id = self._raft.leader_id
        return CommandReply(
            sequence=sequence,
            status=CommandStatus.NOT_LEADER,
            leader_id=-1 if leader_id is None else leader_id,
        )


class CommandIntake:
    """Proposes what a broker may command while this node leads, and replies to all the rest at once."""

    def __init__(
        self,
        raft: RaftNode,
        replies: CommandReplies,
        feed: MetadataFeed,
        duties: LeaderDuties,
        reports: MarkerReports,
        history: HistoryCheck,
        people: AdminAudit,
        image: Callable[[], ClusterImage],
        tell_settled: Callable[[Iterable[TransactionMetadata]], None],
        foresee: Callable[[bytes, tuple[Session | None, Command[Any]]], None],
        forget_foreseen: Callable[[bytes], None],
    ) -> None:
        """`tell_settled` is given decided transactions that have all their markers. `foresee` is given commands that
        go into the log as they came, and what they say, and `forget_foreseen` those of which nothing came here."""
        self._foresee = foresee
        self._forget_foreseen = forget_foreseen
        self._raft = raft
        self._replies = replies
        self._feed = feed
        self._duties = duties
        self._reports = reports
        self._history = history
        self._people = people
        self._image = image
        self._tell_settled = tell_settled

    def submitted(self, session: BrokerSession, message: SubmitCommand) -> None:
        """Into the log with it, if the broker speaks for itself and this node leads."""
        told = _speaks_for_itself(session, message.command)
        if told is None:
            session.reply(CommandReply(sequence=message.sequence, status=CommandStatus.INVALID))
            return
        if not self._raft.is_leader:
            session.reply(self._replies.not_leader(message.sequence))
            return
        encoded = message.command
        sender, command = told
        if isinstance(command, ElectLeaders) and command.election_type == ElectionType.UNCLEAN:
            # Brokers do not know how far the others' logs reach; this node has heard it.
            command.progress = self._duties.leaderless_progress(command.partitions)
            encoded = encode_command(sender, command)
        if not self._people.check(session.broker_id, message, command):
            encoded = encode_command(sender, command)
        no_room = refusal_for_room(self._image(), command)
        if no_room is not None:
            encoded = encode_command(sender, command)

        def done(applied: object, error: Exception | None) -> None:
            if error is not None:
                # It is sent again as other bytes: they say which results have arrived since.
                self._forget_foreseen(encoded)
            if isinstance(applied, Applied):
                self._people.applied(session.broker_id, message, command, applied.changes)
            reply = self._replies.to_proposed(message.sequence, applied, error)
            if no_room is not None and reply.status == CommandStatus.APPLIED:
                reply.result = encode_result(no_room)
            session.reply(reply)

        def compared(lacks: bool | None) -> None:
            if lacks is None:
                session.reply(self._replies.not_leader(message.sequence))
            elif lacks:
                session.reply(self._history_lost(message.sequence))
            else:
                self._reports.propose_behind(encoded, done)

        if isinstance(command, _DECODED_ONCE):
            self._foresee(encoded, told)
        if isinstance(command, ReportMarkers):
            self._tell_settled(self._reports.take(command, encoded, done))
        elif self._history.lacks(message.reached_offset, message.reached_history):
            self._history.compare(
                session.broker_id, message.reached_offset, message.reached_history, compared
            )
        else:
            self._reports.propose_behind(encoded, done)

    def _history_lost(self, sequence: int) -> CommandReply:
        return CommandReply(
            sequence=sequence,
            status=CommandStatus.HISTORY_LOST,
            metadata_offset=self._feed.end_offset,
        )


def _speaks_for_itself(session: BrokerSession, encoded: bytes) -> tuple[Session | None, Command[Any]] | None:
    """The command, if it may be taken. A broker submits in its own name; outside of any session it only registers."""
    try:
        sender, command = decode_command(encoded)
    except MalformedMessage:
        return None
    if sender is not None:
        own = sender.broker_id == session.broker_id
    else:
        own = (
            isinstance(command, RegisterBroker)
            and command.broker_id == session.broker_id
            and command.incarnation == session.incarnation
        )
    return (sender, command) if own else None
