"""Members of a consumer group, their heartbeats and the answers to these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.consumer_groups import LEAVE_EPOCH
from ...runtime.retained_bytes import RetainedClaim
from .subscriptions import PatternOf

TopicPartition = tuple[bytes, int]
"""Topic id and partition index."""
Partitions = frozenset[TopicPartition]


class MemberState(IntEnum):
    """A member's progress towards its target; the numbers are Kafka's in `__consumer_offsets`."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """The JoinGroup data of a consumer group's member that uses the classic protocol. `protocols` are pairs of assignor
    and subscription, in order of preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class HeartbeatNews(NamedTuple):
    """The result of a heartbeat for its member: whether its data, its subscription or its client changed."""

    is_news: bool
    """True if anything changed."""
    subscribes_otherwise: bool
    is_another_client: bool


@dataclass(slots=True)
class ConsumerMember:
    """A member of a consumer group.

    Invariant: `assigned` and `revoking` are disjoint, and no other member holds a partition of either.

    `regex` is "" without a pattern. `principal` and `client_host` are from the latest heartbeat: their rights decide
    which topics the pattern matches. `since` has the epoch at which the member got each partition that it holds. Times
    are milliseconds; deadlines are None if nothing is pending.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None
    classic: ClassicSide | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = frozenset()
    revoking: Partitions = frozenset()
    since: dict[TopicPartition, int] = field(default_factory=dict)
    session_deadline_ms: int = 0
    revoke_deadline_ms: int | None = None
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    claim: RetainedClaim | None = None

    def check(self) -> None:
        """Check the invariants of the member. Raises AssertionError if its partitions or its epochs contradict each
        other."""
        if self.assigned & self.revoking:
            raise AssertionError(f"{self.member_id} has and gives up {sorted(self.assigned & self.revoking)}")
        if self.since.keys() != self.held:
            raise AssertionError(f"{self.member_id} holds {sorted(self.held)}, since {self.since}")
        if (self.state is MemberState.UNREVOKED) != bool(self.revoking):
            raise AssertionError(
                f"{self.member_id} is {self.state.name} and gives up {sorted(self.revoking)}"
            )
        if bool(self.revoking) != (self.revoke_deadline_ms is not None):
            raise AssertionError(
                f"{self.member_id} gives up {sorted(self.revoking)}, which ends at {self.revoke_deadline_ms}"
            )
        if self.epoch < LEAVE_EPOCH and self.instance_id is None:
            raise AssertionError(f"{self.member_id} is away, and no static member")

    def check_epoch(self, beat: MemberHeartbeat) -> None:
        """Raises KafkaError FENCED_MEMBER_EPOCH for an epoch that is not the member's.

        The previous epoch is accepted if the heartbeat claims only partitions of the member: then the answer with the
        new epoch was lost.
        """
        if beat.epoch == self.epoch:
            return
        lost = beat.epoch == self.previous_epoch and beat.owned is not None and beat.owned <= self.assigned
        if beat.epoch > self.epoch or not lost:
            relation = "greater" if beat.epoch > self.epoch else "smaller"
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a {relation} member epoch ({beat.epoch}) than the one known by the "
                f"group coordinator ({self.epoch}). The member must abandon all its partitions and rejoin.",
            )

    def take_over(self, beat: MemberHeartbeat) -> HeartbeatNews:
        """Update the member from a heartbeat; fields that are absent from the heartbeat keep their values."""
        subscription, client, rest = self._subscription, self._client, self._rest
        if beat.topics is not None:
            self.topics = tuple(sorted(set(beat.topics)))
        if beat.regex is not None:
            self.regex = beat.regex
        if beat.assignor is not None:
            self.assignor = beat.assignor
        if beat.rack_id is not None:
            self.rack_id = beat.rack_id
        if beat.rebalance_timeout_ms != -1:
            self.rebalance_timeout_ms = beat.rebalance_timeout_ms
        self.client_id, self.client_host, self.principal = beat.client_id, beat.client_host, beat.principal
        otherwise, another = self._subscription != subscription, self._client != client
        return HeartbeatNews(otherwise or another or self._rest != rest, otherwise, another)

    @property
    def _subscription(self) -> tuple[object, ...]:
        return (self.topics, self.regex, self.assignor)

    @property
    def _client(self) -> tuple[object, ...]:
        return (self.principal, self.client_host)

    @property
    def _rest(self) -> tuple[object, ...]:
        return (self.rack_id, self.rebalance_timeout_ms, self.client_id)

    @property
    def pattern(self) -> PatternOf:
        """The pattern of the member's subscription, with the client whose rights apply."""
        return PatternOf(self.regex, self.principal, self.client_host.removeprefix("/"))

    @property
    def held(self) -> Partitions:
        """The partitions that belong to the member, including those that it still has to give up. No other member may
        get them yet."""
        return self.assigned | self.revoking

    @property
    def deadline_ms(self) -> int:
        """The earliest of the member's deadlines (session, giving partitions up), in ms."""
        pending = (self.revoke_deadline_ms, self.join_deadline_ms, self.sync_deadline_ms)
        return min(self.session_deadline_ms, *(d for d in pending if d is not None), self.session_deadline_ms)


@dataclass(frozen=True, slots=True)
class MemberHeartbeat:
    """A ConsumerGroupHeartbeat. A field is None (the timeout is -1) if it has not changed since the last heartbeat."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None

    @property
    def holders(self) -> tuple[str, str]:
        """The principal and the address that claim memory for the member."""
        return self.principal, self.client_host.removeprefix("/")

    @property
    def is_full(self) -> bool:
        """True if the heartbeat has all fields: its client has lost its state, and gets a full answer."""
        subscribes = self.topics is not None or self.regex is not None
        return subscribes and self.rebalance_timeout_ms != -1 and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to a heartbeat; `assigned` is None if the member knows its assignment already."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[bytes, list[int]]:
    """Return sorted partition indexes by topic id, as messages and records list them."""
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return found
