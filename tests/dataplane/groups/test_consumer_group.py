"""Consumer groups of KIP-848: scenarios, and random histories compared with the protocol's promises."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.dataplane.groups.consumer import pattern_searches
from ottla.dataplane.groups.consumer.group import (
    TRANSITIONS,
    ConsumerGroup,
    ConsumerGroupState,
)
from ottla.dataplane.groups.consumer.member import HeartbeatReply, MemberHeartbeat, MemberState, Partitions
from ottla.dataplane.groups.consumer.offset_checks import check_commit, check_fetch
from ottla.dataplane.groups.consumer.records import (
    StoredConsumerGroup,
    consumer_record,
    read_consumer_record,
)
from ottla.dataplane.groups.consumer.subscriptions import PatternOf, TopicCatalog, TopicRights
from ottla.dataplane.groups.heartbeat_pace import SETTLING_INTERVAL_MS
from ottla.dataplane.groups.limits import ConsumerLimits
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.group_records import ConsumerGroupCurrentMemberAssignmentValue
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord, TopicRemovedRecord

SESSION_MS, REBALANCE_MS = 45_000, 10_000


class Topics:
    """A cluster's topics, and the catalog that follows them."""

    def __init__(self, rights: TopicRights | None = None, **counts: int) -> None:
        self.image, self.catalog = ClusterImage(), TopicCatalog(rights)
        self._serial = itertools.count(1)
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> bytes:
        topic_id = next(self._serial).to_bytes(16, "big")
        self.image.apply(TopicRecord(topic_id=topic_id, name=name))
        self.grow(name, count)
        return topic_id

    def grow(self, name: str, count: int) -> None:
        topic = self.image.topics[name]
        for index in range(len(topic.partitions), count):
            self.image.apply(
                PartitionRecord(
                    topic_id=topic.id, partition=index, replicas=[1], isr=[1], leader=1, leader_epoch=0
                )
            )
        self.catalog.update(self.image, [topic.id])

    def delete(self, name: str) -> None:
        topic_id = self.image.topics[name].id
        self.image.apply(TopicRemovedRecord(topic_id=topic_id))
        self.catalog.update(self.image, [topic_id])

    def all_of(self, *names: str) -> Partitions:
        return frozenset(
            (self.image.topics[name].id, index)
            for name in names
            for index in range(len(self.image.topics[name].partitions))
        )


def new_group(topics: Topics, **limits: int) -> ConsumerGroup:
    return ConsumerGroup("g", ConsumerLimits(**limits), topics.catalog)


def join(
    member_id: str, *topics: str, instance_id: str | None = None, regex: str | None = None
) -> MemberHeartbeat:
    return MemberHeartbeat(
        member_id,
        0,
        instance_id,
        rebalance_timeout_ms=REBALANCE_MS,
        topics=None if regex is not None else topics,
        regex=regex,
        owned=frozenset(),
    )


def beat(reply: HeartbeatReply, owned: Partitions | None = None, **more: Any) -> MemberHeartbeat:
    return MemberHeartbeat(reply.member_id, reply.epoch, owned=owned, **more)


def refused(group: ConsumerGroup, said: MemberHeartbeat) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        group.heartbeat(said, 0)
    return refusal.value.code


def test_the_first_member_gets_everything_at_once() -> None:
    topics = Topics(a=3)
    group = new_group(topics)
    assert group.state is ConsumerGroupState.EMPTY
    reply = group.heartbeat(join("m", "a"), 0)
    assert (reply.epoch, reply.assigned) == (1, topics.all_of("a"))
    assert group.state is ConsumerGroupState.STABLE
    again = group.heartbeat(beat(reply), 1)
    assert (again.epoch, again.assigned) == (1, None)


