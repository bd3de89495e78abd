"""A classic consumer group as a pure state machine (Kafka's group protocol, KIP-62, KIP-345, KIP-394).

The caller passes the time in milliseconds and a *ticket* for every request that may have to wait; methods
return the replies that are due (`JoinReply`, `SyncReply`) and whether the group must be stored
(`StoreGroup`). `ClassicGroup.next_deadline_ms` is when the caller has to call `ClassicGroup.tick`. There the rebalance
itself expires, and so do the sessions of members, members that never came back with their id, and members that
joined but never synced.

    EMPTY -> PREPARING_REBALANCE      a member joins
    PREPARING_REBALANCE -> COMPLETING_REBALANCE   every member has joined, or the rebalance timeout passed
    PREPARING_REBALANCE -> EMPTY      no member was left when it passed
    COMPLETING_REBALANCE -> STABLE    the leader's assignment is stored
    COMPLETING_REBALANCE -> PREPARING_REBALANCE   a member joined, left or expired meanwhile
    STABLE -> PREPARING_REBALANCE     the same
    any -> DEAD                       the group is deleted or its coordinator moves away
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ....protocol.errors import ErrorCode, KafkaError
from ...runtime.retained_bytes import RetainedClaim
from ..limits import GroupLimits
from .assignor_counts import AssignorCounts
from .membership import (
    ClassicMember,
    Effect,
    JoinReply,
    JoinRequest,
    PendingId,
    StoreGroup,
    SyncReply,
    select_protocol,
)
from .replies import join_reply, returned_reply, sync_reply, when_stored
from .states import TRANSITIONS, GroupState
from .waits import Waits

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Maximum time that a member that never completed a join may wait in a join (its client may be gone)."""


