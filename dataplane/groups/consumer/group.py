"""A consumer group as a pure state machine (KIP-848).

Whenever the group changes (members, their subscriptions, the matching topics, rights to them), its epoch rises. The
next heartbeat of any member then computes the target assignment of that epoch, and each heartbeat takes its member a
step towards the target (`reconciliation`). The state follows from these epochs:

    EMPTY       -> RECONCILING   the first member joins: its target is computed with its heartbeat
    EMPTY       -> STABLE        likewise, and its partitions are free
    RECONCILING -> STABLE        the last member reaches the epoch of the target
    RECONCILING -> ASSIGNING     a member leaves or is fenced: no target for the new epoch yet
    STABLE      -> RECONCILING   a member joins or changes its subscription, a topic is created, grows or is deleted
    STABLE      -> ASSIGNING     a member leaves or is fenced
    ASSIGNING   -> RECONCILING   a heartbeat computes the target
    ASSIGNING   -> STABLE        likewise, and its member is the only one to follow it
    any but DEAD -> EMPTY        the last member leaves or is fenced
    any but DEAD -> DEAD         the group is deleted, becomes classic, or its coordinator moves away

The caller passes the time in milliseconds. `changes` collects the records to write; the answer to a heartbeat may be
sent once they are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.consumer_groups import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from ...runtime.retained_bytes import RetainedClaim
from ..heartbeat_pace import HeartbeatPace
from ..limits import ConsumerLimits
from .assignors import ASSIGNORS, SubscribedMember
from .member import ConsumerMember, HeartbeatReply, MemberHeartbeat, MemberState, Partitions, TopicPartition
from .reconciliation import ReconciliationStep, reconcile
from .subscriptions import TopicCatalog

UNKNOWN_HASH = 0


class ConsumerGroupState(Enum):
    """The state of a KIP-848 consumer group, with the names that ListGroups and ConsumerGroupDescribe report."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


_S = ConsumerGroupState
TRANSITIONS: Mapping[ConsumerGroupState, frozenset[ConsumerGroupState]] = {
    _S.EMPTY: frozenset({_S.RECONCILING, _S.STABLE, _S.DEAD}),
    _S.RECONCILING: frozenset({_S.STABLE, _S.ASSIGNING, _S.EMPTY, _S.DEAD}),
    _S.STABLE: frozenset({_S.RECONCILING, _S.ASSIGNING, _S.EMPTY, _S.DEAD}),
    _S.ASSIGNING: frozenset({_S.RECONCILING, _S.STABLE, _S.EMPTY, _S.DEAD}),
    _S.DEAD: frozenset(),
}


class RecordKind(IntEnum):
    """The kinds of a consumer group's records in `__consumer_offsets`, with the versions of their keys. A consumer
    group only writes tombstones of CLASSIC."""

    CLASSIC = 2
    GROUP = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8


Change = tuple[RecordKind, str]
"""A record to write from the present state: its kind, and the member it is about ("" for the group's records)."""


