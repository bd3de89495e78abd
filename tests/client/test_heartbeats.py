"""The members' heartbeats, tested with the broker's own state machine: requests and answers get lost, members come, go,
are fenced and change subscriptions, and no partition ever has two owners.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.client.consuming.membership.heartbeats import NOTHING, HandoverStep, Membership, Wanted
from ottla.dataplane.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from ottla.dataplane.groups.consumer.member import MemberHeartbeat
from ottla.dataplane.groups.consumer.subscriptions import TopicCatalog
from ottla.dataplane.groups.limits import ConsumerLimits
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_groups import JOIN_EPOCH

TOPICS = {b"a" * 16: ("a", 3), b"b" * 16: ("b", 4)}
WANTED = [Wanted(("a",)), Wanted(("b",)), Wanted(("a", "b")), Wanted((), "[ab]")]
ACTIONS = ("beat", "request lost", "answer lost", "step", "step", "fence", "want", "leave")


def broker() -> ConsumerGroup:
    catalog = TopicCatalog()
    for topic_id, (name, count) in TOPICS.items():
        catalog.ids[name], catalog.names[topic_id], catalog.counts[topic_id] = topic_id, name, count
    return ConsumerGroup("g", ConsumerLimits(), catalog)


class Group:
    """Members of both sides."""

    def __init__(self) -> None:
        self.broker = broker()
        self.members: dict[str, Membership] = {}
        self.refusals: set[ErrorCode] = set()
        self.now_ms = 0

    def beat(self, name: str, *, arrives: bool = True, answered: bool = True) -> None:
        member, self.now_ms = self.members[name], self.now_ms + 1
        beat = member.beat()
        if beat.epoch == JOIN_EPOCH:
            assert beat.full
            assert beat.owned == NOTHING, "a joining member owns nothing"
        if not arrives:
            member.unanswered()
            return
        said = MemberHeartbeat(
            name,
            beat.epoch,
            rebalance_timeout_ms=1_000_000 if beat.full else -1,
            topics=None if beat.wanted is None else beat.wanted.topics,
            regex=None if beat.wanted is None else beat.wanted.pattern or "",
            owned=beat.owned,
        )
        try:
            answer = self.broker.heartbeat(said, self.now_ms)
        except KafkaError as refused:
            self.refusals.add(refused.code)
            member.fenced()
            member.lost()
            return
        self.broker.check()
        if answered:
            member.answered(beat, answer.epoch, answer.assigned)
        else:
            member.unanswered()

    def step(self, name: str) -> None:
        member = self.members[name]
        match member.step():
            case None:
                return
            case HandoverStep(give_up, taken):
                assert bool(give_up) != bool(taken)
                member.gave_up(give_up)
                member.takes_over(taken)
                for peer, membership in self.members.items():
                    if peer != name:
                        assert not membership.owned & taken, "it is another member's"

    def settle(self) -> None:
        for _ in range(60):
            for name in self.members:
                self.beat(name)
                while self.members[name].step() is not None:
                    self.step(name)


@settings(max_examples=300)
@example(
    # The coordinator takes one of three partitions away again, and hears that the member has none.
    [("beat", 0, 0), ("beat", 1, 0), ("beat", 1, 0), ("beat", 0, 0), ("answer lost", 1, 0), ("step", 1, 0)]
)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(0, 3)), max_size=80))
def test_no_partition_is_worked_on_by_two_and_all_have_an_owner_in_the_end(
    script: list[tuple[str, int, int]],
) -> None:
    group = Group()
    for action, number, choice in script:
        name = f"m{number}"
        member = group.members.get(name)
        if member is None:
            group.members[name] = Membership(WANTED[choice])
        elif action == "step":
            group.step(name)
        elif action == "want":
            member.wanted = WANTED[choice]
            beat = member.beat()
            assert member.due or beat.wanted is None or beat.full
        elif action == "fence":
            if name in group.broker.members:
                # As after a pause: its partitions are lost before any other member acts on them.
                group.broker.remove(name, group.now_ms)
                member.fenced()
                member.lost()
        elif action == "leave":
            if name in group.broker.members:
                group.broker.heartbeat(MemberHeartbeat(name, -1), group.now_ms)
            del group.members[name]
        else:
            group.beat(name, arrives=action != "request lost", answered=action != "answer lost")
    group.settle()
    assert group.refusals <= {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
    wanted = {
        place[0]
        for membership in group.members.values()
        for place in TOPICS.items()
        if _wants(membership, place[1][0])
    }
    expected = {(topic_id, index) for topic_id in wanted for index in range(TOPICS[topic_id][1])}
    owned = [place for membership in group.members.values() for place in membership.owned]
    assert len(owned) == len(set(owned))
    assert set(owned) == expected
    assert not any(membership.due for membership in group.members.values())
    if group.members:
        assert group.broker.state is ConsumerGroupState.STABLE


def _wants(member: Membership, topic: str) -> bool:
    return topic in member.wanted.topics or member.wanted.pattern is not None


def test_a_regular_heartbeat_says_nothing_and_one_after_a_failure_everything() -> None:
    member = Membership(Wanted(("a",)))
    place = (b"a" * 16, 0)
    member.answered(member.beat(), 1, frozenset({place}))
    assert member.step() == HandoverStep(NOTHING, frozenset({place}))
    member.takes_over(frozenset({place}))
    assert member.due
    beat = member.beat()
    assert (beat.epoch, beat.wanted, beat.owned, beat.full) == (1, None, {place}, False)
    member.answered(beat, 2, None)
    assert not member.due
    beat = member.beat()
    assert (beat.epoch, beat.wanted, beat.owned, beat.full) == (2, None, None, False)
    member.unanswered()
    beat = member.beat()
    assert (beat.wanted, beat.owned, beat.full) == (Wanted(("a",)), {place}, True)


def test_a_new_assignment_is_acknowledged_even_by_who_has_nothing() -> None:
    """A member that has not taken over a revoked partition has nothing to give up; the coordinator waits anyway."""
    member = Membership(Wanted(("a",)))
    member.answered(member.beat(), 1, frozenset({(b"a" * 16, 0)}))
    member.answered(member.beat(), 1, NOTHING)
    assert member.step() is None
    assert member.due
    assert member.beat().owned == NOTHING


def test_nothing_is_taken_over_while_the_coordinator_may_have_heard_that_it_is_not_owned() -> None:
    """Another member may own the partition by then."""
    member, place = Membership(Wanted(("a",))), (b"a" * 16, 0)
    member.answered(member.beat(), 1, frozenset({place}))
    beat = member.beat()
    assert beat.owned == NOTHING
    assert member.step() is None, "the heartbeat is under way"
    member.unanswered()
    assert member.step() is None
    member.answered(member.beat(), 1, None)
    assert member.step() == HandoverStep(NOTHING, frozenset({place}))
