"""The leader's answers to brokers about transactions."""

from __future__ import annotations

import sys
from random import Random
from types import FrameType

import pytest

from ottla.metadata_quorum.transaction_questions import ANSWER_BYTES_MAX, TransactionAnswers, largest_cut
from ottla.protocol.cluster.transaction_table import Phase, Place, TransactionTable, by_topic
from ottla.protocol.messages.quorum_session import encode_session_message
from ottla.protocol.messages.transaction_questions import (
    AskCut,
    AskTransactionIds,
    AskTransactions,
    CutTold,
    TransactionAnswer,
    TransactionIdsTold,
    TransactionQuestion,
    TransactionsTold,
)
from ottla.protocol.messages.transaction_records import (
    TransactionalIdRemovedRecord,
    TransactionRecord,
    TransactionWriterRecord,
)
from tests.metadata_quorum.state.transactional import Transactions

TOPIC = b"t" * 16


def table_of(names: list[str], *, phase: Phase = Phase.ONGOING, writers: int = 0) -> TransactionTable:
    """Return transactions with producer ids 0, 1, ..., that began at 0, 1, ... ms."""
    table = TransactionTable()
    for number, name in enumerate(names):
        table.apply(
            TransactionRecord(transactional_id=name, producer_id=number, phase=phase, started_ms=number)
        )
        for writer in range(writers):
            table.apply(
                TransactionWriterRecord(
                    transactional_id=name,
                    producer_id=1_000_000 * (writer + 1) + number,
                    producer_epoch=0,
                    topics=by_topic((TOPIC, index) for index in range(50)),
                )
            )
    return table


class Calls:
    """A counter of function calls within the block: the amount of work, on any machine."""

    def __enter__(self) -> Calls:
        self.count = 0
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _note(self, _frame: FrameType, event: str, _of: object) -> None:
        self.count += event in ("call", "c_call")


class Leader:
    """A leader whose answers must be small and quick."""

    def __init__(self, table: TransactionTable) -> None:
        self.table = table
        self.answers = TransactionAnswers()
        self.largest = 0
        self.most_calls = 0

    def tell(self, question: TransactionQuestion, broker_id: int = 1) -> TransactionAnswer:
        with Calls() as calls:
            answer = self.answers.answer(broker_id, question, self.table, 0)
        self.most_calls = max(self.most_calls, calls.count)
        self.largest = max(self.largest, len(encode_session_message(answer)))
        assert answer.question == question.question
        return answer

    def page(self, question: int, listing: int, position: int = 0, **filters: object) -> TransactionIdsTold:
        ask = AskTransactionIds(question=question, listing=listing, position=position, **filters)  # type: ignore[arg-type]
        answer = self.tell(ask)
        assert isinstance(answer, TransactionIdsTold)
        return answer

    def ids(self, **filters: object) -> list[str]:
        """Return the ids of all pages."""
        found: list[str] = []
        question, position = 100, 0
        while position >= 0:
            answer = self.page(question, 100, position, **filters)
            assert not answer.began_elsewhere
            found += [transaction.transactional_id for transaction in answer.transactions]
            question, position = question + 1, answer.position
        return found


def brute_cut(table: TransactionTable, places: set[Place]) -> int:
    owed = [
        transaction.commit_index
        for transaction in table.by_id.values()
        if transaction.phase.is_decided
        and any(not places or place in places for _, place in transaction.outstanding)
    ]
    return min(owed, default=table.next_commit_index) - 1


