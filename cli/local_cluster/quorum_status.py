"""Asks quorum nodes for their leader, as a broker does: by the handshake, with the cluster secret."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from ...protocol.codec import MalformedMessage
from ...protocol.frames import FrameError
from ...protocol.handshake import (
    CHANCE_BYTES,
    DIRECTORY_ID_BYTES,
    ClientHandshake,
    HandshakeError,
    Identity,
    LinkSecurity,
    Role,
)
from ...protocol.messages.quorum_session import LeaderChanged, decode_session_message
from ...protocol.node_secrets import Secrets
from .layout import ClusterLayout, Member
from .ports import HOST

TIMEOUT_S = 1.0
NOBODY = -1


@dataclass(frozen=True, slots=True)
class QuorumAnswer:
    """What one quorum node says; `reachable` is False when it said nothing."""

    member: Member
    reachable: bool
    term: int = 0
    leader_id: int = NOBODY


def ask_quorum(layout: ClusterLayout) -> list[QuorumAnswer]:
    """What every quorum node of a local cluster says, in the order of their ids."""
    security = LinkSecurity(Secrets.parse(layout.secret_file.read_bytes()))
    return [_ask(member, security, layout.cluster_id) for member in layout.quorum]


def leader_of(answers: list[QuorumAnswer]) -> int | None:
    """The leader's id by the highest term that anyone knows a leader of; None while there is none."""
    known = [answer for answer in answers if answer.leader_id != NOBODY]
    return max(known, key=lambda answer: answer.term).leader_id if known else None


def _ask(member: Member, security: LinkSecurity, cluster_id: str) -> QuorumAnswer:
    identity = Identity(NOBODY, os.urandom(DIRECTORY_ID_BYTES), cluster_id)
    handshake = ClientHandshake(security, identity, Role.BROKER, os.urandom(CHANCE_BYTES))
    try:
        with socket.create_connection((HOST, member.port), TIMEOUT_S) as connection:
            while not handshake.done:
                connection.sendall(handshake.receive(_some(connection)))
            data = handshake.leftover
            while not (payloads := handshake.channel.feed(data)):
                data = _some(connection)
            message = decode_session_message(payloads[0])
    except (OSError, HandshakeError, FrameError, MalformedMessage):
        return QuorumAnswer(member, reachable=False)
    if not isinstance(message, LeaderChanged):
        return QuorumAnswer(member, reachable=False)
    return QuorumAnswer(member, True, message.term, message.leader_id)


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the quorum node closed the connection")
    return data