@dataclass(slots=True)
class ClassicGroup:
    """A classic consumer group with its members and the state of its rebalance.

    Invariant: `leader` is a member or None. `claim` is the claim of the group's memory, and `assignment_claim` that of
    its assignments.
    """

    group_id: str
    limits: GroupLimits
    new_member_id: Callable[[str], str]
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    state_changed_ms: int = 0
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_ids: dict[str, PendingId] = field(default_factory=dict)
    assignors: AssignorCounts = field(default_factory=AssignorCounts)
    waits: Waits = field(default_factory=Waits)
    claim: RetainedClaim | None = None
    assignment_claim: RetainedClaim | None = None

    @classmethod
    def of_members(
        cls,
        group_id: str,
        limits: GroupLimits,
        new_member_id: Callable[[str], str],
        generation: int,
        protocol_type: str,
        members: Sequence[ClassicMember],
        now_ms: int,
    ) -> ClassicGroup:
        """Return a group of members that came from another protocol; it starts with a rebalance.

        The members have at least one assignor in common.
        """
        group = cls(group_id, limits, new_member_id, GroupState.STABLE, generation, protocol_type)
        group.members = {member.member_id: member for member in members}
        group.static_members = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        group.leader = members[0].member_id
        group.protocol = select_protocol(members)
        group._prepare_rebalance(now_ms)
        return group

    # ------------------------------------------------------------ requests

    def join(self, request: JoinRequest, ticket: object, now_ms: int) -> list[Effect]:
        """Handle a JoinGroup; the reply may come now, with a later join, or from `tick`."""
        refusal = self._refuse_join(request)
        if refusal is not None:
            return [JoinReply(ticket, refusal, request.member_id)]
        if not request.member_id:
            if request.instance_id is not None and request.instance_id in self.static_members:
                return self._replace_static(request, ticket, now_ms)
            return self._join_new(request, ticket, now_ms)
        if request.member_id in self.pending_ids and request.instance_id is None:
            del self.pending_ids[request.member_id]
            return self._add_member(request, request.member_id, ticket, now_ms)
        fenced = self._fence(request.member_id, request.instance_id)
        if fenced is not None:
            return [JoinReply(ticket, fenced, request.member_id)]
        return self._rejoin(self.members[request.member_id], request, ticket, now_ms)

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        ticket: object,
        now_ms: int,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> list[Effect]:
        """Handle a SyncGroup; followers wait until the leader's assignment is stored."""
        error = self._check_member(member_id, instance_id, generation)
        if error is None and (
            (protocol_type is not None and protocol_type != self.protocol_type)
            or (protocol is not None and protocol != self.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is not None:
            return [SyncReply(ticket, error)]
        member = self.members[member_id]
        if self.state is GroupState.STABLE:
            self.waits.synced(member_id)
            member.heard_of(now_ms)
            return [sync_reply(self, member, ticket)]
        if self.state is not GroupState.COMPLETING_REBALANCE:
            return [SyncReply(ticket, ErrorCode.REBALANCE_IN_PROGRESS)]
        effects: list[Effect] = []
        if member.sync_ticket is not None:
            effects.append(SyncReply(member.sync_ticket, ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket
        self.waits.synced(member_id)
        if member_id == self.leader:
            for each in self.members.values():
                each.assignment = assignments.get(each.member_id, b"")
            effects.append(StoreGroup(self.generation))
        return effects

    def stored(self, generation: int, error: ErrorCode, now_ms: int) -> list[Effect]:
        """Handle the outcome of a write that a `StoreGroup` asked for. Writes of earlier generations have no effect."""
        if self.state is not GroupState.COMPLETING_REBALANCE or generation != self.generation:
            return []
        if error is not ErrorCode.NONE:
            effects: list[Effect] = []
            for member in self.members.values():
                member.assignment = b""
                if member.sync_ticket is not None:
                    effects.append(SyncReply(member.sync_ticket, error))
                    member.sync_ticket = None
                    member.heard_of(now_ms)
            return effects + self._prepare_rebalance(now_ms)
        self._become(GroupState.STABLE, now_ms)
        return self._answer_syncs(now_ms)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Handle Heartbeat: renew the member's session. The returned code is NONE, or tells the client to rejoin or
        that it is fenced."""
        error = self._check_member(member_id, instance_id, generation)
        if error is not None:
            return error
        self.members[member_id].heard_of(now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> tuple[ErrorCode, list[Effect]]:
        """Remove a member. The instance id alone suffices for a static member."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if not member_id and instance_id is not None:
            member_id = self.static_members.get(instance_id, "")
        elif member_id in self.pending_ids:
            del self.pending_ids[member_id]
            return ErrorCode.NONE, self._maybe_complete_join(now_ms)
        fenced = self._fence(member_id, instance_id)
        if fenced is not None:
            return fenced, []
        return ErrorCode.NONE, self._remove(member_id, now_ms)

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        """Return the error if this member may not commit offsets. `generation` < 0 stands for a consumer outside any
        group."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._check_member(member_id, instance_id, generation)
        if error is not None:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.members[member_id].heard_of(now_ms)
        return ErrorCode.NONE

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return the error if this member may not commit offsets in a transaction.

        If the request names a member, its generation must be the present one; the state of the rebalance does not
        matter. The check does not renew the member's session.
        """
        is_nobody = generation < 0 and not member_id and instance_id is None
        if is_nobody or (generation < 0 and self.state is GroupState.EMPTY):
            return ErrorCode.NONE
        return self._check_member(member_id, instance_id, generation) or ErrorCode.NONE

    def kill(self, now_ms: int, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> list[Effect]:
        """End the group here (deleted, or led elsewhere): every waiting request gets the error."""
        effects: list[Effect] = []
        for member in self.members.values():
            effects += member.answer_waiting(error)
        self._become(GroupState.DEAD, now_ms)
        return effects

    # ------------------------------------------------------------ time

    @property
    def next_deadline_ms(self) -> int | None:
        """Time of the next `tick`; None if nothing is pending."""
        deadlines = [m.session_deadline_ms for m in self.members.values() if m.expires]
        deadlines += [pending.deadline_ms for pending in self.pending_ids.values()]
        deadlines += [d for d in (self._join_due_ms(), self.waits.sync_deadline_ms) if d is not None]
        return min(deadlines, default=None)

    def due_after(self, effects: Sequence[Effect], now_ms: int) -> int | None:
        """Return a time that is no later than each deadline that a request at `now_ms`, with these effects, has set.

        None if nothing is pending. A request with one answer at most sets no sessions of other members. So the members
        are not examined, since there may be thousands, and each sends several requests in a rebalance.
        """
        if len(effects) > 1 or not (self.members or self.pending_ids):
            return self.next_deadline_ms
        deadlines = [
            now_ms + self.limits.min_session_timeout_ms,
            self._join_due_ms(),
            self.waits.sync_deadline_ms,
        ]
        return min(deadline for deadline in deadlines if deadline is not None)

    def tick(self, now_ms: int) -> list[Effect]:
        """Apply all of the group's timeouts that have passed: those of new member ids, sessions and the rebalance.
        Return the replies and writes that are due."""
        effects: list[Effect] = []
        for member_id, pending in list(self.pending_ids.items()):
            if pending.deadline_ms <= now_ms:
                del self.pending_ids[member_id]
                effects += self._maybe_complete_join(now_ms)
        for member in list(self.members.values()):
            if member.member_id in self.members and member.expires and member.session_deadline_ms <= now_ms:
                effects += self._remove(member.member_id, now_ms)
        for member_id in self.waits.overdue(now_ms):
            if member_id in self.members:
                effects += self._remove(member_id, now_ms)
        due = self._join_due_ms()
        if due is not None and due <= now_ms:
            effects += self._complete_join(now_ms)
        return effects

    # ------------------------------------------------------------ joining

    def _refuse_join(self, request: JoinRequest) -> ErrorCode | None:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self.limits.allows_session(request.session_timeout_ms):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.members and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        offered = (name for name, _ in request.protocols)
        if not self.assignors.known_to_others(self.members, request.member_id, offered):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id not in self.members and self._is_full(request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return None

    def _is_full(self, request: JoinRequest) -> bool:
        if request.instance_id is not None and request.instance_id in self.static_members:
            return False
        return len(self.members) >= self.limits.max_size

    def _join_new(self, request: JoinRequest, ticket: object, now_ms: int) -> list[Effect]:
        member_id = self.new_member_id(request.instance_id or request.client_id)
        if request.require_known_id and request.instance_id is None:
            deadline_ms = now_ms + request.session_timeout_ms
            self.pending_ids[member_id] = PendingId.given_out(member_id, deadline_ms, request.claim)
            return [JoinReply(ticket, ErrorCode.MEMBER_ID_REQUIRED, member_id)]
        return self._add_member(request, member_id, ticket, now_ms)

    def _add_member(self, request: JoinRequest, member_id: str, ticket: object, now_ms: int) -> list[Effect]:
        first = self.state is GroupState.EMPTY
        member = ClassicMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
        )
        member.claim = request.claim
        member.join_ticket = ticket
        member.session_deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        self.members[member_id] = member
        self.assignors.came(member)
        if request.instance_id is not None:
            self.static_members[request.instance_id] = member_id
        self.protocol_type = request.protocol_type
        if self.leader is None:
            self.leader = member_id
        if self.state is GroupState.PREPARING_REBALANCE:
            self.waits.one_came(now_ms, self.limits.initial_rebalance_delay_ms)
            return self._maybe_complete_join(now_ms)
        return self._prepare_rebalance(now_ms, initial=first)

    def _rejoin(
        self, member: ClassicMember, request: JoinRequest, ticket: object, now_ms: int
    ) -> list[Effect]:
        changed = member.protocols != request.protocols
        effects: list[Effect] = []
        if self.state is GroupState.COMPLETING_REBALANCE and not changed:
            member.heard_of(now_ms)
            return [join_reply(self, member, ticket)]
        if self.state is GroupState.STABLE and not changed and member.member_id != self.leader:
            member.heard_of(now_ms)
            return [join_reply(self, member, ticket)]
        if member.join_ticket is not None:
            effects.append(JoinReply(member.join_ticket, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_ticket = ticket
        before, member.protocols = member.assignors, request.protocols
        member.claim = request.claim
        if member.assignors != before:
            self.assignors.changed()
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        if self.state is GroupState.PREPARING_REBALANCE:
            return effects + self._maybe_complete_join(now_ms)
        return effects + self._prepare_rebalance(now_ms)

    def _replace_static(self, request: JoinRequest, ticket: object, now_ms: int) -> list[Effect]:
        assert request.instance_id is not None
        old_leader = self.leader
        old = self.members.pop(self.static_members[request.instance_id])
        self.waits.synced(old.member_id)
        effects = old.answer_waiting(ErrorCode.FENCED_INSTANCE_ID)
        new_id = self.new_member_id(request.instance_id)
        old.member_id, old.client_id, old.client_host = new_id, request.client_id, request.client_host
        same = old.metadata_for(self.protocol) == dict(request.protocols).get(self.protocol or "", b"")
        old.protocols, old.claim = request.protocols, request.claim
        self.assignors.changed()
        old.session_timeout_ms = request.session_timeout_ms
        old.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.members[new_id] = old
        self.static_members[request.instance_id] = new_id
        if old_leader not in self.members:
            self.leader = new_id
        if (
            self.state is GroupState.STABLE
            and same
            and select_protocol([*self.members.values()]) == self.protocol
        ):
            # KIP-345: a static member that comes back unchanged keeps its assignment without a rebalance.
            old.heard_of(now_ms)
            reply = returned_reply(self, old, ticket, old_leader, can_skip=request.can_skip_assignment)
            return [*effects, StoreGroup(self.generation, partial(when_stored, reply))]
        old.join_ticket = ticket
        if self.state is GroupState.PREPARING_REBALANCE:
            return effects + self._maybe_complete_join(now_ms)
        return effects + self._prepare_rebalance(now_ms)

    # ------------------------------------------------------------ rebalancing

    def _prepare_rebalance(self, now_ms: int, *, initial: bool = False) -> list[Effect]:
        effects: list[Effect] = []
        for member in self.members.values():
            if member.sync_ticket is not None:
                effects.append(SyncReply(member.sync_ticket, ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync_ticket = None
                member.heard_of(now_ms)
        self._become(GroupState.PREPARING_REBALANCE, now_ms)
        longest = max((m.rebalance_timeout_ms for m in self.members.values()), default=0)
        self.waits.begin(now_ms, longest, self.limits.initial_rebalance_delay_ms if initial else 0)
        return effects + self._maybe_complete_join(now_ms)

    def _join_due_ms(self) -> int | None:
        return self.waits.join_due_ms if self.state is GroupState.PREPARING_REBALANCE else None

    def _maybe_complete_join(self, now_ms: int) -> list[Effect]:
        if self.state is not GroupState.PREPARING_REBALANCE or self.waits.join_not_before_ms is not None:
            return []
        if self.pending_ids or any(m.join_ticket is None for m in self.members.values()):
            return []
        return self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> list[Effect]:
        self.waits.joined()
        for member in [m for m in self.members.values() if m.join_ticket is None]:
            if member.instance_id is None:
                self._forget(member)
            # A static member that is away keeps its place until its session ends (KIP-345).
        if not any(m.join_ticket is not None for m in self.members.values()):
            return self._complete_empty(now_ms)
        self.generation += 1
        if self.leader is None or self.members[self.leader].join_ticket is None:
            self.leader = next(m.member_id for m in self.members.values() if m.join_ticket is not None)
        self.protocol = select_protocol([*self.members.values()])
        self._become(GroupState.COMPLETING_REBALANCE, now_ms)
        longest = max(m.rebalance_timeout_ms for m in self.members.values())
        self.waits.await_syncs(self.members, now_ms + longest)
        effects: list[Effect] = []
        for member in self.members.values():
            member.assignment = b""
            if member.join_ticket is not None:
                effects.append(join_reply(self, member, member.join_ticket))
                member.join_ticket = None
                member.joined_once = True
                member.heard_of(now_ms)
        return effects

    def _complete_empty(self, now_ms: int) -> list[Effect]:
        if self.members:  # only static members, all away: ask them again until their sessions end
            longest = max(m.rebalance_timeout_ms for m in self.members.values())
            self.waits.begin(now_ms, longest, 0)
            return []
        self.generation += 1
        self.protocol = self.leader = None
        self._become(GroupState.EMPTY, now_ms)
        return [StoreGroup(self.generation)]

    def _remove(self, member_id: str, now_ms: int) -> list[Effect]:
        member = self.members[member_id]
        effects = member.answer_waiting(ErrorCode.UNKNOWN_MEMBER_ID)
        self._forget(member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return effects + self._prepare_rebalance(now_ms)
        return effects + self._maybe_complete_join(now_ms)

    def _forget(self, member: ClassicMember) -> None:
        del self.members[member.member_id]
        self.assignors.changed()
        self.waits.synced(member.member_id)
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _answer_syncs(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for member in self.members.values():
            if member.sync_ticket is not None:
                effects.append(sync_reply(self, member, member.sync_ticket))
                member.sync_ticket = None
                member.heard_of(now_ms)
        return effects

    # ------------------------------------------------------------ small decisions

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode | None:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        fenced = self._fence(member_id, instance_id)
        if fenced is not None:
            return fenced
        return ErrorCode.ILLEGAL_GENERATION if generation != self.generation else None

    def _fence(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return None if owner == member_id else ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _become(self, state: GroupState, now_ms: int) -> None:
        if state is self.state and state in (
            GroupState.PREPARING_REBALANCE,
            GroupState.EMPTY,
            GroupState.DEAD,
        ):
            return
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(
                f"group {self.group_id}: {self.state.name} -> {state.name} is not a transition"
            )
        self.state = state
        self.state_changed_ms = now_ms

    def check_deletable(self) -> None:
        """Raises KafkaError unless the group has no members."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {self.group_id} does not exist")
        if self.state is not GroupState.EMPTY:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has {len(self.members)} members"
            )

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        """Check the invariants of the group and its members. Raises AssertionError if they contradict each other."""
        for broken in self._contradictions():
            raise AssertionError(
                f"group {self.group_id}, {self.state.name}, generation {self.generation}: {broken}"
            )

    def _contradictions(self) -> Iterator[str]:
        state, members = self.state, self.members
        joining, completing = (
            state is each for each in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
        )
        if self.leader is not None and self.leader not in members:
            yield f"its leader {self.leader} is no member"
        if any(member.member_id != member_id for member_id, member in members.items()):
            yield "a member is filed under another id"
        if self.static_members != {
            m.instance_id: m.member_id for m in members.values() if m.instance_id is not None
        }:
            yield f"the instance ids {self.static_members} are not those of its members"
        if not self.pending_ids.keys().isdisjoint(members):
            yield "an id that was only given out is a member's"
        yield from self.assignors.contradictions(members)
        yield from self.waits.contradictions(members)
        if state is GroupState.EMPTY and (members or self.leader is not None):
            yield f"it has members {sorted(members)}"
        if completing or state is GroupState.STABLE:
            if self.leader is None or self.generation <= 0:
                yield "it has no leader, or no generation"
            if any(self.protocol not in m.assignors for m in members.values()):
                yield f"a member does not know {self.protocol}"
        elif self.waits.unsynced:
            yield f"{sorted(self.waits.unsynced)} are to sync"
        if joining and self._join_due_ms() is None:
            yield "members may take for ever to join"
        for member in members.values():
            if state is not GroupState.DEAD and member.join_ticket is not None and not joining:
                yield f"{member.member_id} waits to join"
            if state is not GroupState.DEAD and member.sync_ticket is not None and not completing:
                yield f"{member.member_id} waits to sync"
