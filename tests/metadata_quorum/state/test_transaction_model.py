"""Transactions compared with a small model, under random commands of clients, leaders and operators.

After every command the controller is consistent, and each broker knows, from the records sent to it, all that the
controller knows about its partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.transaction_table import Place
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import transaction_commands as t
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.topic_commands import DeleteTopics, DeleteTopicsResult

from .harness import assigned
from .transactional import Identity, Transactions

NAMES = ("x", "y")
PARTITIONS = 4
INDEXES = st.sets(st.integers(0, PARTITIONS - 1), max_size=3)
OK, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
BUSY, STATE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
ABORTED = ErrorCode.TRANSACTION_ABORTABLE
UNMAPPED, UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
WHO = st.sampled_from(("present", "former", "zombie"))


@dataclass
class Model:
    """The model of one transactional id. `phase` is over, open or decided."""

    who: Identity
    former: Identity | None = None
    """Identity under which the last change of epoch was requested, if the client requested it, or
    may go on after it."""
    recovers: bool = False
    offered: bool = False
    """True if the cluster has aborted the transaction itself, and the client may go on."""
    phase: str = "over"
    outcome: bool | None = None
    places: set[Place] = field(default_factory=set)
    zombies: list[Identity] = field(default_factory=list)

    def rise(self, *, asked: bool, offered: bool = False) -> None:
        self.zombies.append(self.who)
        self.former = self.who if asked or offered else None
        self.offered = offered
        self.who = (self.who[0], self.who[1] + 1)

    def begin_anew(self, *, asked: bool) -> None:
        self.rise(asked=asked)
        self.outcome = None

    def decide(self, outcome: bool) -> None:
        self.outcome, self.phase = outcome, "decided" if self.places else "over"

    def settle(self, place: Place) -> None:
        self.places.discard(place)
        if self.phase == "decided" and not self.places:
            self.phase = "over"

    def identity(self, which: str) -> Identity:
        if which == "former" and self.former is not None:
            return self.former
        return self.zombies[0] if which == "zombie" and self.zombies else self.who


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Transactions(PARTITIONS)
        self.models: dict[str, Model] = {}
        self.decided: dict[int, tuple[str, bool | None]] = {}
        # : former identities of deleted ids
        self.gone: list[tuple[str, Identity]] = []

    @rule(name=st.sampled_from(NAMES), broker=st.integers(1, 3), recovers=st.booleans())
    def init(self, name: str, broker: int, recovers: bool) -> None:
        found = self.cluster.init(name, broker=broker, recovers=recovers)
        model = self.models.get(name)
        if model is None:
            self.models[name] = Model((found.producer_id, 0), recovers=recovers)
            assert all(who[0] != found.producer_id for _, who in self.gone)
        elif model.phase == "open":
            model.rise(asked=False)
            model.decide(False)
            assert found.error_code == BUSY
            return
        elif model.phase == "decided":
            assert found.error_code == BUSY
            return
        else:
            model.begin_anew(asked=False)
            model.recovers = recovers
        assert (found.producer_id, found.producer_epoch) == self.models[name].who

    @precondition(lambda self: self.models)
    @rule(data=st.data(), which=WHO)
    def init_again(self, data: st.DataObject, which: str) -> None:
        name, model = self._some(data)
        identity = model.identity(which)
        found = self.cluster.init(name, known=identity)
        if identity not in (model.who, model.former) and model.phase != "decided":
            assert found.error_code == FENCED
        elif model.phase == "decided":
            assert found.error_code == BUSY
        elif model.phase == "open":
            if identity != model.who:
                assert found.error_code == FENCED
                return
            model.rise(asked=True)
            model.decide(False)
            assert found.error_code == BUSY
        else:
            if identity == model.who:
                model.begin_anew(asked=True)
            elif model.outcome is False:
                model.outcome = None
            model.recovers, model.offered = True, False
            assert (found.producer_id, found.producer_epoch) == model.who

    @precondition(lambda self: self.models)
    @rule(data=st.data(), which=WHO, indexes=INDEXES, broker=st.integers(1, 3))
    def add(self, data: st.DataObject, which: str, indexes: set[int], broker: int) -> None:
        name, model = self._some(data)
        places = self.cluster.places(*indexes)
        identity = model.identity(which)
        error = self.cluster.add(identity, places, name, broker).error_code
        if model.offered and identity == model.former:
            assert error == ABORTED
        elif identity != model.who:
            assert error == FENCED
        elif model.phase == "decided":
            assert error == BUSY
        else:
            assert error == OK
            model.places = places | (model.places if model.phase == "open" else set())
            if model.phase == "over":
                model.former, model.offered = None, False
            model.phase, model.outcome = "open", None

    @precondition(lambda self: self.models)
    @rule(data=st.data(), which=WHO, commits=st.booleans(), bumps=st.booleans())
    def end(self, data: st.DataObject, which: str, commits: bool, bumps: bool) -> None:
        name, model = self._some(data)
        identity = model.identity(which)
        ended = self.cluster.end(identity, commits=commits, bumps=bumps, name=name)
        error = ended.error_code
        repeated = model.outcome == commits and identity == (model.former if bumps else model.who)
        was_aborted = model.offered and identity == model.former
        is_of_an_earlier_life = commits and not bumps and model.outcome is True and identity == model.former
        if is_of_an_earlier_life:
            assert error == (BUSY if model.phase == "decided" else OK)
            assert error != OK or (ended.producer_id, ended.producer_epoch) == identity
        elif repeated or (was_aborted and not commits):
            assert error == OK
            assert (ended.producer_id, ended.producer_epoch) == model.who
        elif was_aborted:
            assert error == ABORTED
        elif identity != model.who:
            assert error == FENCED
        elif model.phase == "decided":
            assert error == (BUSY if bumps else STATE)
        elif model.phase == "over" and not bumps:
            assert error == STATE
        else:
            assert error == OK
            if bumps:
                model.rise(asked=True)
            model.decide(commits)

    @rule(indexes=INDEXES)
    def write_markers(self, indexes: set[int]) -> None:
        places = self.cluster.places(*indexes)
        led = {place for place in places if self._leader(place) >= 0}
        self.cluster.write_markers(places)
        for model in self.models.values():
            if model.phase == "decided":
                for place in led:
                    model.settle(place)

    @rule(broker=st.integers(1, 3))
    def toggle(self, broker: int) -> None:
        """Lose a broker, or bring it back."""
        fenced = self.cluster.machine.image.brokers[broker].fenced
        (self.cluster.unfence if fenced else self.cluster.fence)(broker)

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        name, model = self._some(data)
        number = self.cluster.state(name).number
        late = t.OpenTransaction(transactional_id=name, number=number - 1)
        self.cluster.do(t.ExpireTransactions(transactions=[late]), PlainResult)
        due = t.OpenTransaction(transactional_id=name, number=number)
        self.cluster.do(t.ExpireTransactions(transactions=[due]), PlainResult)
        if model.phase == "open":
            model.rise(asked=False, offered=model.recovers)
            model.decide(False)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        model = self.models.get(name)
        command = t.DeleteTransactionalId(transactional_id=name)
        error = self.cluster.do(command, PlainResult).error_code
        if model is None:
            assert error == UNKNOWN
        elif model.phase != "over":
            assert error == BUSY
        else:
            assert error == OK
            self.gone += [(name, identity) for identity in (*model.zombies, model.who)]
            del self.models[name]

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), indexes=INDEXES, commits=st.booleans(), bumps=st.booleans())
    def act_under_what_is_gone(
        self, data: st.DataObject, indexes: set[int], commits: bool, bumps: bool
    ) -> None:
        name, who = data.draw(st.sampled_from(self.gone))
        assert self.cluster.add(who, self.cluster.places(*indexes), name).error_code == UNMAPPED
        assert self.cluster.end(who, commits=commits, bumps=bumps, name=name).error_code == UNMAPPED
        if name in self.models:
            assert self.cluster.init(name, known=who).error_code == FENCED

    @rule()
    def replace_the_topic(self) -> None:
        """Delete the topic, and recreate it under the same name, with new partitions."""
        before = self.cluster.places(*range(PARTITIONS))
        self.cluster.do(DeleteTopics(names=["t"]), DeleteTopicsResult)
        for model in self.models.values():
            for place in before:
                model.settle(place)
        usable = [broker.broker_id for broker in self.cluster.machine.image.brokers.values() if broker.usable]
        while not usable:
            self.cluster.unfence(1)
            usable = [1]
        self.cluster.create(assigned("t", *([usable[index % len(usable)]] for index in range(PARTITIONS))))

    @rule()
    def restart_from_a_snapshot(self) -> None:
        machine = Controller()
        machine.restore(self.cluster.machine.snapshot())
        self.cluster.machine.adopt(machine)

    @invariant()
    def agrees(self) -> None:
        self.cluster.check()
        assert self.cluster.machine.image.transactions.by_id.keys() == self.models.keys()
        for name, model in self.models.items():
            state = self.cluster.state(name)
            assert (state.producer_id, state.producer_epoch) == model.who
            assert (
                {place for _, place in state.outstanding} == model.places if model.phase != "over" else True
            )
            assert (state.phase.is_over, state.phase.is_decided) == (
                model.phase == "over",
                model.phase == "decided",
            )
            if state.commit_index >= 0:
                decided = self.decided.setdefault(state.commit_index, (name, model.outcome))
                assert decided == (name, model.outcome), "a decision changes, or an index is used twice"

    def _some(self, data: st.DataObject) -> tuple[str, Model]:
        name = data.draw(st.sampled_from(sorted(self.models)))
        return name, self.models[name]

    def _leader(self, place: Place) -> int:
        return self.cluster.machine.image.topics_by_id[place[0]].partitions[place[1]].leader


TestTransactionsMachine = TransactionsMachine.TestCase
TestTransactionsMachine.settings = settings(max_examples=60, stateful_step_count=40)
