"""The conditions under which the quorum's leader ends transactions itself, and forgets transactional ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.config import DutySettings
from ottla.metadata_quorum.leader_duties import LeaderCommand, LeaderDuties
from ottla.metadata_quorum.liveness import SessionTracker
from ottla.metadata_quorum.transaction_deadlines import (
    COMMAND_IDS_MAX,
    LOOKS_MAX,
    PROPOSED_AGAIN_S,
    TransactionClocks,
    UnusedIds,
)
from ottla.protocol.cluster.partition_change import record_of
from ottla.protocol.cluster.transaction_table import Phase, TransactionMetadata, TransactionTable
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.transaction_commands import ExpireTransactions, ForgetTransactionalIds

from .state.transactional import Transactions

DAY_MS = 86_400_000
TICK_S = 0.25
"""Length of a tick in seconds, chosen so that sums of times are exact."""


def table_of(*transactions: TransactionMetadata) -> TransactionTable:
    table = TransactionTable()
    table.by_id = {transaction.transactional_id: transaction for transaction in transactions}
    return table


def ongoing(name: str, number: int = 1, timeout_ms: int = 1000) -> TransactionMetadata:
    return TransactionMetadata(name, number=number, phase=Phase.ONGOING, timeout_ms=timeout_ms)


def names(command: ExpireTransactions | ForgetTransactionalIds | None) -> list[str]:
    return [] if command is None else [transaction.transactional_id for transaction in command.transactions]


# Open transactions

Step = tuple[str, str, int]
"""A step: an event, its id, and a timeout in ms."""
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "add", "find", "end", "forget", "lead", "tick", "tick"]),
        st.sampled_from("abc"),
        st.sampled_from([0, 250, 1000, 2000, 9000]),
    ),
    max_size=80,
)


@dataclass
class Watched:
    """Some ids, their clocks, and their due times computed without a heap."""

    table: TransactionTable = field(default_factory=TransactionTable)
    clocks: TransactionClocks = field(default_factory=TransactionClocks)
    now: float = 0.0
    due: dict[str, float] = field(default_factory=dict)

    def step(self, what: str, name: str, timeout_ms: int) -> None:
        transaction = self.table.by_id.setdefault(name, TransactionMetadata(name))
        is_open = transaction.phase is Phase.ONGOING
        match what:
            case "begin" if not is_open:
                transaction.number, transaction.phase, transaction.timeout_ms = (
                    transaction.number + 1,
                    Phase.ONGOING,
                    timeout_ms,
                )
                self.due[name] = self.now + timeout_ms / 1000
            case "find" if is_open:
                transaction.started_ms += 1
                self.due[name] = self.now + transaction.timeout_ms / 1000
            case "end" if is_open:
                transaction.phase = Phase.COMPLETE_COMMIT
                del self.due[name]
            case "forget" if not is_open:
                del self.table.by_id[name]
            case "lead":
                self.clocks.begin(self.table, self.now)
                for open_id in self.due:
                    self.due[open_id] = self.now + self.table.by_id[open_id].timeout_ms / 1000
            case "tick":
                self.tick()
        self.clocks.changed(name, self.table.by_id.get(name), self.now)

    def tick(self) -> None:
        self.now += TICK_S
        command = self.clocks.expire(self.now)
        expected = {name: due for name, due in self.due.items() if due <= self.now}
        expired = command.transactions if command else []
        assert {transaction.transactional_id for transaction in expired} == expected.keys(), (
            "not before, and with the next tick"
        )
        for transaction in expired:
            assert transaction.number == self.table.by_id[transaction.transactional_id].number
            self.due[transaction.transactional_id] = self.now + PROPOSED_AGAIN_S


@given(STEPS)
def test_a_transaction_is_due_at_its_deadline_and_only_now_and_then_again(steps: list[Step]) -> None:
    watched = Watched()
    for step in steps:
        watched.step(*step)
    for _ in range(int(10 / TICK_S)):
        watched.tick()


def test_a_new_leader_gives_everybody_the_whole_time_once_more() -> None:
    clocks, table = TransactionClocks(), table_of(ongoing("a"))
    clocks.begin(table, 0.0)
    clocks.begin(table, 0.9)
    assert names(clocks.expire(1.8)) == []
    assert names(clocks.expire(1.9)) == ["a"]


def test_more_than_one_command_takes_are_ended_by_several() -> None:
    clocks = TransactionClocks()
    table = table_of(*(ongoing(f"{index:05}") for index in range(COMMAND_IDS_MAX + 1)))
    clocks.begin(table, 0.0)
    ended = [names(clocks.expire(at)) for at in (1.0, 1.1, 1.2)]
    assert [len(batch) for batch in ended] == [COMMAND_IDS_MAX, 1, 0]
    assert sorted(ended[0] + ended[1]) == sorted(table.by_id)


def test_long_names_go_in_smaller_commands() -> None:
    clocks = TransactionClocks()
    clocks.begin(table_of(*(ongoing(letter * 200_000) for letter in "abc")), 0.0)
    assert [len(names(clocks.expire(at))) for at in (1.0, 1.1, 1.2)] == [2, 1, 0]


def test_many_ids_that_have_gone_on_to_the_next_transaction_delay_others_by_some_ticks() -> None:
    clocks = TransactionClocks()
    clocks.begin(table_of(), 0.0)
    clocks.changed("x", ongoing("x"), 0.0)
    for name in (f"{index:05}" for index in range(3 * LOOKS_MAX)):
        clocks.changed(name, ongoing(name), 0.0)
        clocks.changed(name, ongoing(name, number=2, timeout_ms=9000), 0.5)
    assert [names(clocks.expire(1.0 + tick / 10)) for tick in range(5)] == [[], [], [], ["x"], []]


# Unused ids


def used(name: str, days: float, phase: Phase = Phase.COMPLETE_COMMIT) -> TransactionMetadata:
    return TransactionMetadata(name, number=1, phase=phase, updated_ms=round(days * DAY_MS))


def forgotten(table: TransactionTable, wall_days: float) -> list[str]:
    """Return the ids forgotten at the first check of a leader with Kafka's defaults."""
    unused = UnusedIds(expiration_ms=7 * DAY_MS, check_interval_s=3600.0)
    unused.begin(table, 0.0)
    assert unused.forget(table, 3599.0, round(wall_days * DAY_MS)) is None
    return names(unused.forget(table, 3600.0, round(wall_days * DAY_MS)))


