"""The classic group state machine: scenarios, and random histories compared with the protocol's promises."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.dataplane.groups.classic.group import ClassicGroup
from ottla.dataplane.groups.classic.membership import (
    Effect,
    JoinReply,
    JoinRequest,
    StoreGroup,
    SyncReply,
)
from ottla.dataplane.groups.classic.states import TRANSITIONS, GroupState
from ottla.dataplane.groups.limits import GroupLimits
from ottla.protocol.errors import ErrorCode

LIMITS = GroupLimits(initial_rebalance_delay_ms=0)


def new_group(limits: GroupLimits = LIMITS) -> ClassicGroup:
    serial = itertools.count(1)
    return ClassicGroup("g", limits, lambda base: f"{base}-{next(serial)}")


def join_request(
    member_id: str = "",
    instance_id: str | None = None,
    *,
    protocols: tuple[str, ...] = ("range",),
    **extra: bool,
) -> JoinRequest:
    return JoinRequest(
        member_id,
        instance_id,
        "client",
        "127.0.0.1",
        10_000,
        30_000,
        "consumer",
        tuple((name, b"topics") for name in protocols),
        **extra,
    )


def joins(effects: list[Effect]) -> dict[object, JoinReply]:
    return {e.ticket: e for e in effects if isinstance(e, JoinReply)}


def syncs(effects: list[Effect]) -> dict[object, SyncReply]:
    return {e.ticket: e for e in effects if isinstance(e, SyncReply)}


def stable_group(size: int) -> tuple[ClassicGroup, list[str]]:
    """Return a group of `size` members in its first common generation, at time 0."""
    group = new_group()
    ids = [joins(group.join(join_request(), "t0", 0))["t0"].member_id]
    for n in range(1, size):
        waiting = group.join(join_request(), f"new{n}", 0)
        assert not joins(waiting)
        for member_id in ids:
            waiting += group.join(join_request(member_id), member_id, 0)
        ids.append(joins(waiting)[f"new{n}"].member_id)
    effects: list[Effect] = []
    for member_id in ids:
        effects += group.sync(member_id, None, group.generation, {m: m.encode() for m in ids}, member_id, 0)
    assert StoreGroup(group.generation) in effects
    answered = syncs(group.stored(group.generation, ErrorCode.NONE, 0))
    assert {m: answered[m].assignment for m in ids} == {m: m.encode() for m in ids}
    assert group.state is GroupState.STABLE
    return group, ids


def test_two_members_get_one_generation_one_leader_and_their_own_assignment() -> None:
    group, ids = stable_group(2)
    assert group.leader == ids[0]
    assert group.generation == 2


def test_only_the_leader_sees_the_subscriptions() -> None:
    group = new_group()
    first = joins(group.join(join_request(), "a", 0))["a"]
    group.join(join_request(), "b", 0)
    replies = joins(group.join(join_request(first.member_id), "a", 0))
    assert {m for m, _, _ in replies["a"].members} == set(group.members)
    assert replies["b"].members == ()
    assert replies["b"].leader == first.member_id


def test_a_new_member_must_come_back_with_its_id() -> None:
    group = new_group()
    reply = joins(group.join(join_request(require_known_id=True), "a", 0))["a"]
    assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
    assert not group.members
    reply = joins(group.join(join_request(reply.member_id, require_known_id=True), "a", 0))["a"]
    assert reply.error is ErrorCode.NONE
    assert reply.generation == 1


def test_an_id_never_used_is_forgotten_and_does_not_hold_up_the_others() -> None:
    group, ids = stable_group(1)
    lost = joins(group.join(join_request(require_known_id=True), "lost", 0))["lost"].member_id
    group.join(join_request(ids[0], protocols=("range", "roundrobin")), "a", 1)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.next_deadline_ms == 10_000
    assert joins(group.tick(10_000))["a"].error is ErrorCode.NONE
    late = joins(group.join(join_request(lost), "lost", 10_001))["lost"]
    assert late.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_expires_and_the_others_rebalance() -> None:
    group, ids = stable_group(2)
    assert group.heartbeat(ids[0], None, group.generation, 9_000) is ErrorCode.NONE
    assert group.next_deadline_ms == 10_000
    group.tick(10_000)
    assert list(group.members) == [ids[0]]
    assert group.heartbeat(ids[0], None, group.generation, 10_001) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat(ids[1], None, group.generation, 10_001) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_ends_without_the_member_that_does_not_rejoin() -> None:
    group, ids = stable_group(3)
    group.join(join_request(ids[0], protocols=("range", "roundrobin")), "a", 0)
    group.join(join_request(ids[1]), "b", 0)
    for now in range(5_000, 30_000, 5_000):
        assert group.heartbeat(ids[2], None, group.generation, now) is ErrorCode.REBALANCE_IN_PROGRESS
        group.tick(now)
    replies = joins(group.tick(30_000))
    assert {r.error for r in replies.values()} == {ErrorCode.NONE}
    assert set(group.members) == {ids[0], ids[1]}


def test_a_member_that_joins_but_never_syncs_is_removed() -> None:
    group = new_group()
    a = joins(group.join(join_request(), "a", 0))["a"].member_id
    group.join(join_request(), "b", 0)
    b = joins(group.join(join_request(a), "a", 0))["b"].member_id
    group.sync(a, None, group.generation, {a: b"1", b: b"2"}, "sa", 0)
    group.stored(group.generation, ErrorCode.NONE, 0)
    for now in range(4_000, 30_000, 4_000):
        group.heartbeat(a, None, 2, now)
        group.heartbeat(b, None, 2, now)
    group.tick(30_000)
    assert set(group.members) == {a}


def test_leaving_starts_a_rebalance_and_the_last_one_empties_the_group() -> None:
    group, ids = stable_group(2)
    error, _ = group.leave(ids[0], None, 1)
    assert error is ErrorCode.NONE
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.leader == ids[1]
    _, effects = group.leave(ids[1], None, 2)
    assert group.state is GroupState.EMPTY
    assert StoreGroup(group.generation) in effects


def test_old_generations_may_neither_commit_nor_sync() -> None:
    group, ids = stable_group(1)
    assert group.check_commit(ids[0], None, group.generation - 1, 0) is ErrorCode.ILLEGAL_GENERATION
    assert group.check_commit("stranger", None, group.generation, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.check_commit("", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.check_commit(ids[0], None, group.generation, 0) is ErrorCode.NONE
    reply = syncs(group.sync(ids[0], None, group.generation - 1, {}, "s", 0))["s"]
    assert reply.error is ErrorCode.ILLEGAL_GENERATION


def test_members_without_a_common_assignor_are_refused() -> None:
    group, _ = stable_group(1)
    reply = joins(group.join(join_request(protocols=("sticky",)), "x", 0))["x"]
    assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.state is GroupState.STABLE


def test_a_static_member_returns_without_a_rebalance_and_its_twin_is_fenced() -> None:
    group = new_group()
    first = joins(group.join(join_request(instance_id="i"), "a", 0))["a"]
    group.sync(first.member_id, "i", 1, {first.member_id: b"mine"}, "s", 0)
    group.stored(1, ErrorCode.NONE, 0)
    effects = group.join(join_request(instance_id="i", can_skip_assignment=True), "b", 5)
    (store,) = [e for e in effects if isinstance(e, StoreGroup)]
    assert store.then is not None
    again = store.then(ErrorCode.NONE)
    assert (again.error, again.generation, again.skip_assignment) == (ErrorCode.NONE, 1, True)
    assert group.heartbeat(first.member_id, "i", 1, 6) is ErrorCode.FENCED_INSTANCE_ID
    assert syncs(group.sync(again.member_id, "i", 1, {}, "s2", 7))["s2"].assignment == b"mine"


def test_a_failed_write_sends_everyone_back_to_join() -> None:
    group = new_group()
    a = joins(group.join(join_request(), "a", 0))["a"].member_id
    group.sync(a, None, 1, {a: b"x"}, "s", 0)
    effects = group.stored(1, ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)
    assert syncs(effects)["s"].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.state is GroupState.PREPARING_REBALANCE


def test_the_first_rebalance_waits_for_more_members() -> None:
    group = new_group(GroupLimits(initial_rebalance_delay_ms=3_000))
    assert not group.join(join_request(), "a", 0)
    assert not group.join(join_request(), "b", 2_000)
    assert group.next_deadline_ms == 5_000
    assert {r.error for r in joins(group.tick(5_000)).values()} == {ErrorCode.NONE}
    assert group.generation == 1
    assert len(group.members) == 2


@dataclass
class ClassicClient:
    """A well-behaved client: its pending request, and its received answers."""

    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    waiting: str | None = None
    assignment: bytes | None = None
    history: list[int] = field(default_factory=list)


class GroupHistory(RuleBasedStateMachine):
    """Random clients, time and write failures; no request is answered twice or forgotten for good."""

    @initialize(size=st.integers(1, 4), static=st.integers(0, 3), delay=st.sampled_from([0, 3_000]))
    def start(self, size: int, static: int, delay: int) -> None:
        self.group = new_group(GroupLimits(initial_rebalance_delay_ms=delay))
        self.clients = [ClassicClient(f"i{number}" if number < static else None) for number in range(size)]
        self.tickets: dict[str, ClassicClient] = {}
        self.serial = itertools.count()
        self.now = 0
        self.timer: int | None = None
        self.generation_seen = 0
        self.owner: dict[tuple[int, str], ClassicClient] = {}

    def settle(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StoreGroup):
                continue
            client = self.tickets.pop(str(effect.ticket))  # KeyError: answered twice
            assert client.waiting == effect.ticket
            client.waiting = None
            if effect.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id, client.generation = "", -1
            elif isinstance(effect, JoinReply):
                client.member_id = effect.member_id
                if effect.error is ErrorCode.NONE:
                    client.generation = effect.generation
            elif effect.error is ErrorCode.NONE:
                client.assignment = effect.assignment
        for effect in effects:
            if isinstance(effect, StoreGroup):
                self.stores.append(effect)

    def requested(self, effects: list[Effect]) -> None:
        """Settle the effects of a request, and set the timer as a shard does."""
        self.settle(effects)
        due = self.group.due_after(effects, self.now)
        self.timer = due if due is None or self.timer is None else min(self.timer, due)

    stores: list[StoreGroup]

    @initialize()
    def no_stores(self) -> None:
        self.stores = []

    def ticket(self, client: ClassicClient) -> str:
        name = f"t{next(self.serial)}"
        self.tickets[name] = client
        client.waiting = name
        return name

    @rule(
        pick=st.integers(0, 3),
        known=st.booleans(),
        protocols=st.sampled_from([("range",), ("rr", "range")]),
        restarted=st.booleans(),
    )
    def join(self, pick: int, known: bool, protocols: tuple[str, ...], restarted: bool) -> None:
        client = self.clients[pick % len(self.clients)]
        if client.waiting is None:
            if restarted and client.instance_id is not None:
                client.member_id = ""
            request = join_request(
                client.member_id, client.instance_id, protocols=protocols, require_known_id=known
            )
            self.requested(self.group.join(request, self.ticket(client), self.now))

    @rule(pick=st.integers(0, 3))
    def sync(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if client.waiting is None and client.generation >= 0:
            plan = {m: m.encode() for m in self.group.members}
            effects = self.group.sync(
                client.member_id, client.instance_id, client.generation, plan, self.ticket(client), self.now
            )
            self.requested(effects)

    @rule(ok=st.booleans())
    def write_ends(self, ok: bool) -> None:
        if self.stores:
            error = ErrorCode.NONE if ok else ErrorCode.NOT_COORDINATOR
            store = self.stores.pop(0)
            self.settle([] if store.then is None else [store.then(error)])
            self.requested(self.group.stored(store.generation, error, self.now))

    @rule(pick=st.integers(0, 3))
    def leave(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if client.waiting is None and client.member_id:
            _, effects = self.group.leave(client.member_id, client.instance_id, self.now)
            client.member_id, client.generation = "", -1
            self.requested(effects)

    @rule(step=st.sampled_from([1, 1_000, 10_000, 30_000]))
    def time_passes(self, step: int) -> None:
        until = self.now + step
        while (deadline := self.group.next_deadline_ms) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.settle(self.group.tick(self.now))
            self.timer = after = self.group.next_deadline_ms
            assert after is None or after > deadline or after > self.now, "tick left work undone"
        self.now = until

    @invariant()
    def consistent(self) -> None:
        if not hasattr(self, "group"):
            return
        group = self.group
        group.check()
        assert group.generation >= self.generation_seen
        self.generation_seen = group.generation
        waiting = {t for m in group.members.values() for t in (m.join_ticket, m.sync_ticket) if t is not None}
        waiting |= {store.then(ErrorCode.NONE).ticket for store in self.stores if store.then is not None}
        assert waiting == set(self.tickets), "a request is waiting for nothing"
        if waiting:
            assert group.next_deadline_ms is not None or self.stores, "nothing will ever answer"
        deadline = group.next_deadline_ms
        assert deadline is None or (self.timer is not None and self.timer <= deadline), "the timer is late"


GroupHistory.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
TestGroupHistory = GroupHistory.TestCase


def test_every_state_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    reachable = {GroupState.EMPTY}.union(*TRANSITIONS.values())
    assert reachable == set(GroupState)


def test_what_the_settings_of_the_broker_refuse() -> None:
    group = new_group(
        GroupLimits(
            min_session_timeout_ms=9_000,
            max_session_timeout_ms=11_000,
            max_size=1,
            initial_rebalance_delay_ms=0,
        )
    )
    for timeout in (8_999, 11_001):
        request = replace(join_request(), session_timeout_ms=timeout)
        assert joins(group.join(request, "t", 0))["t"].error is ErrorCode.INVALID_SESSION_TIMEOUT
    static = joins(group.join(join_request(instance_id="i"), "a", 0))["a"]
    assert static.error is ErrorCode.NONE
    assert joins(group.join(join_request(), "b", 0))["b"].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joins(group.join(join_request(static.member_id, "i"), "a", 0))["a"].error is ErrorCode.NONE


def test_a_cooperative_member_keeps_its_part_until_it_has_joined_twice() -> None:
    """Members' owned partitions are a matter between them and their leader: the group passes both
    rounds on unchanged.
    """
    group, (first, second) = stable_group(2)
    group.join(join_request(first, protocols=("cooperative-sticky", "range")), "a", 0)
    replies = joins(group.join(join_request(second, protocols=("cooperative-sticky", "range")), "b", 0))
    assert {r.protocol for r in replies.values()} == {"cooperative-sticky"}
    for member in (first, second):
        group.sync(member, None, group.generation, {first: b"half", second: b""}, member, 0)
    group.stored(group.generation, ErrorCode.NONE, 0)
    group.join(join_request(first, protocols=("cooperative-sticky", "range")), "a2", 1)
    assert group.heartbeat(second, None, group.generation, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    replies = joins(group.join(join_request(second, protocols=("cooperative-sticky", "range")), "b2", 1))
    assert {r.generation for r in replies.values()} == {4}
