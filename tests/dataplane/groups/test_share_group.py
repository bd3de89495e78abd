"""Share groups of KIP-932: scenarios, and random histories compared with the protocol's promises."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.dataplane.groups.consumer.member import HeartbeatReply, Partitions
from ottla.dataplane.groups.heartbeat_pace import SETTLING_INTERVAL_MS
from ottla.dataplane.groups.limits import ShareGroupLimits
from ottla.dataplane.groups.share.group import ShareGroup, ShareGroupState
from ottla.dataplane.groups.share.member import ShareHeartbeat
from ottla.dataplane.groups.share.records import StoredShareGroup, read_share_record, share_record
from ottla.dataplane.groups.share.state_partitions import NewState
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.groups.test_consumer_group import Topics

SESSION_MS = 45_000


def new_group(topics: Topics, **limits: int) -> ShareGroup:
    return ShareGroup("g", ShareGroupLimits(**limits), topics.catalog)


def join(member_id: str, *topics: str) -> ShareHeartbeat:
    return ShareHeartbeat(member_id, 0, topics=topics)


def beat(reply: HeartbeatReply, topics: tuple[str, ...] | None = None) -> ShareHeartbeat:
    return ShareHeartbeat(reply.member_id, reply.epoch, topics=topics)


def leave(member_id: str) -> ShareHeartbeat:
    return ShareHeartbeat(member_id, -1)


def give_states(group: ShareGroup) -> list[NewState]:
    """Initialize all states that the group asks for."""
    states = group.ask_for_states()
    for state in states:
        group.finish_states(state, initialized=True)
    return states


def stable(topics: Topics, *member_ids: str, subscribed: tuple[str, ...] = ("a",)) -> ShareGroup:
    """Return a group whose members have reached their target."""
    group = new_group(topics)
    replies = [group.heartbeat(join(member_id, *subscribed), 0) for member_id in member_ids]
    give_states(group)
    for _ in range(2):
        replies = [group.heartbeat(beat(reply), 0) for reply in replies]
    return group


def refused(group: ShareGroup, said: ShareHeartbeat) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        group.heartbeat(said, 0)
    return refusal.value.code


def test_a_member_gets_partitions_once_they_have_a_state() -> None:
    topics = Topics(a=2)
    group = new_group(topics)
    assert group.state is ShareGroupState.EMPTY
    first = group.heartbeat(join("m", "a"), 0)
    assert (first.epoch, first.assigned, first.heartbeat_interval_ms) == (
        2,
        frozenset(),
        SETTLING_INTERVAL_MS,
    )
    assert group.state is ShareGroupState.STABLE
    (state,) = group.ask_for_states()
    assert state == (topics.image.topics["a"].id, {0: -1, 1: -1}, 2)
    waiting = group.heartbeat(beat(first), 0)
    assert (waiting.epoch, waiting.assigned) == (2, None)
    assert group.ask_for_states() == []
    group.finish_states(state, initialized=True)
    ready = group.heartbeat(beat(first), 0)
    assert (ready.epoch, ready.assigned) == (3, topics.all_of("a"))
    again = group.heartbeat(beat(ready), 0)
    assert (again.epoch, again.assigned) == (3, None)


def test_heartbeats_are_frequent_until_the_group_has_settled() -> None:
    group = new_group(Topics(a=1))
    reply = group.heartbeat(join("m", "a"), 0)
    (state,) = group.ask_for_states()
    assert group.heartbeat(beat(reply), 5_000).heartbeat_interval_ms == SETTLING_INTERVAL_MS
    group.finish_states(state, initialized=True)
    reply = group.heartbeat(beat(reply), 6_000)
    assert reply.heartbeat_interval_ms == SETTLING_INTERVAL_MS
    assert group.heartbeat(beat(reply), 11_000).heartbeat_interval_ms == 5_000


def test_states_that_could_not_be_initialized_are_asked_for_again() -> None:
    group = new_group(Topics(a=1))
    reply = group.heartbeat(join("m", "a"), 0)
    (state,) = group.ask_for_states()
    group.finish_states(state, initialized=False)
    assert group.heartbeat(beat(reply), 0).assigned is None
    assert group.ask_for_states() == [state]


def test_members_share_a_partition() -> None:
    topics = Topics(a=1)
    group = stable(topics, "m1", "m2", "m3")
    assert {m.member_id: m.assigned for m in group.members.values()} == dict.fromkeys(
        ("m1", "m2", "m3"), topics.all_of("a")
    )


def test_a_topic_that_grew_begins_at_the_beginning_of_the_new_partitions() -> None:
    topics = Topics(a=1)
    group = stable(topics, "m")
    topics.grow("a", 3)
    group.heartbeat(ShareHeartbeat("m", group.members["m"].epoch), 0)
    (state,) = give_states(group)
    assert state.start_offsets == {1: 0, 2: 0}
    assert group.heartbeat(ShareHeartbeat("m", group.members["m"].epoch), 0).assigned == topics.all_of("a")


def test_a_topic_that_is_made_anew_gets_new_states() -> None:
    topics = Topics(a=1)
    group = stable(topics, "m")
    old = topics.image.topics["a"].id
    topics.delete("a")
    group.forget_topics([old])
    reply = group.heartbeat(ShareHeartbeat("m", group.members["m"].epoch), 0)
    assert reply.assigned == frozenset()
    assert group.states.is_empty
    new = topics.create("a", 1)
    reply = group.heartbeat(beat(reply), 0)
    assert [(s.topic_id, s.start_offsets) for s in give_states(group)] == [(new, {0: -1})]
    assert group.heartbeat(beat(reply), 0).assigned == {(new, 0)}


def test_the_end_of_an_initialization_of_a_removed_topic_changes_nothing() -> None:
    topics = Topics(a=1)
    group = new_group(topics)
    group.heartbeat(join("m", "a"), 0)
    (state,) = group.ask_for_states()
    topics.delete("a")
    group.forget_topics([state.topic_id])
    group.finish_states(state, initialized=True)
    assert group.states.is_empty


def test_epochs_are_checked() -> None:
    group = stable(Topics(a=1), "m")
    assert group.members["m"].epoch == 3
    assert refused(group, ShareHeartbeat("m", 4)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.heartbeat(ShareHeartbeat("m", 2), 0).epoch == 3
    group.heartbeat(join("m2", "a"), 0)
    assert group.heartbeat(ShareHeartbeat("m", 3), 0).epoch == 4
    assert refused(group, ShareHeartbeat("m", 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(group, ShareHeartbeat("x", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(group, leave("x")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_else() -> None:
    group = new_group(Topics(a=1), max_size=1)
    reply = group.heartbeat(join("m", "a"), 0)
    assert refused(group, join("m2", "a")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.heartbeat(beat(reply), 0).epoch == reply.epoch
    assert group.heartbeat(join("m", "a"), 0).assigned == frozenset()


def test_a_member_that_joins_again_keeps_its_place() -> None:
    topics = Topics(a=2)
    group = stable(topics, "m")
    again = group.heartbeat(join("m", "a"), 0)
    assert (again.epoch, again.assigned) == (3, topics.all_of("a"))


def test_topics_are_kept_until_the_member_names_others() -> None:
    topics = Topics(a=1, b=1)
    group = stable(topics, "m", subscribed=("a", "b"))
    epoch = group.members["m"].epoch
    named = group.heartbeat(ShareHeartbeat("m", epoch, topics=("b",)), 0)
    assert (named.epoch, named.assigned) == (epoch + 1, topics.all_of("b"))
    nothing = group.heartbeat(beat(named, topics=()), 0)
    assert (nothing.epoch, nothing.assigned) == (epoch + 2, frozenset())


def test_silent_members_are_fenced_and_leave_their_partitions() -> None:
    topics = Topics(a=2)
    group = stable(topics, "m1", "m2")
    epoch = group.members["m2"].epoch
    group.heartbeat(ShareHeartbeat("m2", epoch), 10)
    assert group.next_deadline_ms == SESSION_MS
    group.tick(SESSION_MS)
    assert list(group.members) == ["m2"]
    assert group.heartbeat(ShareHeartbeat("m2", epoch), 20).assigned == topics.all_of("a")
    group.tick(20 + SESSION_MS)
    assert (group.state, group.next_deadline_ms) == (ShareGroupState.EMPTY, None)


def test_settings_of_the_group_stay_within_the_bounds_of_the_broker() -> None:
    own = {"share.session.timeout.ms": "50000", "share.heartbeat.interval.ms": "90000"}
    group = ShareGroup("g", ShareGroupLimits(), Topics(a=1).catalog, lambda: own)
    reply = group.heartbeat(join("m", "a"), 0)
    assert group.next_deadline_ms == 50_000
    assert group.heartbeat(beat(reply), 15_000).heartbeat_interval_ms == 15_000


def test_offsets_are_altered_only_in_an_empty_group_and_with_a_higher_epoch() -> None:
    topics = Topics(a=2)
    group = stable(topics, "m")
    topic_id = topics.image.topics["a"].id
    with pytest.raises(KafkaError) as refusal:
        group.alter({(topic_id, 0): 7})
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP
    group.heartbeat(leave("m"), 0)
    first, second = (group.alter({(topic_id, 0): offset}) for offset in (7, 8))
    assert [s.start_offsets for s in (*first, *second)] == [{0: 7}, {0: 8}]
    assert second[0].state_epoch > first[0].state_epoch > 2
    group.finish_states(second[0], initialized=True)
    assert group.states.ready(topic_id) == {0, 1}
    assert group.heartbeat(join("m", "a"), 0).assigned == topics.all_of("a")


def test_states_are_deleted_with_the_topics_of_an_empty_group() -> None:
    topics = Topics(a=2, b=1)
    group = stable(topics, "m", subscribed=("a", "b"))
    a, b = (topics.image.topics[name].id for name in "ab")
    with pytest.raises(KafkaError) as refusal:
        group.begin_deletion([a])
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP
    group.heartbeat(leave("m"), 0)
    assert group.begin_deletion([a]) == {(a, 0), (a, 1)}
    # A deletion that failed is repeated for all partitions of the topic.
    assert group.begin_deletion([a]) == {(a, 0), (a, 1)}
    group.end_deletion([a])
    assert group.begin_deletion([a]) == set()
    assert group.states.topic_ids == {b}


MEMBERS = ("m1", "m2", "m3", "m4")
NAMES = ("a", "b", "c")


class Histories(RuleBasedStateMachine):
    """Heartbeats, silence, lost answers, topics that come, grow and go, states that come late or never, offsets that
    are altered and deleted, and coordinators that move."""

    @initialize()
    def begin(self) -> None:
        self.topics = Topics(a=2, b=1)
        self.group = new_group(self.topics, max_size=3)
        self.now_ms = 0
        self.stored = StoredShareGroup()
        self.known: dict[str, HeartbeatReply] = {}
        self.pending: list[NewState] = []
        self.has_state: Partitions = frozenset()
        self.epoch = 0
        self.refusals: list[tuple[ErrorCode, bool]] = []

    def say(self, said: ShareHeartbeat) -> HeartbeatReply | None:
        is_full = len(self.group.members) == 3
        try:
            reply = self.group.heartbeat(said, self.now_ms)
        except KafkaError as error:
            self.refusals.append((error.code, is_full))
            self.known.pop(said.member_id, None)
            return None
        if said.epoch >= 0:
            self.pending += self.group.ask_for_states()
        return reply

    @rule(
        member_id=st.sampled_from(MEMBERS),
        topics=st.sets(st.sampled_from(NAMES), min_size=1),
        is_lost=st.booleans(),
    )
    def member_joins(self, member_id: str, topics: set[str], is_lost: bool) -> None:
        reply = self.say(join(member_id, *topics))
        if reply is not None and not is_lost:
            assert reply.assigned is not None
            self.known[member_id] = reply

    @precondition(lambda self: self.known)
    @rule(data=st.data(), is_lost=st.booleans())
    def member_beats(self, data: st.DataObject, is_lost: bool) -> None:
        known = self.known[data.draw(st.sampled_from(sorted(self.known)))]
        topics = data.draw(st.none() | st.lists(st.sampled_from(NAMES), unique=True))
        reply = self.say(beat(known, None if topics is None else tuple(topics)))
        if reply is not None and not is_lost:
            self.known[reply.member_id] = reply

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def member_leaves(self, data: st.DataObject) -> None:
        self.say(leave(data.draw(st.sampled_from(sorted(self.known)))))

    @rule(ms=st.integers(1, 60_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        silent = {m.member_id for m in self.group.members.values() if m.session_deadline_ms <= self.now_ms}
        before = set(self.group.members)
        self.group.tick(self.now_ms)
        assert set(self.group.members) == before - silent

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def topic_grows(self, name: str, count: int) -> None:
        if name in self.topics.image.topics:
            self.topics.grow(name, count)
        else:
            self.topics.create(name, count)

    @rule(name=st.sampled_from(NAMES))
    def topic_goes(self, name: str) -> None:
        if name in self.topics.image.topics:
            topic_id = self.topics.image.topics[name].id
            self.topics.delete(name)
            self.group.forget_topics([topic_id])
            self.has_state = frozenset(p for p in self.has_state if p[0] != topic_id)

    @precondition(lambda self: self.pending)
    @rule(succeeds=st.booleans())
    def states_are_initialized(self, succeeds: bool) -> None:
        state = self.pending.pop(0)
        self.group.finish_states(state, initialized=succeeds)
        if succeeds and state.topic_id in self.topics.image.topics_by_id:
            self.has_state |= {(state.topic_id, p) for p in state.start_offsets}

    @precondition(lambda self: not self.group.members and not self.pending)
    @rule(name=st.sampled_from(NAMES), alters=st.booleans())
    def offsets_are_altered_or_deleted(self, name: str, alters: bool) -> None:
        if name not in self.topics.image.topics:
            return
        topic_id = self.topics.image.topics[name].id
        if alters:
            before = self.group.epoch
            (state,) = self.group.alter({(topic_id, 0): 5})
            assert state.state_epoch > before
            self.pending.append(state)
        else:
            gone = self.group.begin_deletion([topic_id])
            assert {p for p in self.has_state if p[0] == topic_id} <= gone
            self.group.end_deletion([topic_id])
            self.has_state = frozenset(p for p in self.has_state if p[0] != topic_id)

    @rule()
    def coordinator_moves(self) -> None:
        self.write()
        self.pending.clear()
        before = self.group
        if not self.stored.exists:
            assert not before.members
            self.begin()
            return
        self.group = self.stored.restore("g", before.limits, before.topics, dict, self.now_ms)
        for field in ("epoch", "assignment_epoch", "metadata_hash", "target"):
            assert getattr(self.group, field) == getattr(before, field), field
        assert self.group.states.initialized == before.states.initialized
        assert {
            m.member_id: (m.epoch, m.previous_epoch, m.assigned, m.topics) for m in before.members.values()
        } == {
            m.member_id: (m.epoch, m.previous_epoch, m.assigned, m.topics)
            for m in self.group.members.values()
        }

    @rule()
    def write(self) -> None:
        for change in self.group.take_changes():
            key, value = share_record(self.group, change)
            self.stored.replay(read_share_record(int.from_bytes(key[:2], "big"), key, value))

    @rule()
    def everybody_settles(self) -> None:
        """Members that all follow reach one epoch, and all partitions with a state are taken."""
        for state in self.pending:
            self.group.finish_states(state, initialized=True)
            if state.topic_id in self.topics.image.topics_by_id:
                self.has_state |= {(state.topic_id, p) for p in state.start_offsets}
        self.pending.clear()
        for _ in range(3):
            for member_id, member in self.group.members.items():
                self.known[member_id] = self.group.heartbeat(
                    ShareHeartbeat(member_id, member.epoch), self.now_ms
                )
                for state in give_states(self.group):
                    self.has_state |= {(state.topic_id, p) for p in state.start_offsets}
        group = self.group
        wanted = {name for member in group.members.values() for name in member.topics}
        existing = [name for name in wanted if name in self.topics.image.topics]
        assert {member.epoch for member in group.members.values()} <= {group.epoch}
        assigned = frozenset[tuple[bytes, int]]().union(*(m.assigned for m in group.members.values()))
        assert assigned == self.topics.all_of(*existing)

    @invariant()
    def nobody_has_a_partition_without_a_state(self) -> None:
        self.group.check()
        full = {code for code, is_full in self.refusals if is_full}
        assert full <= {
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        }
        others = {code for code, is_full in self.refusals if not is_full}
        assert others <= {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
        assert self.group.epoch >= self.epoch
        self.epoch = self.group.epoch
        for member in self.group.members.values():
            for partition in self.group.target.get(member.member_id, frozenset()):
                assert partition in self.has_state or partition[0] not in self.topics.image.topics_by_id


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_histories_of_share_groups = Histories.TestCase
