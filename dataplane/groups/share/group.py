"""The membership of a share group as a pure state machine (KIP-932).

Whenever the group changes (members, their subscriptions, the topics, the partitions with a state), its epoch rises. The
heartbeat that raises the epoch, or the next one, computes the target of all members. A member has its target with its
next heartbeat, since several members may take records of one partition:

    EMPTY  -> STABLE   the first member joins
    STABLE -> EMPTY    the last member leaves or is fenced
    EMPTY  -> DEAD     the group is deleted

The caller passes the time in milliseconds. `changes` collects the records to write; the answer to a heartbeat may be
sent once they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.share_group_records import ShareGroupRecordKind as RecordKind
from ....protocol.messages.share_groups import JOIN_EPOCH, LEAVE_EPOCH
from ...runtime.retained_bytes import RetainedClaim
from ..consumer.member import HeartbeatReply, Partitions, TopicPartition, by_topic
from ..consumer.subscriptions import TopicCatalog
from ..heartbeat_pace import HeartbeatPace
from ..limits import ShareGroupLimits
from .assignor import simple
from .member import ShareHeartbeat, ShareMember
from .state_partitions import NewState, StatePartitions

ASSIGNOR: Final = "simple"
"""The name of the assignor, the only one of Kafka 4."""

FIRST_EPOCH: Final = 1
"""The epoch of a group before its first member joins, as in Kafka 4.4."""

Change = tuple[RecordKind, str]
"""A record to write from the present state: its kind, and the member it is about ("" for the group's records)."""


class ShareGroupState(Enum):
    """The state of a share group, with the names that ListGroups and ShareGroupDescribe report."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class ShareGroup:
    """A group with its members, its target assignment, its epochs, and the share-partitions that have a state.

    Invariants: `assignment_epoch` <= `epoch`; a member's epoch is at most `assignment_epoch`; only members have
    targets.
    """

    group_id: str
    limits: ShareGroupLimits
    topics: TopicCatalog
    own_settings: Callable[[], Mapping[str, str]] = dict
    epoch: int = FIRST_EPOCH
    assignment_epoch: int = 0
    metadata_hash: int = 0
    seen_version: int = -1
    has_new_states: bool = False
    """True if initializations of states have ended since the last heartbeat."""
    may_lack_states: bool = False
    """True if subscribed partitions without a state are to be looked for."""
    dead: bool = False
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    states: StatePartitions = field(default_factory=StatePartitions)
    changes: dict[Change, None] = field(default_factory=dict)
    claim: RetainedClaim | None = None
    _pace: HeartbeatPace = field(default_factory=HeartbeatPace, init=False, compare=False)

    @property
    def state(self) -> ShareGroupState:
        """The group's state, which follows from its members."""
        if self.dead:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def check(self) -> None:
        """Check the invariants of the group. Raises AssertionError if it contradicts itself."""
        where = f"share group {self.group_id}, epoch {self.epoch}, target of {self.assignment_epoch}"
        if not 0 <= self.assignment_epoch <= self.epoch:
            raise AssertionError(f"{where}: the target is ahead")
        for member_id, member in self.members.items():
            if member.member_id != member_id or member.epoch > self.assignment_epoch:
                raise AssertionError(f"{where}: member {member_id} is {member}")
        if not self.target.keys() <= self.members.keys():
            raise AssertionError(
                f"{where}: partitions are meant for {sorted(self.target)}, not all of them members"
            )
        if self.dead and self.members:
            raise AssertionError(f"{where}: dead, with members {sorted(self.members)}")
        self.states.check()

    # ------------------------------------------------------------ heartbeats

    def heartbeat(self, beat: ShareHeartbeat, now_ms: int) -> HeartbeatReply:
        """Handle a heartbeat, with which a member joins, stays or leaves. Raises KafkaError with the code for the
        client."""
        if beat.epoch == LEAVE_EPOCH:
            self._member(beat.member_id)
            self.remove(beat.member_id)
            return HeartbeatReply(beat.member_id, beat.epoch)
        member = self._admit(beat)
        before = member.assigned
        is_news, subscribes_otherwise = member.take_over(beat)
        if is_news:
            self._note(RecordKind.MEMBER, member.member_id)
        self._advance(changed=subscribes_otherwise)
        self._follow(member)
        member.session_deadline_ms = now_ms + self.session_timeout_ms
        tell = beat.epoch == JOIN_EPOCH or beat.topics is not None or member.assigned != before
        return HeartbeatReply(
            member.member_id,
            member.epoch,
            self._heartbeat_interval_ms(now_ms),
            member.assigned if tell else None,
        )

    def _heartbeat_interval_ms(self, now_ms: int) -> int:
        """Return the time until the member's next heartbeat: short while the group changes, or waits for states of
        partitions."""
        return self._pace.interval_ms(
            self.epoch,
            len(self.members),
            self.limits.heartbeat_interval_of(self.own_settings()),
            now_ms,
            waits=bool(self.states.asked),
        )

    def _member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def _admit(self, beat: ShareHeartbeat) -> ShareMember:
        """Return the member that sent the heartbeat, which may be new."""
        if beat.member_id not in self.members and len(self.members) >= self.limits.max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {self.limits.max_size} members.",
            )
        if beat.epoch != JOIN_EPOCH or beat.member_id in self.members:
            member = self._member(beat.member_id)
            member.check_epoch(beat.epoch)
            return member
        member = self.members[beat.member_id] = ShareMember(beat.member_id)
        self._note(RecordKind.MEMBER, beat.member_id)
        return member

    def remove(self, member_id: str) -> None:
        """Remove a member that leaves or is fenced. The other members get a new target.

        If no member is left, the target of the new epoch is known at once: it is empty.
        """
        self._forget(member_id)
        self._bump()
        if not self.members:
            self._reach_epoch()

    def _forget(self, member_id: str) -> None:
        del self.members[member_id]
        self.target.pop(member_id, None)
        for kind in (RecordKind.CURRENT, RecordKind.TARGET, RecordKind.MEMBER):
            self._note(kind, member_id)

    # ------------------------------------------------------------ epochs and targets

    def _advance(self, *, changed: bool) -> None:
        """Raise the epoch if members, topics or states have changed, and compute a target that is due."""
        is_due = self.epoch > self.assignment_epoch
        if changed or self.has_new_states or self.seen_version != self.topics.version:
            self.seen_version, self.may_lack_states = self.topics.version, True
            fingerprint = self.topics.fingerprint(self._subscribed())
            if fingerprint != self.metadata_hash:
                self.metadata_hash, changed = fingerprint, True
            if changed or (not is_due and self._has_unassigned()):
                self._bump()
            self.has_new_states = False
        if self.epoch > self.assignment_epoch:
            self._retarget()

    def _subscribed(self) -> frozenset[bytes]:
        """Return ids of the existing topics that any member subscribes to."""
        ids = self.topics.ids
        return frozenset(ids[name] for m in self.members.values() for name in m.topics if name in ids)

    def _has_unassigned(self) -> bool:
        """Return whether subscribed partitions have a state, and are no member's."""
        assigned = frozenset[TopicPartition]().union(*self.target.values())
        return any(
            (topic_id, index) not in assigned
            for topic_id in self._subscribed()
            for index in self.states.ready(topic_id)
        )

    def _bump(self) -> None:
        self.epoch += 1
        self._note(RecordKind.GROUP)

    def _reach_epoch(self) -> None:
        self.assignment_epoch = self.epoch
        self._note(RecordKind.TARGET_EPOCH)

    def _retarget(self) -> None:
        ids, counts = self.topics.ids, self.topics.counts
        subscriptions = {
            m.member_id: frozenset(ids[name] for name in m.topics if name in ids)
            for m in self.members.values()
        }
        assignable = {
            topic_id: [p for p in self.states.ready(topic_id) if p < counts[topic_id]]
            for topic_id in frozenset[bytes]().union(*subscriptions.values())
        }
        for member_id, partitions in simple(subscriptions, assignable, self.target).items():
            if self.target.get(member_id) != partitions:
                self.target[member_id] = partitions
                self._note(RecordKind.TARGET, member_id)
        self._reach_epoch()

    def _follow(self, member: ShareMember) -> None:
        """Give a member its target."""
        target = self.target.get(member.member_id, frozenset())
        if (member.epoch, member.assigned) == (self.assignment_epoch, target):
            return
        if member.epoch != self.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
        member.assigned = target
        self._note(RecordKind.CURRENT, member.member_id)

    # ------------------------------------------------------------ states of partitions

    def ask_for_states(self) -> list[NewState]:
        """Return the states that subscribed partitions lack, and record that they are being initialized."""
        if not self.may_lack_states:
            return []
        self.may_lack_states = False
        found = []
        for topic_id in sorted(self._subscribed()):
            missing = self.states.missing(topic_id, self.topics.counts[topic_id])
            if missing:
                self._ask(topic_id, missing)
                found.append(NewState(topic_id, missing, self.epoch))
        return found

    def alter(self, offsets: Mapping[TopicPartition, int]) -> list[NewState]:
        """Return the states with which partitions begin at these offsets, and record that they are being initialized.
        Topics that no longer exist are left out. Raises KafkaError NON_EMPTY_GROUP.

        The epoch rises, so that no state of an earlier epoch can overwrite them.
        """
        self.check_deletable()
        existing = {place: offset for place, offset in offsets.items() if place[0] in self.topics.names}
        if not existing:
            return []
        self._bump()
        self._reach_epoch()
        for topic_id, indexes in by_topic(existing).items():
            self._ask(topic_id, indexes)
        return [
            NewState(topic_id, {index: offset}, self.epoch) for (topic_id, index), offset in existing.items()
        ]

    def _ask(self, topic_id: bytes, partitions: Iterable[int]) -> None:
        self.states.ask(topic_id, self.topics.names[topic_id], partitions)
        self._note(RecordKind.STATE_PARTITIONS)

    def awaits(self, state: NewState) -> bool:
        """Return whether the group still waits for these states to be initialized."""
        return not self.dead and all((state.topic_id, p) in self.states.asked for p in state.start_offsets)

    def finish_states(self, state: NewState, *, initialized: bool) -> None:
        """Record that the initialization of these states succeeded or failed. Failed states are missing again."""
        if self.states.finish(state.topic_id, state.start_offsets, initialized=initialized):
            self._note(RecordKind.STATE_PARTITIONS)
            self.has_new_states = True

    def begin_deletion(self, topic_ids: Iterable[bytes]) -> set[TopicPartition]:
        """Record that the states of these topics are being deleted; return the partitions that may have a state.
        Raises KafkaError NON_EMPTY_GROUP."""
        self.check_deletable()
        partitions = self.states.begin_deletion(topic_ids, self.topics.counts)
        if partitions:
            self._note(RecordKind.STATE_PARTITIONS)
        return partitions

    def end_deletion(self, topic_ids: Iterable[bytes]) -> None:
        """Record that the states of these topics are gone."""
        self.states.end_deletion(topic_ids)
        self._note(RecordKind.STATE_PARTITIONS)

    def forget_topics(self, topic_ids: Iterable[bytes]) -> None:
        """Drop the states of topics that no longer exist."""
        if self.states.forget(topic_ids):
            self._note(RecordKind.STATE_PARTITIONS)

    # ------------------------------------------------------------ time and end

    @property
    def session_timeout_ms(self) -> int:
        """The time after which a silent member is fenced."""
        return self.limits.session_timeout_of(self.own_settings())

    @property
    def next_deadline_ms(self) -> int | None:
        """Time of the next `tick`; None if nothing is pending."""
        return min((m.session_deadline_ms for m in self.members.values()), default=None)

    def tick(self, now_ms: int) -> None:
        """Fence members that are silent."""
        for member_id in [m.member_id for m in self.members.values() if m.session_deadline_ms <= now_ms]:
            self.remove(member_id)

    def check_deletable(self) -> None:
        """Raises KafkaError: NON_EMPTY_GROUP, or GROUP_ID_NOT_FOUND if the group is dead."""
        if self.dead:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} not found.")
        if self.members:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has {len(self.members)} members"
            )

    def bury(self) -> None:
        """End the group: tombstones for all its records are to be written."""
        for member_id in list(self.members):
            self._forget(member_id)
        self.dead = True
        for kind in (RecordKind.TARGET_EPOCH, RecordKind.STATE_PARTITIONS, RecordKind.GROUP):
            self._note(kind)

    # ------------------------------------------------------------ what is to be stored

    def _note(self, kind: RecordKind, member_id: str = "") -> None:
        self.changes[kind, member_id] = None

    def take_changes(self) -> list[Change]:
        """Return which records of the group have to be written (kind and member id), and forget them: the caller is
        responsible for them from here on."""
        changes, self.changes = list(self.changes), {}
        return changes
