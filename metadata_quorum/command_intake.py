"""The path of brokers' commands into the Raft log, and of the replies back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.cluster.transaction_table import TransactionMetadata
from ..protocol.errors import ErrorCode
from ..protocol.messages.broker_commands import RegisterBroker
from ..protocol.messages.command import Command
from ..protocol.messages.partition_commands import AlterPartition, ElectionType, ElectLeaders
from ..protocol.messages.quorum_commands import Session, decode_command, encode_command, encode_result
from ..protocol.messages.quorum_session import CommandReply, CommandStatus, SubmitCommand
from ..protocol.messages.transaction_commands import (
    AddToTransaction,
    EndTransaction,
    InitTransactionalId,
    InitTransactionalIdResult,
    ReportMarkers,
)
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

_DECODED_ONCE = (AddToTransaction, AlterPartition, EndTransaction, ReportMarkers)
"""Commands that are decoded only once, since nothing changes them on the way. Transaction commands are nearly all
commands, and an ISR change may cover a thousand partitions."""
TRANSACTIONAL_IDS_MAX: Final = 2_000_000
"""Limit for transactional ids. Each takes a kilobyte on every quorum node, until `transactional.id.expiration.ms` after
its last use."""
_NEVER_GIVEN_OUT: Final = 2**62


class CommandReplies:
    """The factory of this node's replies to commands, which brokers and operators with the cluster secret have
    submitted."""

    def __init__(self, node_id: int, raft: RaftNode) -> None:
        self._node_id = node_id
        self._raft = raft

    def to_proposed(self, sequence: int, applied: object, error: Exception | None) -> CommandReply:
        """Return the reply to a command that this node has proposed to Raft, from its result `applied` or its error.
        Errors that a broker should not see are raised again."""
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
        """Return a reply that names the leader, if one is known."""
        leader_id = self._raft.leader_id
        return CommandReply(
            sequence=sequence,
            status=CommandStatus.NOT_LEADER,
            leader_id=-1 if leader_id is None else leader_id,
        )


class CommandIntake:
    """The leader's intake of brokers' commands: it checks each command, proposes it to Raft, and sends the reply. A
    node that does not lead answers NOT_LEADER."""

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
        keep_decoded: Callable[[bytes, tuple[Session | None, Command[Any]]], None],
        drop_decoded: Callable[[bytes], None],
    ) -> None:
        """Set the callbacks. `tell_settled` receives decided transactions that have all their markers.

        `keep_decoded` receives the decoded form of commands that go into the log unchanged; `drop_decoded` receives
        commands that failed here.
        """
        self._keep_decoded = keep_decoded
        self._drop_decoded = drop_decoded
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
        """Propose a command, if the broker submits it in its own name and this node leads."""
        decoded = _speaks_for_itself(session, message.command)
        if decoded is None:
            session.reply(CommandReply(sequence=message.sequence, status=CommandStatus.INVALID))
            return
        if not self._raft.is_leader:
            session.reply(self._replies.not_leader(message.sequence))
            return
        encoded = message.command
        sender, command = decoded
        if isinstance(command, ElectLeaders) and command.election_type == ElectionType.UNCLEAN:
            # Brokers do not know the ends of other brokers' logs; this node knows them from heartbeats.
            command.progress = self._duties.leaderless_progress(command.partitions)
            encoded = encode_command(sender, command)
        if not self._people.check(session.broker_id, message, command):
            encoded = encode_command(sender, command)
        no_room = refusal_for_room(self._image(), command)
        if no_room is not None:
            encoded = encode_command(sender, command)

        def done(applied: object, error: Exception | None) -> None:
            if error is not None:
                # A repetition has different bytes, since it lists the results that have arrived since.
                self._drop_decoded(encoded)
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
            self._keep_decoded(encoded, decoded)
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
    """Decode a command that a broker submits in its own name; None if it is unreadable or names another broker, and
    must be refused. Without a command session a broker may only register."""
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


def refusal_for_room(
    image: ClusterImage, command: Command[Any], ids_max: int = TRANSACTIONAL_IDS_MAX
) -> InitTransactionalIdResult | None:
    """Return the refusal of a command for one more transactional id than the limit, else None. Only the leader knows
    the number of ids.

    A refused command still goes into the log, since its broker's commands are numbered. So it is changed into a command
    that every version refuses without an effect: the continuation of a known id under a producer id that the id never
    had.
    """
    known = image.transactions.by_id
    if (
        not isinstance(command, InitTransactionalId)
        or len(known) < ids_max
        or command.transactional_id in known
        or not known
    ):
        return None
    command.transactional_id = next(iter(known))
    command.producer_id, command.producer_epoch = _NEVER_GIVEN_OUT, 0
    return InitTransactionalIdResult(
        error_code=ErrorCode.POLICY_VIOLATION,
        error_message=f"There are {len(known)} transactional ids already: at most {ids_max} are allowed.",
    )
