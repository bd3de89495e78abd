"""Transactional batches that are ahead of this broker's knowledge, or will never belong to a transaction (rule T3)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla.dataplane.transactions import pending_writes
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.transaction_commands import DeleteTransactionalId, VerifyTransaction
from tests.metadata_quorum.state.transactional import Identity

from .broker_beside_a_quorum import Beside, beside_a_quorum


def begun(broker: Beside, *indexes: int) -> Identity:
    who = broker.quorum.begin()
    broker.quorum.add(who, broker.solo(*indexes))
    return who


async def test_a_batch_waits_for_the_feed(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        sending = asyncio.create_task(broker.produce(who, 0))
        await asyncio.sleep(0)
        assert broker.pending_writes.waiting == 1
        broker.catch_up()
        assert await sending == 0
        assert broker.partition().log.transactions.open == {who[0]: 0}
        assert await broker.produce(who, 1) == 1, "the next one does not wait"


async def test_batches_leave_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        sending = [asyncio.create_task(broker.produce(who, sequence)) for sequence in range(3)]
        await asyncio.sleep(0)
        broker.catch_up()
        late = asyncio.create_task(broker.produce(who, 3))
        assert await asyncio.gather(*sending, late) == [0, 1, 2, 3]


async def test_what_is_in_no_transaction_is_refused_once_that_is_certain(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        with pytest.raises(KafkaError, match="not part of an open transaction") as refused:
            await broker.produce(who, 0, index=1)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        assert broker.partition(index=1).log.log_end_offset == 0


@pytest.mark.parametrize("is_there_again", [False, True])
async def test_what_a_deleted_id_wrote_under_is_in_no_transaction(
    tmp_path: Path, *, is_there_again: bool
) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        broker.catch_up()
        await broker.produce(who, 0)
        broker.quorum.end(who, bumps=False)
        broker.catch_up()
        while not broker.quorum.state().phase.is_over:
            await asyncio.sleep(0.001)
        end = broker.partition().log.log_end_offset
        deletion = DeleteTransactionalId(transactional_id="x")
        assert broker.quorum.do(deletion, PlainResult).error_code == ErrorCode.NONE
        if is_there_again:
            begun(broker, 0)
        for adds, code in ((None, ErrorCode.INVALID_TXN_STATE), ("x", ErrorCode.TRANSACTION_ABORTABLE)):
            with pytest.raises(KafkaError) as refused:
                await broker.produce(who, 1, adds=adds)
            assert refused.value.code is code
        assert broker.partition().log.log_end_offset == end


async def test_a_batch_of_the_transaction_before_is_not_taken_for_one_of_the_next(tmp_path: Path) -> None:
    """The client keeps its epoch (Produce below 12): the batch does not identify its transaction, so its partition must
    have been added.
    """
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        broker.catch_up()
        await broker.produce(who, 0)
        broker.quorum.end(who, commits=False, bumps=False)
        broker.catch_up()
        while not broker.quorum.state().phase.is_over:
            await asyncio.sleep(0.001)
        end = broker.partition().log.log_end_offset
        with pytest.raises(KafkaError) as refused:
            await broker.produce(who, 1)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        broker.quorum.add(who, broker.solo(1))
        with pytest.raises(KafkaError):
            await broker.produce(who, 1)
        assert broker.partition().log.log_end_offset == end


async def test_the_next_transaction_begins_while_markers_are_written(tmp_path: Path) -> None:
    """KAFKA-18575: its first batch waits, and is not refused."""
    async with beside_a_quorum(tmp_path) as broker:
        who = broker.quorum.begin()
        broker.quorum.add(who, broker.quorum.places(0, topic="pair") | broker.solo(0))
        broker.catch_up()
        await broker.produce(who, 0)
        broker.quorum.end(who, bumps=False)
        broker.catch_up()
        for _ in range(20):
            await asyncio.sleep(0)  # The marker of one partition is reported, that of the other is not.
        assert broker.quorum.state().phase.is_decided
        broker.quorum.write_markers()
        broker.quorum.add(who, broker.solo(0))
        sending = asyncio.create_task(broker.produce(who, 1))
        await asyncio.sleep(0)
        assert not sending.done(), "as far as this broker knows the transaction before is being ended"
        broker.catch_up()
        assert await sending == 2, "after the marker"


async def test_writing_to_a_partition_adds_it(tmp_path: Path) -> None:
    """KIP-890: clients of Produce 12 and above do not add partitions themselves."""
    async with beside_a_quorum(tmp_path) as broker:
        who = broker.quorum.begin()
        sent = await asyncio.gather(*(broker.produce(who, number, adds="x") for number in range(3)))
        assert sent == [0, 1, 2]
        assert {place for _, place in broker.quorum.state().outstanding} == broker.solo(0)
        assert broker.quorum.state().started_ms == 7, "by the clock of the broker"


@pytest.mark.parametrize("adds", ["x", None])
async def test_what_waits_for_a_partition_that_has_moved_away_is_sent_to_its_leader(
    tmp_path: Path, adds: str | None
) -> None:
    """This broker is not notified of the transaction, and repeatedly asked the quorum to add the partition."""
    async with beside_a_quorum(tmp_path) as broker:
        who = broker.quorum.begin(broker=2)
        broker.catch_up()
        submit = mock.patch.object(broker, "submit", wraps=broker.submit)
        with submit as submitted:
            sending = asyncio.create_task(broker.produce(who, 0, topic="pair", adds=adds))
            await asyncio.sleep(0)
            assert broker.pending_writes.waiting == 1
            broker.quorum.move(0, [2], topic="pair")
            with pytest.raises(KafkaError) as refused:
                await sending
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert submitted.call_count == 1


@pytest.mark.parametrize(
    ("fenced", "code"),
    [(True, ErrorCode.INVALID_PRODUCER_EPOCH), (False, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_who_may_not_add_is_told_what_to_do(tmp_path: Path, *, fenced: bool, code: ErrorCode) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = broker.quorum.begin()
        if fenced:
            broker.quorum.begin()
        with pytest.raises(KafkaError) as refused:
            await broker.produce(who, 0, adds="x" if fenced else "nobody")
        assert refused.value.code is code


async def test_without_a_quorum_clients_are_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_writes, "WAIT_MAX_S", 0.2)
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        broker.quorum.answers = False
        with pytest.raises(KafkaError) as refused:
            await broker.produce(who, 0)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert broker.pending_writes.waiting == 0


async def test_those_behind_a_refused_batch_are_refused_with_it(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        sending = [broker.produce(who, sequence, index=1) for sequence in range(3)]
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert all(isinstance(outcome, KafkaError) for outcome in outcomes)
        assert broker.pending_writes.waiting == 0


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_write_that_cannot_be_answered_does_not_take_those_behind_it_with_it(
    tmp_path: Path, *, is_refused: bool
) -> None:
    """The later writes would otherwise never be released."""
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        released: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        partition = broker.partition(index=int(is_refused))
        for done in (mock.Mock(side_effect=ValueError), released.set_result):
            broker.pending_writes.wait(partition, *who, None, done)
        broker.catch_up()
        async with asyncio.timeout(20):
            assert isinstance(await released, KafkaError) is is_refused
        assert broker.pending_writes.waiting == 0


async def test_a_fenced_instance_does_not_take_its_successor_with_it(tmp_path: Path) -> None:
    """Both wait in one queue: the old epoch is refused for good, which says nothing about the new one."""
    async with beside_a_quorum(tmp_path) as broker:
        old = broker.quorum.begin()
        late = asyncio.create_task(broker.produce(old, 0))
        await asyncio.sleep(0)
        who = begun(broker, 0)
        sending = asyncio.create_task(broker.produce(who, 0))
        await asyncio.sleep(0)
        assert broker.pending_writes.waiting == 2
        broker.catch_up()
        with pytest.raises(KafkaError) as refused:
            await late
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await sending == 0


async def test_a_batch_that_is_sent_again_is_a_duplicate_while_its_transaction_is_open(
    tmp_path: Path,
) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        broker.catch_up()
        for sequence in range(3):
            await broker.produce(who, sequence)
        again = [asyncio.create_task(broker.produce(who, sequence)) for sequence in (1, 2, 3)]
        assert await asyncio.gather(*again) == [1, 2, 3], "and the next batch is appended after it"
        assert broker.partition().log.log_end_offset == 4


async def test_a_leader_that_is_behind_acknowledges_no_batch_of_an_ended_transaction(tmp_path: Path) -> None:
    """The marker is still missing in its log.

    Its image does not show the next transaction either: it may have been deposed.
    """
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        broker.catch_up()
        await broker.produce(who, 0)
        broker.quorum.end(who, commits=False, bumps=False)
        assert broker.partition().log.log_end_offset == 1, "it does not know yet"
        with pytest.raises(KafkaError) as refused:
            await broker.produce(who, 0)
        assert refused.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
        assert broker.partition().log.log_end_offset == 2, "the marker"


async def test_batches_that_wait_together_share_a_question(tmp_path: Path) -> None:
    """The question in progress when they come does not cover them; the next one does."""
    async with beside_a_quorum(tmp_path) as broker:
        names = [f"x{number}" for number in range(30)]
        producers = [broker.quorum.begin(name) for name in names]
        for who, name in zip(producers, names, strict=True):
            broker.quorum.add(who, broker.solo(0), name=name)
        broker.catch_up()
        offsets = [await broker.produce(who, 0) for who in producers]
        submit, questions, may_answer = broker.submit, list[object](), asyncio.Event()

        async def held(command: Any, timeout_ms: int | None = None) -> Any:
            questions.append(command)
            await may_answer.wait()
            return await submit(command, timeout_ms)

        with mock.patch.object(broker, "submit", held):
            again = [asyncio.create_task(broker.produce(producers[0], 0))]
            async with asyncio.timeout(20):
                while not questions:
                    await asyncio.sleep(0)
            again += [asyncio.create_task(broker.produce(who, 0)) for who in producers[1:]]
            while broker.pending_writes.waiting < len(producers):
                await asyncio.sleep(0)
            may_answer.set()
            assert await asyncio.gather(*again) == offsets, "each is known to be a duplicate"
        assert len(questions) == 2
        assert all(isinstance(question, VerifyTransaction) for question in questions)


async def test_without_a_quorum_a_duplicate_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_writes, "WAIT_MAX_S", 0.2)
    async with beside_a_quorum(tmp_path) as broker:
        who = begun(broker, 0)
        broker.catch_up()
        await broker.produce(who, 0)
        broker.quorum.answers = False
        sending = [asyncio.create_task(broker.produce(who, sequence)) for sequence in (0, 1)]
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert isinstance(outcomes[0], KafkaError)
        assert outcomes[0].code is ErrorCode.REQUEST_TIMED_OUT, (
            "NOT_ENOUGH_REPLICAS would mean that it is not there"
        )
        assert outcomes[1] == 1, "the next write is judged on its own"