@pytest.mark.parametrize("seed", range(15))
def test_the_cut_is_the_largest_that_holds_and_it_never_falls_back(seed: int) -> None:
    rng = Random(seed)
    quorum = Transactions()
    names = ["a", "b", "c", "d"]
    who = {name: quorum.begin(name) for name in names}
    table = quorum.machine.image.transactions
    all_places = sorted(quorum.places(0, 1, 2, 3))
    subsets = [set(rng.sample(all_places, rng.randint(1, 3))) for _ in range(3)] + [set()]
    before = [-1] * len(subsets)
    for _ in range(60):
        name = rng.choice(names)
        phase = quorum.state(name).phase
        if phase.is_over:
            quorum.add(who[name], rng.sample(all_places, rng.randint(1, 3)), name=name)
        elif phase is Phase.ONGOING:
            ended = quorum.end(who[name], commits=rng.random() < 0.7, name=name)
            who[name] = ended.producer_id, ended.producer_epoch
        else:
            quorum.write_markers(rng.sample(all_places, 2))
        cuts = [largest_cut(table, places) for places in subsets]
        assert cuts == [brute_cut(table, places) for places in subsets]
        assert all(now >= then for now, then in zip(cuts, before, strict=True))
        before = cuts


def test_a_cut_is_told_of_the_places_that_were_named() -> None:
    quorum = Transactions()
    for name, index in (("a", 0), ("b", 1)):
        who = quorum.begin(name)
        quorum.add(who, quorum.places(index), name=name)
        quorum.end(who, name=name)
    leader = Leader(quorum.machine.image.transactions)

    def cut(*indexes: int) -> int:
        answer = leader.tell(AskCut(question=3, topics=by_topic(quorum.places(*indexes))))
        assert isinstance(answer, CutTold)
        return answer.commit_index

    assert [cut(0), cut(1), cut(2), cut(1, 2), cut()] == [-1, 0, 1, 0, -1]
    quorum.write_markers()
    assert [cut(0), cut(1), cut()] == [1, 1, 1]


def test_many_ids_are_listed_in_pages_of_bounded_size() -> None:
    names = [f"a-transactional-id-of-usual-length-{number}" for number in range(12_345)]
    leader = Leader(table_of(names))
    assert leader.ids() == names
    assert leader.largest <= ANSWER_BYTES_MAX
    assert (
        leader.most_calls < 15_000
    )  # twice the real cost; all names in one answer would cost twelve times as much


def test_long_ids_fill_a_page_sooner() -> None:
    names = [f"{number:04}" + "\N{GRINNING FACE}" * 8_000 for number in range(20)]
    leader = Leader(table_of(names))
    assert leader.ids() == names
    assert leader.largest <= ANSWER_BYTES_MAX


def test_a_filter_that_nothing_passes_is_looked_at_in_many_turns() -> None:
    leader = Leader(table_of([f"id-{number}" for number in range(12_000)]))
    first = leader.page(100, 100, started_before_ms=0)
    assert (first.transactions, first.position < 12_000) == ([], True)
    assert leader.ids(started_before_ms=0) == []


def test_many_producer_ids_are_looked_up_in_pages() -> None:
    leader = Leader(table_of([f"id-{number}" for number in range(3_000)]))
    assert leader.ids(producer_ids=[2_999, 0, 77_000]) == ["id-2999", "id-0"]
    assert len(leader.ids(producer_ids=list(range(1_000, 9_000)))) == 2_000


def test_a_transaction_is_found_by_whoever_writes_in_it() -> None:
    quorum = Transactions()
    who = quorum.begin("x")
    quorum.begin("y")
    quorum.add(who, quorum.places(0))
    joined = quorum.join(who).producer_id
    leader = Leader(quorum.machine.image.transactions)
    answer = leader.page(1, 1, producer_ids=[joined, who[0]])
    assert [
        (transaction.transactional_id, transaction.producer_id) for transaction in answer.transactions
    ] == [
        ("x", joined),
        ("x", who[0]),
    ]


@pytest.mark.parametrize(
    ("filters", "passing"),
    [
        ({}, ["a", "b", "c"]),
        ({"phases": [Phase.ONGOING, Phase.EMPTY]}, ["a", "b", "c"]),
        ({"phases": [Phase.EMPTY]}, []),
        ({"producer_ids": [2, 9]}, ["c"]),
        ({"started_before_ms": 1}, ["a"]),
        ({"started_before_ms": 2, "producer_ids": [1, 2]}, ["b"]),
    ],
)
def test_filters(filters: dict[str, object], passing: list[str]) -> None:
    assert Leader(table_of(["a", "b", "c"])).ids(**filters) == passing


