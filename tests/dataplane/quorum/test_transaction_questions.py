"""A broker's questions about transactions of others: compared with local answers, and answered by real quorum nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ottla.dataplane.quorum import QuorumSession
from ottla.dataplane.quorum.transaction_questions import TransactionQuestions
from ottla.metadata_quorum.broker_sessions import BrokerSessions
from ottla.metadata_quorum.transaction_questions import TransactionAnswers
from ottla.protocol.cluster.cluster_image import TopicState
from ottla.protocol.cluster.transaction_table import Phase, Place, TransactionTable, by_topic
from ottla.protocol.messages.quorum_session import (
    LeaderChanged,
    decode_session_message,
    encode_session_message,
)
from ottla.protocol.messages.topic_commands import CreateTopics, CreateTopicsResult, NewTopic
from ottla.protocol.messages.transaction_commands import (
    AddToTransaction,
    ClientOrigin,
    EndTransaction,
    EndTransactionResult,
    InitTransactionalId,
    ReportMarkers,
    WrittenMarker,
    WrittenMarkers,
)
from ottla.protocol.messages.transaction_questions import TransactionAnswer, TransactionQuestion
from ottla.protocol.messages.transaction_records import TransactionRecord, TransactionWriterRecord

from .cluster import QuorumAndSessions, until
from .test_quorum_session import allocate, run

TIMEOUT_S = 10.0
TOPIC = b"t" * 16


class AtHand:
    """A leader whose answers take one turn of the loop; another leader takes over before a share `changes` of them."""

    def __init__(self, table: TransactionTable, changes: float = 0.0, seed: int = 0) -> None:
        self.table = table
        self.asked = 0
        self.silent = False
        self._answers = TransactionAnswers()
        self._changes = changes
        self._rng = Random(seed)

    async def ask(
        self, make: Callable[[int], TransactionQuestion], timeout_s: float
    ) -> TransactionAnswer | None:
        self.asked += 1
        question = decode_session_message(encode_session_message(make(self.asked)))
        await asyncio.sleep(0)
        if self.silent:
            return None
        if self._rng.random() < self._changes:
            self._answers = TransactionAnswers()
        answer = self._answers.answer(1, question, self.table, self.asked)  # type: ignore[arg-type]
        return decode_session_message(encode_session_message(answer))  # type: ignore[return-value]


def table_of(count: int, writers: int = 0, places: int = 50) -> TransactionTable:
    table = TransactionTable()
    for number in range(count):
        name = f"id-{number}"
        table.apply(
            TransactionRecord(transactional_id=name, producer_id=number, phase=Phase.ONGOING, number=1)
        )
        for writer in range(writers):
            topics = by_topic((TOPIC, index) for index in range(writer, writer + places))
            table.apply(
                TransactionWriterRecord(
                    transactional_id=name,
                    producer_id=1_000_000 * (writer + 1) + number,
                    producer_epoch=0,
                    topics=topics,
                )
            )
    return table


async def test_all_pages_make_one_list() -> None:
    leader = AtHand(table_of(12_000))
    found = await TransactionQuestions(leader.ask).ids(TIMEOUT_S)
    assert found is not None
    assert [transaction.transactional_id for transaction in found] == [
        f"id-{number}" for number in range(12_000)
    ]
    assert leader.asked == 12


@pytest.mark.parametrize("seed", range(5))
async def test_a_listing_begins_again_with_another_leader(seed: int) -> None:
    leader = AtHand(table_of(5_000), changes=0.2, seed=seed)
    found = await TransactionQuestions(leader.ask).ids(TIMEOUT_S)
    assert found is not None
    assert sorted(transaction.producer_id for transaction in found) == list(range(5_000))


async def test_listings_at_the_same_time_do_not_disturb_each_other() -> None:
    questions = TransactionQuestions(AtHand(table_of(3_000)).ask)
    every, some = await asyncio.gather(
        questions.ids(TIMEOUT_S), questions.ids(TIMEOUT_S, producer_ids=(7, 2_999))
    )
    assert every is not None
    assert some is not None
    assert len(every) == 3_000
    assert [transaction.producer_id for transaction in some] == [7, 2_999]


async def test_parts_of_descriptions_are_put_together() -> None:
    table = table_of(25, writers=40)
    leader = AtHand(table)
    names = [*table.by_id, "unknown", "id-3"]
    found = await TransactionQuestions(leader.ask).describe(names, TIMEOUT_S)
    assert found is not None
    assert found.keys() == table.by_id.keys()
    assert leader.asked > 10
    for name, transaction in found.items():
        known = {writer.producer_id: writer.places for writer in table.by_id[name].writers.values()}
        assert {writer.producer_id: writer.topics for writer in transaction.writers} == {
            producer_id: by_topic(places) for producer_id, places in known.items()
        }
        assert len(transaction.writers) == 40
        assert not transaction.first_writer


async def test_a_writer_with_very_many_partitions_is_told_at_once() -> None:
    table = table_of(2, writers=2, places=30_000)
    found = await TransactionQuestions(AtHand(table).ask).describe(["id-1", "id-0"], TIMEOUT_S)
    assert found is not None
    assert [len(writer.topics[0].partitions) for writer in found["id-0"].writers] == [30_000, 30_000]


async def test_a_cut_of_very_many_places_is_the_least_of_its_parts() -> None:
    table = table_of(1, writers=1, places=25_000)
    table.apply(
        TransactionRecord(transactional_id="id-0", phase=Phase.PREPARE_COMMIT, commit_index=6, number=1)
    )
    leader = AtHand(table)
    questions = TransactionQuestions(leader.ask)
    places: list[Place] = [(b"u" * 16, index) for index in range(25_000)]
    assert await questions.cut(places, TIMEOUT_S) == (6, 3)
    assert await questions.cut([*places, (TOPIC, 17)], TIMEOUT_S) == (5, 6)
    assert await questions.cut((), TIMEOUT_S) == (5, 7)


async def test_without_an_answer_there_is_none() -> None:
    leader = AtHand(table_of(10))
    leader.silent = True
    questions = TransactionQuestions(leader.ask)
    assert await questions.cut((), TIMEOUT_S) is None
    assert await questions.ids(TIMEOUT_S) is None
    assert await questions.describe(["id-1"], TIMEOUT_S) is None


async def decide(session: QuorumSession, name: str) -> EndTransactionResult:
    """End a transaction in all partitions of topic t, whose leader writes no markers."""
    places = [(session.image.topics["t"].id, index) for index in session.image.topics["t"].partitions]
    origin = ClientOrigin(
        broker_id=1, broker_epoch=session.broker_epoch, connection=1, birth=session.image.offset, now_ms=5
    )
    begun = await session.submit(InitTransactionalId(transactional_id=name, timeout_ms=60_000, origin=origin))
    who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch, "origin": origin}
    await session.submit(
        AddToTransaction(transactional_id=name, topics=by_topic(places), **who)  # type: ignore[arg-type]
    )
    return await session.submit(
        EndTransaction(transactional_id=name, commits=True, **who)  # type: ignore[arg-type]
    )


async def cut(session: QuorumSession, *places: Place) -> int:
    """Return the cut's commit index, which is at least as new as this broker's image was."""
    offset = session.image.offset
    found = await session.transactions.cut(places, TIMEOUT_S)
    assert found is not None
    assert found.metadata_offset >= offset
    return found.commit_index


def test_any_broker_is_told_by_the_leader_and_by_the_next_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, nodes=3) as cluster:
            session, other = await cluster.broker(1), await cluster.broker(2)
            await asyncio.gather(session.unfenced(), other.unfenced())
            assert await cut(other) == -1
            made = await session.submit(
                CreateTopics(topics=[NewTopic(name="t", num_partitions=2, replication_factor=1)], seed=1)
            )
            assert isinstance(made, CreateTopicsResult)
            assert not made.topics[0].error_code, made
            await decide(session, "x")
            for _ in range(2):
                place = (session.image.topics["t"].id, 1)
                assert await cut(other, place) == -1
                assert await cut(other, (b"n" * 16, 0)) == 0
                described = await other.transactions.describe(["x", "y"], TIMEOUT_S)
                assert described is not None
                assert described["x"].phase == Phase.PREPARE_COMMIT
                assert described.keys() == {"x"}
                listed = await other.transactions.ids(TIMEOUT_S, phases=[Phase.PREPARE_COMMIT])
                assert [transaction.transactional_id for transaction in listed or ()] == ["x"]
                assert await other.transactions.ids(TIMEOUT_S, phases=[Phase.EMPTY]) == []
                if len(cluster.nodes) == 3:
                    assert other.leader_id is not None
                    await cluster.stop_node(other.leader_id)

    run(scenario())


def test_an_end_is_told_before_it_is_applied_and_counts_for_what_is_asked_afterwards(tmp_path: Path) -> None:
    """The leaders' reports suffice; the client goes on at once, and is not refused."""

    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, nodes=3) as cluster:
            settled: list[tuple[str, int]] = []
            session = await cluster.broker(1, on_settled=lambda *settlement: settled.append(settlement))
            await session.unfenced()
            await session.submit(
                CreateTopics(topics=[NewTopic(name="t", num_partitions=2, replication_factor=1)], seed=1)
            )
            for number in range(1, 20):
                ended = await decide(session, "x")
                assert ended.number == number
                topic = session.image.topics["t"]
                reports = [
                    asyncio.create_task(session.submit(_report(session, topic, index, ended)))
                    for index in topic.partitions
                ]
                await until(lambda: settled == [("x", number)])  # noqa: B023
                settled.clear()
                if number % 2:
                    assert await cut(session, (topic.id, 0)) == ended.commit_index
                    await asyncio.gather(*reports)

    run(scenario())


def _report(
    session: QuorumSession, topic: TopicState, index: int, ended: EndTransactionResult
) -> ReportMarkers:
    state = topic.partitions[index]
    return ReportMarkers(
        broker_id=1,
        broker_epoch=session.broker_epoch,
        partitions=[
            WrittenMarkers(
                topic_id=topic.id,
                partition=index,
                leader_epoch=state.leader_epoch,
                writers=[WrittenMarker(producer_id=ended.producer_id, number=ended.number)],
            )
        ],
    )


def test_a_leader_of_an_earlier_version_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = BrokerSessions.announce

    def announce(sessions: BrokerSessions, term: int, leader_id: int) -> None:
        said(sessions, term, leader_id)
        sessions._leader = LeaderChanged(term=term, leader_id=leader_id)

    async def scenario() -> None:
        monkeypatch.setattr(BrokerSessions, "announce", announce)
        async with QuorumAndSessions(tmp_path) as cluster:
            await cluster.leading()
            session = await cluster.broker(1)
            await session.unfenced()
            assert await session.transactions.cut((), 0.05) is None
            assert await allocate(session) >= 0
            status = await session.quorum_status(TIMEOUT_S)
            assert status is not None
            await until(lambda: session.leader_id == 101)

    run(scenario())
