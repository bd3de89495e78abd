"""The replies to members of a classic group that have joined or synced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ....protocol.errors import ErrorCode
from .membership import ClassicMember, JoinReply, SyncReply


class Generation(Protocol):
    """The facts of a group's present generation that replies report to members: number, assignor, leader and
    members."""

    @property
    def generation(self) -> int: ...
    @property
    def protocol_type(self) -> str | None: ...
    @property
    def protocol(self) -> str | None: ...
    @property
    def leader(self) -> str | None: ...
    @property
    def members(self) -> Mapping[str, ClassicMember]: ...


def join_reply(group: Generation, member: ClassicMember, ticket: object, *, skip: bool = False) -> JoinReply:
    """Return the reply to a JoinGroup with the group's present generation; the leader also gets the members.

    With `skip` the leader must not compute another assignment.
    """
    leads = member.member_id == group.leader
    listed = (
        tuple((m.member_id, m.instance_id, m.metadata_for(group.protocol)) for m in group.members.values())
        if leads
        else ()
    )
    return JoinReply(
        ticket,
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        listed,
        skip,
    )


def returned_reply(
    group: Generation, member: ClassicMember, ticket: object, old_leader: str | None, *, can_skip: bool
) -> JoinReply:
    """Return the reply to a static member that is back under a new id and keeps its assignment (KIP-345).

    If a leader's request cannot carry the order to skip the assignment, the reply names its former id as the leader, so
    that it does not assign (KIP-814).
    """
    leads = group.leader == member.member_id
    if not leads or can_skip:
        return join_reply(group, member, ticket, skip=leads)
    return JoinReply(
        ticket,
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        leader=old_leader or "",
    )


def sync_reply(group: Generation, member: ClassicMember, ticket: object) -> SyncReply:
    """Return the reply to a SyncGroup with the member's assignment."""
    return SyncReply(ticket, ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol)


def when_stored(reply: JoinReply, outcome: ErrorCode) -> JoinReply:
    """Return the reply, or an error if its generation could not be stored. A member that joined without an id does so
    again."""
    return reply if outcome is ErrorCode.NONE else JoinReply(reply.ticket, outcome, "")
