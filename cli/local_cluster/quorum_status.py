"""Requests to quorum nodes for their leader, authenticated with the cluster secret as a broker's requests are."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.messages.quorum_session import LeaderChanged
from ...protocol.session.frames import FrameError
from ...protocol.session.handshake import HandshakeError, LinkSecurity, Role
from ...protocol.session.node_secrets import Secrets
from ...protocol.wire.codec import MalformedMessage
from ..connection.plain_quorum_link import NOBODY, PlainQuorumLink
from .layout import ClusterLayout, Member
from .ports import HOST

TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class QuorumAnswer:
    """A quorum node's answer to the question who leads the quorum; `reachable` is False if there was none."""

    member: Member
    reachable: bool
    term: int = 0
    leader_id: int = NOBODY


def ask_quorum(layout: ClusterLayout) -> list[QuorumAnswer]:
    """Ask all quorum nodes of a local cluster for their leader, and return their answers in the order of their ids."""
    security = LinkSecurity(Secrets.parse(layout.secret_file.read_bytes()))
    return [_ask(member, security, layout.cluster_id) for member in layout.quorum]


def leader_of(answers: list[QuorumAnswer]) -> int | None:
    """Return the id of the quorum's leader: the one of the highest term that a node reported.

    None while no node knows a leader.
    """
    known = [answer for answer in answers if answer.leader_id != NOBODY]
    return max(known, key=lambda answer: answer.term).leader_id if known else None


def _ask(member: Member, security: LinkSecurity, cluster_id: str) -> QuorumAnswer:
    try:
        with PlainQuorumLink((HOST, member.port), security, cluster_id, Role.BROKER, TIMEOUT_S) as link:
            message = link.receive()
    except (OSError, HandshakeError, FrameError, MalformedMessage):
        return QuorumAnswer(member, reachable=False)
    if not isinstance(message, LeaderChanged):
        return QuorumAnswer(member, reachable=False)
    return QuorumAnswer(member, True, message.term, message.leader_id)
