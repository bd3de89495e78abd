"""Emergency connections of operators with the cluster secret, for clusters whose brokers let no administrator in: set
passwords, and create or remove ACLs. No other command is accepted.

An operator with the secret could pose as a broker and do the same, so this gives away nothing. It is logged by the node
that receives the command, and by every node that applies it, which repeats when a node replays its log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from ..protocol.cluster.acls import Acl
from ..protocol.credentials.scram import SCRAM_MECHANISMS_BY_CODE
from ..protocol.messages.acl_commands import AclFilterEntry, CreateAcls, DeleteAcls
from ..protocol.messages.command import Command
from ..protocol.messages.quorum_commands import decode_command
from ..protocol.messages.quorum_session import (
    CommandReply,
    CommandStatus,
    SubmitCommand,
    decode_session_message,
    encode_session_message,
)
from ..protocol.messages.user_commands import AlterScramCredentials
from ..protocol.wire.codec import MalformedMessage
from .command_intake import CommandReplies
from .node_connection import NodeConnection
from .raft.effects import Done
from .raft.node import RaftNode
from .state.controller import RECOVERY_COMMANDS

logger = logging.getLogger(__name__)

SESSIONS_MAX = 4
_LOGGED_MAX = 20


class OperatorSession:
    """One operator's connection (the handler of its link), with one command at a time."""

    def __init__(self, link: NodeConnection, sessions: OperatorSessions) -> None:
        self._link = link
        self._sessions = sessions
        self._waits = False

    def payload_received(self, link: NodeConnection, payload: bytes) -> None:
        message = decode_session_message(payload)
        if not isinstance(message, SubmitCommand):
            link.close(f"an operator does not send {type(message).__name__}")
        elif self._waits:
            link.close("an operator sends one command at a time", abort=True)
        else:
            self._waits = True
            self._sessions.submitted(message, self._reply)

    def link_writable(self, link: NodeConnection) -> None:
        """Do nothing: answers are small."""

    def link_closed(self, link: NodeConnection, reason: str) -> None:
        self._sessions.ended(self)

    def _reply(self, reply: CommandReply) -> None:
        self._waits = False
        self._link.send(encode_session_message(reply))


class OperatorSessions:
    """All operators' connections to this node."""

    def __init__(
        self, raft: RaftNode, replies: CommandReplies, propose: Callable[[bytes, Done], None]
    ) -> None:
        self._raft = raft
        self._replies = replies
        self._propose = propose
        self._sessions: set[OperatorSession] = set()

    def accept(self, link: NodeConnection) -> OperatorSession | None:
        """Open a session for an operator who holds the cluster secret; None if there are too many already."""
        if len(self._sessions) >= SESSIONS_MAX:
            logger.warning(
                "%d operators are connected already: %s is refused", SESSIONS_MAX, link.remote_address
            )
            return None
        logger.warning("an operator with the cluster secret has connected from %s", link.remote_address)
        session = OperatorSession(link, self)
        self._sessions.add(session)
        return session

    def ended(self, session: OperatorSession) -> None:
        """Remove a session whose link is gone."""
        self._sessions.discard(session)

    def submitted(self, message: SubmitCommand, reply: Callable[[CommandReply], None]) -> None:
        """Propose a command, if it is a command for recovery and this node leads."""

        def done(applied: object, error: Exception | None) -> None:
            reply(self._replies.to_proposed(message.sequence, applied, error))

        if not _may_be_taken(message.command):
            reply(CommandReply(sequence=message.sequence, status=CommandStatus.INVALID))
        elif not self._raft.is_leader:
            reply(self._replies.not_leader(message.sequence))
        else:
            self._propose(message.command, done)


def log_recovery(command: Command[Any]) -> None:
    """Log the effects of an operator's command on every node, without passwords."""
    for number, what in enumerate(_actions_of(command)):
        if number == _LOGGED_MAX:
            logger.warning("an operator with the cluster secret does more, which is not told here")
            return
        logger.warning("an operator with the cluster secret %s", what)


def _may_be_taken(encoded: bytes) -> bool:
    try:
        sender, command = decode_command(encoded)
    except MalformedMessage:
        return False
    return sender is None and isinstance(command, RECOVERY_COMMANDS)


def _actions_of(command: Command[Any]) -> Iterator[str]:
    match command:
        case AlterScramCredentials():
            for change in command.changes:
                mechanism = SCRAM_MECHANISMS_BY_CODE.get(change.mechanism)
                name = str(change.mechanism) if mechanism is None else mechanism.name
                verb = "sets" if change.sealed_keys else "deletes"
                yield f"{verb} the password of {change.name!r} for {name}"
        case CreateAcls():
            for acl in command.acls:
                yield f"creates the ACL {Acl.of(acl)}"
        case DeleteAcls():
            for entry in command.filters:
                yield f"removes all ACLs with {_filter_text(entry)}"


def _filter_text(entry: AclFilterEntry) -> str:
    parts = {
        "principal": entry.principal,
        "resource": entry.resource_name,
        "host": entry.host,
        "resource type": entry.resource_type,
        "pattern": entry.pattern_type,
        "operation": entry.operation,
        "permission": entry.permission,
    }
    texts = [f"{name} {value}" for name, value in parts.items() if value is not None and value != 1]
    return ", ".join(texts) or "any principal and resource"