def test_what_one_gives_up_the_other_gets_only_when_it_has_let_go() -> None:
    topics = Topics(a=4)
    group = new_group(topics)
    first = group.heartbeat(join("m1", "a"), 0)
    second = group.heartbeat(join("m2", "a"), 0)
    assert (second.epoch, second.assigned) == (2, frozenset())
    assert group.state is ConsumerGroupState.RECONCILING
    reply = group.heartbeat(beat(first), 1)
    assert reply.epoch == 1
    assert reply.assigned is not None
    assert len(reply.assigned) == 2
    assert group.heartbeat(beat(second), 2).assigned is None
    kept = group.heartbeat(beat(reply, topics.all_of("a")), 3)
    assert (kept.epoch, kept.assigned) == (1, None)
    moved = group.heartbeat(beat(reply, reply.assigned), 4)
    assert moved.epoch == 2
    given = group.heartbeat(beat(second), 5)
    assert given.assigned == topics.all_of("a") - reply.assigned
    assert group.state is ConsumerGroupState.STABLE


def test_a_member_that_does_not_let_go_in_time_is_fenced() -> None:
    topics = Topics(a=2)
    group = new_group(topics)
    first = group.heartbeat(join("m1", "a"), 0)
    second = group.heartbeat(join("m2", "a"), 0)
    group.heartbeat(beat(first), 1)
    for now in range(1_000, 10_000, 3_000):
        group.heartbeat(beat(first, topics.all_of("a")), now)
        group.tick(now)
    assert group.next_deadline_ms == 1 + REBALANCE_MS
    assert group.tick(1 + REBALANCE_MS) == ["m1"]
    assert group.heartbeat(beat(second), 1 + REBALANCE_MS).assigned == topics.all_of("a")
    assert refused(group, beat(first, topics.all_of("a"))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_fenced_and_the_last_one_leaves_the_group_empty() -> None:
    topics = Topics(a=2)
    group = new_group(topics)
    reply = group.heartbeat(join("m", "a"), 0)
    assert group.next_deadline_ms == SESSION_MS
    assert group.tick(SESSION_MS) == ["m"]
    assert group.state is ConsumerGroupState.EMPTY
    assert (group.epoch, group.assignment_epoch) == (2, 2)
    assert not group.owners
    assert refused(group, beat(reply)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_epochs_that_are_not_the_members() -> None:
    topics = Topics(a=4)
    group = new_group(topics)
    first = group.heartbeat(join("m1", "a"), 0)
    assert refused(group, MemberHeartbeat("m1", 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    group.heartbeat(join("m2", "a"), 0)
    reply = group.heartbeat(beat(first), 0)
    assert reply.assigned is not None
    moved = group.heartbeat(beat(reply, reply.assigned), 0)
    assert moved.epoch == 2
    # The answer was lost: the member says its old epoch, and nothing that is not its own.
    assert group.heartbeat(MemberHeartbeat("m1", 1, owned=reply.assigned), 0).epoch == 2
    assert refused(group, MemberHeartbeat("m1", 1, owned=topics.all_of("a"))) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(group, MemberHeartbeat("m1", 1)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert check_commit(group, "m1", 1, topics.all_of("a")) is ErrorCode.STALE_MEMBER_EPOCH
    assert check_commit(group, "m1", 2, ()) is ErrorCode.NONE
    assert check_commit(group, "m9", 2, ()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_commit(group, "", -1, ()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_fetch(group, None, -1) is ErrorCode.NONE
    assert check_fetch(group, "m1", 7) is ErrorCode.STALE_MEMBER_EPOCH


def test_a_fenced_member_that_joins_again_gets_what_it_had() -> None:
    topics = Topics(a=3)
    group = new_group(topics)
    group.heartbeat(join("m", "a"), 0)
    again = group.heartbeat(join("m", "a"), 1)
    assert (again.epoch, again.assigned) == (1, topics.all_of("a"))


def test_a_static_member_comes_back_under_a_new_id_without_a_new_epoch() -> None:
    topics = Topics(a=2)
    group = new_group(topics)
    old = group.heartbeat(join("old", "a", instance_id="i"), 0)
    assert refused(group, join("new", "a", instance_id="i")) is ErrorCode.UNRELEASED_INSTANCE_ID
    left = group.heartbeat(MemberHeartbeat("old", -2, "i"), 1)
    assert left.epoch == -2
    new = group.heartbeat(join("new", "a", instance_id="i"), 2)
    assert (new.epoch, new.assigned, group.epoch) == (1, topics.all_of("a"), 1)
    assert refused(group, MemberHeartbeat("old", old.epoch, "i")) is ErrorCode.FENCED_INSTANCE_ID
    assert refused(group, MemberHeartbeat("x", 1, "unknown")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    group = new_group(Topics(a=2))
    group.heartbeat(join("m", "a", instance_id="i"), 0)
    group.heartbeat(MemberHeartbeat("m", -2, "i"), 5)
    assert group.tick(SESSION_MS) == ["m"]
    assert not group.static_members


def test_topics_that_come_grow_and_go_move_the_group() -> None:
    topics = Topics(a=1)
    group = new_group(topics)
    reply = group.heartbeat(join("m", regex="[ab].*"), 0)
    assert reply.assigned == topics.all_of("a")
    topics.create("bb", 2)
    topics.create("c", 2)
    reply = group.heartbeat(beat(reply), 1)
    assert reply.assigned == topics.all_of("a", "bb")
    topics.grow("a", 3)
    reply = group.heartbeat(beat(reply), 2)
    assert (reply.epoch, reply.assigned) == (3, topics.all_of("a", "bb"))
    topics.delete("bb")
    reply = group.heartbeat(beat(reply), 3)
    assert reply.assigned == topics.all_of("a")
    assert group.heartbeat(beat(reply, topics.all_of("a")), 4).epoch == 4
    topics.create("unwanted", 1)
    group.heartbeat(MemberHeartbeat("m", 4), 5)
    assert group.epoch == 4


def test_patterns_are_re2s_and_match_whole_names() -> None:
    topics = Topics(ab=1, abc=1)
    group = new_group(topics)
    assert refused(group, join("m", regex="a(")) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused(group, join("m", regex=r"(a)\1")) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not group.members
    assert group.heartbeat(join("m", regex="ab"), 0).assigned == topics.all_of("ab")


def test_a_full_group_takes_nobody() -> None:
    group = new_group(Topics(a=1), max_size=1)
    group.heartbeat(join("m", "a"), 0)
    assert refused(group, join("n", "a")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(group.members) == ["m"]


def test_settings_of_the_group_move_within_the_brokers_bounds() -> None:
    own: Mapping[str, str] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "1",
    }
    group = ConsumerGroup("g", ConsumerLimits(), Topics(a=1).catalog, lambda: own)
    reply = group.heartbeat(join("m", "a"), 0)
    assert group.next_deadline_ms == 50_000
    assert group.heartbeat(beat(reply), 5_000).heartbeat_interval_ms == 5_000


def test_members_send_heartbeats_often_while_the_group_changes() -> None:
    topics = Topics(a=2)
    group = new_group(topics)
    first = group.heartbeat(join("m", "a"), 0)
    assert first.heartbeat_interval_ms == SETTLING_INTERVAL_MS
    assert group.heartbeat(beat(first), 4_999).heartbeat_interval_ms == SETTLING_INTERVAL_MS
    assert group.heartbeat(beat(first), 5_000).heartbeat_interval_ms == 5_000
    waiting = group.heartbeat(join("n", "a"), 6_000)
    assert (waiting.assigned, waiting.heartbeat_interval_ms) == (frozenset(), SETTLING_INTERVAL_MS)
    # The first member keeps its partitions for longer than the interval.
    revoking = group.heartbeat(beat(first, owned=topics.all_of("a")), 7_000)
    for now_ms in (7_000, 20_000):
        assert group.heartbeat(beat(waiting), now_ms).heartbeat_interval_ms == SETTLING_INTERVAL_MS
    assert revoking.assigned is not None
    released = group.heartbeat(beat(revoking, owned=revoking.assigned), 21_000)
    given = group.heartbeat(beat(waiting), 21_000)
    assert given.assigned == topics.all_of("a") - revoking.assigned
    assert {reply.heartbeat_interval_ms for reply in (released, given)} == {5_000}


def test_members_of_a_large_group_send_no_more_than_a_thousand_heartbeats_a_second() -> None:
    group = new_group(Topics(a=1))
    replies = [group.heartbeat(join(f"m{number}", "a"), 0) for number in range(800)]
    assert replies[-1].heartbeat_interval_ms == 800


@pytest.mark.parametrize("earlier", [False, True])
def test_states_of_members_are_stored_with_the_numbers_of_kafka_or_of_earlier_programs(earlier: bool) -> None:
    """Both numberings are read, since a log has records from before an upgrade and after it."""
    topics = Topics(a=2, b=1)
    group = new_group(topics)
    first = group.heartbeat(join("revokes", "a"), 0)
    group.heartbeat(join("waits", "a"), 0)
    group.heartbeat(beat(first), 0)
    group.heartbeat(join("stable", "b"), 0)
    states = {"stable": MemberState.STABLE, "revokes": MemberState.UNREVOKED, "waits": MemberState.UNRELEASED}
    stored, numbers = StoredConsumerGroup(), dict[str, int]()
    for change in group.take_changes():
        key, value = consumer_record(group, change, is_for_earlier_programs=earlier)
        record = read_consumer_record(int.from_bytes(key[:2], "big"), key, value, 0)
        stored.replay(record)
        if isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue):
            numbers[record.member_id] = record.value.state
    assert numbers == {name: state + earlier for name, state in states.items()}
    assert list(states.values()) == [0, 1, 2], "as in MemberState of Kafka 4.4"
    restored = stored.restore("g", ConsumerLimits(), topics.catalog, dict, 0)
    assert {name: member.state for name, member in restored.members.items()} == states
    restored.check()


@dataclass
class ConsumerClient:
    """A consumer that follows the protocol, and gives up revoked partitions after a delay."""

    member_id: str
    epoch: int = 0
    told: Partitions = frozenset()
    owned: Partitions = frozenset()
    topics: tuple[str, ...] = ("a", "b")
    unsure: bool = False
    """True if the last answer was lost, so that the next request must be complete."""

    def say(self, *, owned: bool) -> MemberHeartbeat:
        """Return the next heartbeat; with `owned` it confirms the revocation."""
        if not self.epoch:
            return join(self.member_id, *self.topics)
        if owned or self.unsure:
            self.owned &= self.told
        return MemberHeartbeat(
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if self.unsure else -1,
            topics=self.topics if owned or self.unsure else None,
            owned=self.owned if owned or self.unsure else None,
        )


class ConsumerGroupHistory(RuleBasedStateMachine):
    """Random clients, topics, time and coordinators. No partition may have two owners."""

    @initialize(size=st.integers(1, 4))
    def start(self, size: int) -> None:
        self.topics = Topics(a=3, b=2)
        self.group = new_group(self.topics)
        self.stored = StoredConsumerGroup()
        self.serial = itertools.count(1)
        self.clients = [self.fresh() for _ in range(size)]
        self.now = 0
        self.epochs = (0, 0)
        self.state = ConsumerGroupState.EMPTY

    def fresh(self) -> ConsumerClient:
        return ConsumerClient(f"m{next(self.serial)}")

    def pick(self, number: int) -> ConsumerClient:
        return self.clients[number % len(self.clients)]

    def store(self) -> None:
        for change in self.group.take_changes():
            key, value = consumer_record(self.group, change)
            self.stored.replay(read_consumer_record(int.from_bytes(key[:2], "big"), key, value, 0))

    def speak(self, client: ConsumerClient, said: MemberHeartbeat, *, lost: bool = False) -> None:
        try:
            reply = self.group.heartbeat(said, self.now)
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                raise
            client.epoch, client.told, client.owned = 0, frozenset(), frozenset()
            return
        self.watch()
        client.unsure = lost
        if not lost:
            client.epoch = reply.epoch
            if reply.assigned is not None:
                client.told = reply.assigned
                # Given at once, given up when the client gets round to it.
                client.owned |= reply.assigned

    @rule(number=st.integers(0, 3), owned=st.booleans(), lost=st.booleans())
    def heartbeat(self, number: int, owned: bool, lost: bool) -> None:
        client = self.pick(number)
        self.speak(client, client.say(owned=owned), lost=lost)

    @rule(number=st.integers(0, 3), topics=st.sampled_from([("a",), ("b",), ("a", "b")]))
    def subscribe(self, number: int, topics: tuple[str, ...]) -> None:
        client = self.pick(number)
        client.topics = topics
        self.speak(client, client.say(owned=True))

    @rule(number=st.integers(0, 3))
    def leave(self, number: int) -> None:
        client = self.pick(number)
        if client.epoch:
            self.speak(client, MemberHeartbeat(client.member_id, -1))
            self.clients[self.clients.index(client)] = self.fresh()

    @rule(step=st.sampled_from([100, 3_000, REBALANCE_MS, SESSION_MS]))
    def time_passes(self, step: int) -> None:
        until = self.now + step
        while (deadline := self.group.next_deadline_ms) is not None and deadline <= until:
            self.now = deadline
            for member_id in self.group.tick(self.now):
                for client in self.clients:
                    if client.member_id == member_id:  # it finds out by itself, having stopped before
                        client.owned = frozenset()
            self.watch()
            after = self.group.next_deadline_ms
            assert after is None or after > deadline, "tick left work undone"
        self.now = until

    @rule(name=st.sampled_from(["a", "b"]), extra=st.integers(1, 2))
    def topic_grows(self, name: str, extra: int) -> None:
        if len(self.topics.all_of(name)) < 7:
            self.topics.grow(name, len(self.topics.all_of(name)) + extra)

    @rule()
    def coordinator_fails_over(self) -> None:
        self.store()
        if not self.stored.exists:
            return
        restored = self.stored.restore("g", ConsumerLimits(), self.topics.catalog, dict, self.now)
        assert essence(restored) == essence(self.group)
        self.group = restored

    @rule()
    def everybody_settles(self) -> None:
        """Check that from any state each partition has an owner after a few rounds, if all clients
        follow the protocol.
        """
        for _ in range(8):
            for client in self.clients:
                self.speak(client, client.say(owned=True))
        members = self.group.members.values()
        wanted = frozenset(p for m in members for topic in m.topics for p in self.topics.all_of(topic))
        assert frozenset().union(*(m.assigned for m in members)) == wanted
        assert self.group.state is ConsumerGroupState.STABLE
        assert all(client.owned == self.group.members[client.member_id].assigned for client in self.clients)

    def watch(self) -> None:
        after = self.group.state
        assert after is self.state or after in TRANSITIONS[self.state], f"{self.state} -> {after}"
        self.state = after

    @invariant()
    def one_owner(self) -> None:
        owned = [p for client in self.clients for p in client.owned]
        assert len(owned) == len(set(owned)), "two clients own a partition"
        self.group.check()

    @invariant()
    def epochs_rise(self) -> None:
        group = self.group
        assert (group.epoch, group.assignment_epoch) >= self.epochs
        self.epochs = (group.epoch, group.assignment_epoch)


def essence(group: ConsumerGroup) -> object:
    """Return all state that must survive the coordinator."""
    return (
        (group.epoch, group.assignment_epoch, group.metadata_hash, group.static_members, group.owners),
        {m: t for m, t in group.target.items() if t},
        {
            m.member_id: (
                *(
                    m.instance_id,
                    m.rack_id,
                    m.client_id,
                    m.principal,
                    m.rebalance_timeout_ms,
                    m.topics,
                    m.regex,
                    m.assignor,
                ),
                *(m.epoch, m.previous_epoch, m.state, m.assigned, m.revoking),
            )
            for m in group.members.values()
        },
    )


ConsumerGroupHistory.TestCase.settings = settings(max_examples=100, stateful_step_count=30)
TestConsumerGroupHistory = ConsumerGroupHistory.TestCase


def test_every_state_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(ConsumerGroupState)
    assert {ConsumerGroupState.EMPTY}.union(*TRANSITIONS.values()) == set(ConsumerGroupState)


def test_patterns_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pattern_searches.FOUND_MAX == 1_000_000
    monkeypatch.setattr(pattern_searches, "FOUND_MAX", 10_000)
    topics = Topics(**{f"t{n}": 1 for n in range(200)})
    searches = topics.catalog.searches._searches

    def kept() -> int:
        return sum(len(search.ids) for search in searches.values())

    for number in range(120):
        assert len(topics.catalog.resolve((), PatternOf(f"t.*|{number}"))) == 200
        assert kept() <= 10_000
    assert kept() > 5_000, "as much as fits is kept"
    assert len(topics.catalog.resolve((), PatternOf("t.*|0"))) == 200