@dataclass(slots=True)
class ConsumerGroup:
    """A group with its members, its target assignment and its epochs.

    Invariants: `owners` maps every partition that a member holds to the member; `assignment_epoch` <= `epoch`; a
    member's epoch is at most `assignment_epoch`.
    """

    group_id: str
    limits: ConsumerLimits
    topics: TopicCatalog
    own_settings: Callable[[], Mapping[str, str]] = dict
    epoch: int = 0
    assignment_epoch: int = 0
    metadata_hash: int = UNKNOWN_HASH
    seen_version: int = -1
    dead: bool = False
    emptied_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    changes: dict[Change, None] = field(default_factory=dict)
    claim: RetainedClaim | None = None
    _pace: HeartbeatPace = field(default_factory=HeartbeatPace, init=False, compare=False)

    @property
    def state(self) -> ConsumerGroupState:
        """The group's state, which follows from its epochs and members."""
        if self.dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        settled = all(
            m.state is MemberState.STABLE and m.epoch == self.assignment_epoch for m in self.members.values()
        )
        return ConsumerGroupState.STABLE if settled else ConsumerGroupState.RECONCILING

    def check(self) -> None:
        """Check the invariants of the group, its members and its epochs. Raises AssertionError if they contradict each
        other."""
        where = f"group {self.group_id}, epoch {self.epoch}, target of {self.assignment_epoch}"
        if not 0 <= self.assignment_epoch <= self.epoch:
            raise AssertionError(f"{where}: the target is ahead")
        held: dict[TopicPartition, str] = {}
        meant: dict[TopicPartition, str] = {}
        for member_id, member in self.members.items():
            member.check()
            if member.member_id != member_id or member.epoch > self.assignment_epoch:
                raise AssertionError(f"{where}: member {member_id} is {member}")
            for several, partitions in ((held, member.held), (meant, self.target.get(member_id, ()))):
                for partition in partitions:
                    if several.setdefault(partition, member_id) != member_id:
                        raise AssertionError(
                            f"{where}: {partition} is {several[partition]}'s and {member_id}'s"
                        )
        if held != self.owners:
            raise AssertionError(f"{where}: members hold {held}, owners are {self.owners}")
        if not self.target.keys() <= self.members.keys():
            raise AssertionError(
                f"{where}: partitions are meant for {sorted(self.target)}, not all of them members"
            )
        if self.static_members != {
            m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None
        }:
            raise AssertionError(f"{where}: {self.static_members} are not the instance ids of its members")
        if self.dead and self.members:
            raise AssertionError(f"{where}: dead, with members {sorted(self.members)}")

    # ------------------------------------------------------------ requests

    def heartbeat(self, beat: MemberHeartbeat, now_ms: int) -> HeartbeatReply:
        """Handle a heartbeat, with which a member joins, stays or leaves. Raises KafkaError with the code for the
        client."""
        if beat.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(beat, now_ms)
        if beat.regex:
            self.topics.searches.begin(beat.regex)
        member, changed = self._admit(beat)
        before = member.assigned
        if member.classic is not None:
            member.classic = None
            self.note_member(member)
        member.join_deadline_ms = member.sync_deadline_ms = None
        changed |= self._describe(member, beat)
        self.advance(changed=changed)
        self.step(member, beat.owned, now_ms)
        member.session_deadline_ms = now_ms + self.session_timeout_ms
        tell = beat.epoch == JOIN_EPOCH or beat.is_full or member.assigned != before
        return HeartbeatReply(
            member.member_id,
            member.epoch,
            self._heartbeat_interval_ms(member, now_ms),
            member.assigned if tell else None,
        )

    def _heartbeat_interval_ms(self, member: ConsumerMember, now_ms: int) -> int:
        """Return the time until the member's next heartbeat: short while the group changes, or the member gives
        partitions up or waits for some."""
        return self._pace.interval_ms(
            self.epoch,
            len(self.members),
            self.limits.heartbeat_interval_of(self.own_settings()),
            now_ms,
            waits=member.state is not MemberState.STABLE,
        )

    def check_deletable(self) -> None:
        """Raises KafkaError unless the group has no members."""
        if self.dead:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {self.group_id} does not exist")
        if self.members:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has {len(self.members)} members"
            )

    def bury(self) -> None:
        """End the group: tombstones for all its records are to be written."""
        for member_id in list(self.members):
            self.forget(member_id)
        self.dead = True
        self._note(RecordKind.TARGET_EPOCH)
        self._note(RecordKind.GROUP)

    # ------------------------------------------------------------ time

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout of members that use the new protocol."""
        return self.limits.session_timeout_of(self.own_settings())

    @property
    def next_deadline_ms(self) -> int | None:
        """Time of the next `tick`; None if nothing is pending."""
        return min((m.deadline_ms for m in self.members.values()), default=None)

    def tick(self, now_ms: int) -> list[str]:
        """Fence members that are silent, or that keep others waiting; return their ids."""
        late = [m.member_id for m in self.members.values() if m.deadline_ms <= now_ms]
        for member_id in late:
            self.remove(member_id, now_ms)
        return late

    # ------------------------------------------------------------ who is it

    def _admit(self, beat: MemberHeartbeat) -> tuple[ConsumerMember, bool]:
        """Return the member that sent the heartbeat, and whether the group has changed because the member is new."""
        known = self.members.get(beat.member_id)
        if beat.instance_id is not None:
            holder = self.static_members.get(beat.instance_id)
            if beat.epoch == JOIN_EPOCH:
                if holder is not None and holder != beat.member_id:
                    # Classic members do not announce that they will be back: their successors just join.
                    released = self.members[holder].classic is not None
                    member = self.replace_static(holder, beat.member_id, released=released)
                    return member, known is not None
                if known is not None and known.instance_id != beat.instance_id:
                    self.forget(beat.member_id)
                    known = None
            else:
                self.check_static(beat.instance_id, beat.member_id)
        if known is not None:
            if beat.epoch != JOIN_EPOCH:
                known.check_epoch(beat)
            return known, False
        if beat.epoch != JOIN_EPOCH:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {beat.member_id} is not a member of group {self.group_id}.",
            )
        return self.add(ConsumerMember(beat.member_id, beat.instance_id)), True

    def add(self, member: ConsumerMember) -> ConsumerMember:
        """Add a new member to the group. Raises KafkaError GROUP_MAX_SIZE_REACHED if the group is full."""
        if len(self.members) >= self.limits.max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.limits.max_size} members.",
            )
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._note(RecordKind.MEMBER, member.member_id)
        self._note(RecordKind.CURRENT, member.member_id)
        return member

    def check_static(self, instance_id: str, member_id: str) -> None:
        """Raises KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id."""
        holder = self.static_members.get(instance_id)
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}.",
            )

    def replace_static(self, old_id: str, new_id: str, *, released: bool = False) -> ConsumerMember:
        """Transfer all that a static member had to its new member id.

        Raises KafkaError UNRELEASED_INSTANCE_ID while the old member has neither left (-2) nor expired. `released` is
        set if the protocol lets the new member take the place without that (classic).
        """
        old = self.members[old_id]
        if old.epoch != LEAVE_STATIC_EPOCH and not released:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {new_id} with instance id {old.instance_id} cannot join the group because the "
                f"instance id is owned by {old_id} member.",
            )
        assert old.instance_id is not None
        target, assigned = self.target.get(old_id, frozenset()), old.assigned
        self.forget(old_id)
        if new_id in self.members:
            # The client has not had an instance id so far: it exchanges its former place for the static member's.
            self.forget(new_id)
        old.member_id, old.epoch, old.previous_epoch = new_id, JOIN_EPOCH, -1
        old.state, old.assigned, old.revoking, old.since = MemberState.STABLE, frozenset(), frozenset(), {}
        self.members[new_id] = old
        self.static_members[old.instance_id] = new_id
        self.target[new_id] = target
        self.hold(old, assigned, frozenset())
        for kind in (RecordKind.MEMBER, RecordKind.TARGET, RecordKind.CURRENT):
            self._note(kind, new_id)
        return old

    def _leave(self, beat: MemberHeartbeat, now_ms: int) -> HeartbeatReply:
        if beat.instance_id is not None:
            self.check_static(beat.instance_id, beat.member_id)
        elif beat.member_id not in self.members:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {beat.member_id} is not a member of group {self.group_id}.",
            )
        if beat.epoch == LEAVE_EPOCH or beat.instance_id is None:
            self.remove(beat.member_id, now_ms)
        else:
            member = self.members[beat.member_id]
            member.epoch, member.state = LEAVE_STATIC_EPOCH, MemberState.STABLE
            member.revoke_deadline_ms = None
            self.hold(member, member.assigned, frozenset())
            self._note(RecordKind.CURRENT, member.member_id)
        return HeartbeatReply(beat.member_id, beat.epoch)

    def remove(self, member_id: str, now_ms: int) -> None:
        """Remove a member that leaves or is fenced. Its partitions are free, and the other members get a new target.

        If no member is left, the target of the new epoch is known at once: it is empty.
        """
        self.forget(member_id)
        self.bump()
        if not self.members:
            self._reach_epoch()
            self.emptied_ms = now_ms

    def forget(self, member_id: str) -> None:
        """Drop a member, and have tombstones written for its records; the group's epoch stays."""
        member = self.members.pop(member_id)
        for partition in member.held:
            del self.owners[partition]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self.target.pop(member_id, None)
        for kind in (RecordKind.CURRENT, RecordKind.TARGET, RecordKind.MEMBER):
            self._note(kind, member_id)

    # ------------------------------------------------------------ what it wants

    def _describe(self, member: ConsumerMember, beat: MemberHeartbeat) -> bool:
        """Take over the member's data from the heartbeat; return whether its subscription has changed."""
        said = member.take_over(beat)
        if said.is_news:
            self.note_member(member)
        if said.is_another_client:
            # The client may have other rights, so its pattern is resolved again.
            self.seen_version = -1
        return said.subscribes_otherwise

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for; the broker's first assignor if no member asks for one."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor in ASSIGNORS)
        return str(votes.most_common(1)[0][0]) if votes else self.limits.assignors[0]

    def subscribes(self, topic: str) -> bool:
        """Return whether a member subscribes to this topic. Its offsets must not be deleted then."""
        topic_id = self.topics.ids.get(topic)
        return any(
            topic in m.topics or (topic_id is not None and topic_id in self._wanted(m))
            for m in self.members.values()
        )

    # ------------------------------------------------------------ epochs and targets

    def advance(self, *, changed: bool) -> None:
        """Raise the epoch if members or topics have changed, and compute a target that is due."""
        is_stale = changed or self.seen_version != self.topics.version
        if not is_stale and 0 < self.epoch == self.assignment_epoch:
            return
        wanted = self._wanted_by_all()
        if is_stale:
            self.seen_version = self.topics.version
            patterns = {m.pattern for m in self.members.values() if m.regex}
            fingerprint = self.topics.fingerprint(frozenset[bytes]().union(*set(wanted)), patterns)
            if fingerprint != self.metadata_hash:
                self.metadata_hash, changed = fingerprint, True
        if changed or self.epoch == 0:
            self.bump()
        if self.epoch > self.assignment_epoch:
            self._retarget(wanted)

    def _wanted_by_all(self) -> list[frozenset[bytes]]:
        """Return the topics that each member wants, in the order of `members`.

        Each subscription is resolved once, since most members have the subscription of others.
        """
        known: dict[object, frozenset[bytes]] = {}
        found = []
        for member in self.members.values():
            key = (member.topics, member.pattern) if member.regex else member.topics
            wanted = known.get(key)
            if wanted is None:
                wanted = self._wanted(member)
                if not member.regex or not self.topics.is_unresolved(member.pattern):
                    known[key] = wanted
            found.append(wanted)
        return found

    def _wanted(self, member: ConsumerMember) -> frozenset[bytes]:
        wanted = self.topics.resolve(member.topics, member.pattern)
        if self.topics.is_unresolved(member.pattern):
            # Its topics are being searched for, or an earlier release stored the member without its principal. Until
            # they are found, or the member sends a heartbeat, it keeps its topics.
            wanted |= {t for t, _ in self.target.get(member.member_id, ()) if t in self.topics.counts}
        return wanted

    def bump(self) -> None:
        """Raise the group's epoch by one, and have it recorded."""
        self.epoch += 1
        self._note(RecordKind.GROUP)

    def _retarget(self, wanted: Iterable[frozenset[bytes]]) -> None:
        """Compute the target. `wanted` are the topics of each member, in the order of `members`."""
        target = self.target
        subscribers = [
            SubscribedMember(
                m.member_id, m.instance_id or m.member_id, topics, target.get(m.member_id, m.assigned)
            )
            for m, topics in zip(self.members.values(), wanted, strict=True)
        ]
        sizes = self.topics.sizes(frozenset[bytes]().union(*{s.topics for s in subscribers}))
        for member_id, partitions in ASSIGNORS[self.assignor](subscribers, sizes).items():
            before = target.get(member_id)
            if before is not partitions and before != partitions:
                target[member_id] = partitions
                self._note(RecordKind.TARGET, member_id)
        self._reach_epoch()

    def _reach_epoch(self) -> None:
        """Set the epoch of the target assignment to the group's present epoch, and have it recorded."""
        self.assignment_epoch = self.epoch
        self._note(RecordKind.TARGET_EPOCH)

    # ------------------------------------------------------------ reconciliation

    def step(self, member: ConsumerMember, owned: Partitions | None, now_ms: int) -> None:
        """Move a member one step from the partitions that it holds towards its target assignment; see
        `reconciliation`."""
        member_id = member.member_id
        after = reconcile(
            member,
            self.target.get(member_id, frozenset()),
            self.assignment_epoch,
            owned,
            lambda partition: self.owners.get(partition, member_id) == member_id,
        )
        if after == ReconciliationStep(member.epoch, member.state, member.assigned, member.revoking):
            return
        if after.epoch != member.epoch:
            member.previous_epoch, member.epoch = member.epoch, after.epoch
        member.state = after.state
        unrevoked = after.state is MemberState.UNREVOKED
        member.revoke_deadline_ms = now_ms + member.rebalance_timeout_ms if unrevoked else None
        self.hold(member, after.assigned, after.revoking)
        self._note(RecordKind.CURRENT, member_id)

    def hold(self, member: ConsumerMember, assigned: Partitions, revoking: Partitions) -> None:
        """Set the partitions that a member holds from now on, and those that it still has to give up."""
        before, after = member.held, assigned | revoking
        for partition in before - after:
            del self.owners[partition], member.since[partition]
        for partition in after - before:
            if partition in self.owners:
                raise AssertionError(
                    f"group {self.group_id}: {partition} is {self.owners[partition]}'s, not {member.member_id}'s"
                )
            self.owners[partition], member.since[partition] = member.member_id, member.epoch
        member.assigned, member.revoking = assigned, revoking

    def not_held_by_others(self, member: ConsumerMember, partitions: Partitions) -> Partitions:
        """Return those of `partitions` that no other member of the group holds."""
        member_id = member.member_id
        return frozenset(p for p in partitions if self.owners.get(p, member_id) == member_id)

    def has_free_for(self, member: ConsumerMember) -> bool:
        """Return whether a partition of the member's target that it does not have is free by now."""
        missing = self.target.get(member.member_id, frozenset()) - member.assigned
        return any(self.owners.get(partition, member.member_id) == member.member_id for partition in missing)

    # ------------------------------------------------------------ what is to be stored

    def _note(self, kind: RecordKind, member_id: str = "") -> None:
        self.changes[kind, member_id] = None

    def note_member(self, member: ConsumerMember) -> None:
        """Note that the member's metadata record in `__consumer_offsets` has to be written again."""
        self._note(RecordKind.MEMBER, member.member_id)

    def note_all(self) -> None:
        """Note that all records of the group have to be written, and that the record of the classic group of this name
        has to be removed."""
        self._note(RecordKind.CLASSIC)
        self._note(RecordKind.GROUP)
        for member_id in self.members:
            self._note(RecordKind.MEMBER, member_id)
        self._note(RecordKind.TARGET_EPOCH)
        for kind in (RecordKind.TARGET, RecordKind.CURRENT):
            for member_id in self.members:
                self._note(kind, member_id)

    def take_changes(self) -> list[Change]:
        """Return which records of the group have to be written (kind and member id), and forget them: the caller is
        responsible for them from here on."""
        changes, self.changes = list(self.changes), {}
        return changes