def test_ids_that_come_and_go_meanwhile_hide_no_others() -> None:
    names = [f"id-{number}" for number in range(3000)]
    leader = Leader(table_of(names))
    first = leader.page(1, 1)
    assert 0 < first.position < 3000
    for name in names[::2]:
        leader.table.apply(TransactionalIdRemovedRecord(transactional_id=name))
    leader.table.apply(TransactionRecord(transactional_id="late", producer_id=9000))
    found = [transaction.transactional_id for transaction in first.transactions]
    position = first.position
    while position >= 0:
        answer = leader.page(2, 1, position)
        found += [transaction.transactional_id for transaction in answer.transactions]
        position = answer.position
    assert set(names[1::2]) <= set(found) <= set(names)
    assert len(found) == len(set(found))


def test_a_listing_goes_on_only_where_it_began() -> None:
    leader = Leader(table_of([f"id-{number}" for number in range(3000)]))
    assert leader.page(5, 4, 1000).began_elsewhere
    position = leader.page(6, 6).position
    leader.page(7, 7)
    assert leader.page(8, 6, position).began_elsewhere
    leader.answers.forget(1)
    assert leader.page(9, 7, position).began_elsewhere


def test_descriptions_are_told_in_parts_of_bounded_size() -> None:
    names = [f"id-{number}" for number in range(40)]
    leader = Leader(table_of(names, writers=30))
    writers_told: dict[str, int] = {}
    position, number, known = 0, -1, 0
    while position < len(names):
        answer = leader.tell(
            AskTransactions(
                question=1,
                transactional_ids=[*names[position:], "unknown"],
                number=number,
                writers_known=known,
            )
        )
        assert isinstance(answer, TransactionsTold)
        for transaction in answer.transactions:
            assert transaction.first_writer == writers_told.get(transaction.transactional_id, 0)
            writers_told[transaction.transactional_id] = transaction.first_writer + len(transaction.writers)
        last = answer.transactions[-1]
        number, known = (last.number, writers_told[last.transactional_id]) if last.more_writers else (-1, 0)
        assert answer.answered or answer.transactions[-1].writers
        position += answer.answered
    assert writers_told == dict.fromkeys(names, 30)
    assert leader.largest <= ANSWER_BYTES_MAX
    assert leader.most_calls < 20_000  # twice the real cost


def test_all_is_told_of_a_transaction() -> None:
    quorum = Transactions()
    who = quorum.begin("x")
    quorum.add(who, quorum.places(0, 1))
    joined = quorum.join(who)
    writer = joined.producer_id, joined.producer_epoch
    quorum.add(writer, quorum.places(1, 2))
    quorum.end(who, writers=[writer], version=7)
    quorum.write_markers(quorum.places(2))
    answer = Leader(quorum.machine.image.transactions).tell(
        AskTransactions(question=9, transactional_ids=["y", "x"])
    )
    assert isinstance(answer, TransactionsTold)
    (transaction,) = answer.transactions
    state = quorum.state()
    assert answer.answered == 2
    assert (transaction.transactional_id, transaction.phase, transaction.app_version) == (
        "x",
        Phase.PREPARE_COMMIT,
        7,
    )
    assert (transaction.producer_id, transaction.producer_epoch) == (state.producer_id, state.producer_epoch)
    assert (transaction.number, transaction.commit_index, transaction.timeout_ms) == (1, 0, 1000)
    assert transaction.started_ms == state.started_ms > 0
    assert {(writer.producer_id, tuple(writer.topics[0].partitions)) for writer in transaction.writers} == {
        (who[0], (0, 1)),
        (joined.producer_id, (1,)),
    }
    assert not transaction.more_writers