def test_ids_are_forgotten_when_they_are_unused_for_long_and_nothing_is_open() -> None:
    table = table_of(
        used("old", 93),
        used("new, but a little older", 93.01),
        used("new", 100),
        used("open", 80, Phase.ONGOING),
        used("decided", 80, Phase.PREPARE_COMMIT),
        used("empty", 80, Phase.EMPTY),
        TransactionMetadata("never stamped"),
        replace(used("has an application version", 80), app_version=0),
    )
    assert sorted(forgotten(table, 100)) == ["empty", "old"]


def test_a_clock_that_is_far_ahead_makes_no_id_old() -> None:
    table = table_of(used("in use", 100), used("not so long ago", 94))
    assert forgotten(table, 100_000) == []


def test_a_brokers_clock_that_is_far_ahead_makes_no_id_old() -> None:
    table = table_of(used("by that broker", 100_000), used("by another", 94))
    assert forgotten(table, 100) == []


def test_a_check_of_many_ids_takes_many_ticks_and_the_next_one_an_interval() -> None:
    table = table_of(*(used(f"{index:05}", 1) for index in range(10_000)), used("new", 100))
    unused = UnusedIds(expiration_ms=7 * DAY_MS, check_interval_s=60.0)
    unused.begin(table, 0.0)
    first = unused.forget(table, 60.0, 100 * DAY_MS)
    assert first is not None
    assert (len(first.transactions), first.unused_since_ms) == (COMMAND_IDS_MAX, 93 * DAY_MS)
    ended = names(first)
    for _ in range(100):
        ended += names(unused.forget(table, 61.0, 100 * DAY_MS))
    assert sorted(ended) == sorted(table.by_id.keys() - {"new"}), "each once, though none is forgotten yet"
    assert names(unused.forget(table, 120.0, 100 * DAY_MS))


# The leader's procedure


class Leader:
    """The duties of a leader, with a controller and three brokers."""

    def __init__(self) -> None:
        self.cluster = Transactions()
        self.table = self.cluster.machine.image.transactions
        self.now = 0.0
        self.proposed: list[tuple[LeaderCommand, Callable[[], None]]] = []
        self.duties = LeaderDuties(
            lambda: self.cluster.machine.image,
            SessionTracker(timeout_s=1e9),
            lambda command, done: self.proposed.append((command, done)),
            cluster_id="c",
            imbalance_check_interval_s=1e9,
            settings=DutySettings(transactional_id_expiration_ms=3, unused_ids_check_interval_s=10.0),
            wall_ms=lambda: self.cluster.machine.image.offset,
        )
        self.cluster.machine.on_changes = lambda changes, _: self.duties.noted(
            (record_of(change) for _, change in changes), self.now
        )
        self.duties.lead(0.0)
        self.settle()

    def tick(self, now: float) -> list[LeaderCommand]:
        """Return the commands in progress after a tick."""
        self.now = now
        self.duties.tick(now)
        return [command for command, _ in self.proposed]

    def settle(self, *, lost: bool = False) -> None:
        """Settle all commands in progress."""
        while self.proposed:
            command, done = self.proposed.pop(0)
            if not lost:
                self.cluster.do(command, PlainResult)
            done()


def test_the_leader_aborts_what_is_open_for_too_long() -> None:
    leader = Leader()
    cluster = leader.cluster
    who, other = cluster.begin("x"), cluster.begin("y")
    leader.now = 5.0
    cluster.add(who, cluster.places(0), "x")
    cluster.add(other, cluster.places(1), "y")
    assert leader.tick(5.9) == []
    cluster.end(other, name="y")
    assert [type(command) for command in leader.tick(6.0)] == [ExpireTransactions]
    assert len(leader.tick(6.1 + PROPOSED_AGAIN_S)) == 1, "its like is still under way"
    leader.settle(lost=True)
    assert len(leader.tick(6.2 + PROPOSED_AGAIN_S)) == 1
    leader.settle()
    assert cluster.state("x").phase is Phase.PREPARE_ABORT
    assert cluster.state("y").phase is Phase.PREPARE_COMMIT
    leader.duties.follow()
    assert leader.tick(9.0 + 2 * PROPOSED_AGAIN_S) == []


def test_the_leader_forgets_what_nobody_uses_unless_it_is_used_just_then() -> None:
    leader = Leader()
    cluster = leader.cluster
    for name in "abcde":
        cluster.begin(name)
    (command,) = leader.tick(10.0)
    assert isinstance(command, ForgetTransactionalIds)
    assert {"a", "b"} <= {*names(command)} <= {*"abcd"}
    back = cluster.begin("a")
    leader.settle()
    assert "b" not in leader.table.by_id
    assert cluster.add(back, cluster.places(0), "a").error_code == 0
    cluster.check()
