"""Transactions with brokers that fail in every way the protocol allows, in both versions of it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import pytest

from ottla.client.consuming.group_metadata import ConsumerGroupMetadata
from ottla.client.failures import (
    OutOfTurn,
    ProducerFenced,
    RequestTimedOut,
    TransactionAborted,
    TransactionFailed,
)
from ottla.client.producer import Producer
from ottla.client.producing import requests, transaction_state
from ottla.client.producing.transaction_state import TRANSITIONS, ProducerPhase
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from tests.client.fake_cluster import Fault
from tests.client.fake_transactions import TransactionalCluster, Trouble, transactional_cluster

FAULTS = [fault for fault in Fault if fault not in (Fault.NONE, Fault.HANG)]
TROUBLES = [trouble for trouble in Trouble if trouble not in (Trouble.NONE, Trouble.ABORTABLE)]
HERE = TopicPartition("t", 0)
both_versions = pytest.mark.parametrize("version", [1, 2])


@asynccontextmanager
async def producing(cluster: TransactionalCluster, **options: Any) -> AsyncIterator[Producer]:
    """Run a producer, and fail if one of its callbacks fails."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    options = {"transactional_id": "me", "retry_backoff_max_ms": 5, **options}
    async with Producer(bootstrap_servers=cluster.bootstrap, **options) as producer:
        yield producer
    assert not unheard


@both_versions
@pytest.mark.parametrize("seed", range(15))
async def test_what_was_committed_is_there_once_and_in_order_and_nothing_else(
    version: int, seed: int
) -> None:
    chance = random.Random(seed)

    def fault() -> Fault:
        return chance.choice(FAULTS) if chance.random() < 0.2 else Fault.NONE

    def trouble() -> Trouble:
        return chance.choice([*TROUBLES, Trouble.ABORTABLE]) if chance.random() < 0.2 else Trouble.NONE

    async with transactional_cluster(version, brokers=2, partitions=3, fault=fault) as cluster:
        cluster.trouble = trouble
        expected: list[list[bytes]] = [[], [], []]
        offset = None
        async with producing(cluster, batch_size=chance.choice([200, 16384])) as producer:
            for number in range(25):
                sent: list[list[bytes]] = [[], [], []]
                try:
                    async with producer.transaction():
                        for index in range(chance.randrange(40)):
                            partition, value = chance.randrange(3), b"%d-%d" % (number, index)
                            sent[partition].append(value)
                            await producer.send("t", value, partition=partition)
                            if chance.random() < 0.1:
                                await asyncio.sleep(chance.choice([0, 0.002]))
                        if chance.random() < 0.5:
                            await producer.send_offsets_to_transaction({HERE: number}, "g")
                            sends_offset = True
                        else:
                            sends_offset = False
                        if chance.random() < 0.3:
                            raise RuntimeError("changed my mind")
                except (RuntimeError, TransactionFailed, TransactionAborted):
                    continue
                for partition in range(3):
                    expected[partition] += sent[partition]
                offset = number if sends_offset else offset
        for partition in range(3):
            assert cluster.committed(partition) == expected[partition], f"seed {seed}"
        assert cluster.group_offsets.get(HERE) == offset, f"seed {seed}"
        assert not cluster.hanging(), f"seed {seed}"
        assert any(expected), "nothing was committed at all"


@both_versions
async def test_records_count_when_commit_returns(version: int) -> None:
    async with transactional_cluster(version, partitions=2) as cluster, producing(cluster) as producer:
        await producer.begin_transaction()
        for partition in (0, 1):
            await producer.send("t", b"%d" % partition, partition=partition)
        assert cluster.committed(0) == []
        await producer.commit_transaction()
        assert (cluster.committed(0), cluster.committed(1)) == ([b"0"], [b"1"])
        adds = "AddPartitionsToTxn" in cluster.asked
        assert adds == (version == 1)


@both_versions
async def test_aborted_records_never_count_and_the_next_transaction_does(version: int) -> None:
    async with transactional_cluster(version) as cluster, producing(cluster) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"no")
        lost = await producer.send("t", b"nor this")
        await producer.abort_transaction()
        with pytest.raises(TransactionAborted):
            await lost
        async with producer.transaction():
            await producer.send("t", b"yes")
        assert cluster.committed(0) == [b"yes"]
        assert not cluster.hanging()


@both_versions
async def test_a_failed_record_leaves_only_the_abort(version: int) -> None:
    faults = iter([Fault.NONE, Fault.REFUSED])
    async with (
        transactional_cluster(version, fault=lambda: next(faults, Fault.NONE)) as cluster,
        producing(cluster) as producer,
    ):
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a")
        failing = await producer.send("t", b"b")
        with pytest.raises(TransactionFailed, match="INVALID_RECORD") as refused:
            await producer.commit_transaction()
        assert isinstance(refused.value.__cause__, KafkaError)
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            await failing
        with pytest.raises(TransactionFailed):
            await producer.send("t", b"c")
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        with pytest.raises(TransactionFailed):
            await producer.begin_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"d")
        assert cluster.committed(0) == [b"d"]


@both_versions
async def test_a_record_that_nobody_takes_in_time_fails_the_transaction(version: int) -> None:
    async with (
        transactional_cluster(version, fault=lambda: Fault.NOT_LEADER) as cluster,
        producing(cluster, delivery_timeout_ms=100) as producer,
    ):
        with pytest.raises(TransactionFailed, match="delivery_timeout_ms"):
            async with producer.transaction():
                await producer.send("t", b"x")
        cluster.fault = lambda: Fault.NONE
        async with producer.transaction():
            await producer.send("t", b"y")
        assert cluster.committed(0) == [b"y"]


@both_versions
async def test_a_block_that_raises_is_aborted_and_its_exception_goes_on(version: int) -> None:
    async with transactional_cluster(version) as cluster, producing(cluster) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                _ = 1 / 0
        assert cluster.committed(0) == []
        assert not cluster.hanging()


@both_versions
async def test_work_whose_transaction_failed_is_done_again(version: int) -> None:
    faults = iter([Fault.REFUSED, Fault.NONE, Fault.REFUSED])
    async with (
        transactional_cluster(version, fault=lambda: next(faults, Fault.NONE)) as cluster,
        producing(cluster) as producer,
    ):
        failures: list[str] = []
        while len(failures) < 5:
            try:
                async with producer.transaction():
                    for value in (b"a", b"b"):
                        await producer.send_and_wait("t", value)
                break
            except TransactionFailed as failed:
                failures.append(failed.message)
        assert len(failures) == 2
        assert all("INVALID_RECORD" in message for message in failures)
        assert cluster.committed(0) == [b"a", b"b"]
        assert not cluster.hanging()


@both_versions
async def test_a_second_producer_fences_the_first(version: int) -> None:
    async with transactional_cluster(version) as cluster, producing(cluster) as first:
        await first.begin_transaction()
        await first.send_and_wait("t", b"old")
        async with producing(cluster) as second:
            assert not cluster.hanging(), "the first instance's open transaction is aborted"
            with pytest.raises(ProducerFenced, match="replaced by another one"):
                await first.commit_transaction()
            for _ in range(2):
                with pytest.raises(ProducerFenced):
                    await first.begin_transaction()
            with pytest.raises(ProducerFenced):
                await first.send("t", b"x")
            async with second.transaction():
                await second.send("t", b"new")
        assert cluster.committed(0) == [b"new"]


@both_versions
async def test_a_fenced_producer_hears_it_at_the_end_of_the_block(version: int) -> None:
    async with transactional_cluster(version) as cluster, producing(cluster) as first:
        with pytest.raises(ProducerFenced):
            async with first.transaction():
                await first.send_and_wait("t", b"old")
                async with producing(cluster):
                    await first.send("t", b"late")
        with pytest.raises(ProducerFenced):
            await first.begin_transaction()
        assert cluster.committed(0) == []


@both_versions
@pytest.mark.parametrize("first_call", ["send", "flush", "commit", "offsets", "abort"])
async def test_a_producer_that_was_replaced_hears_it_first_and_always(version: int, first_call: str) -> None:
    async with transactional_cluster(version, partitions=2) as cluster, producing(cluster) as loser:
        await loser.begin_transaction()
        await loser.send_and_wait("t", b"old", partition=0)
        async with producing(cluster):
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "send": lambda: loser.send_and_wait("t", b"late", partition=0),
                "commit": loser.commit_transaction,
                "offsets": lambda: loser.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g"),
                "abort": loser.abort_transaction,
            }
            if first_call == "flush":
                sent = [await loser.send("t", b"late", partition=number) for number in (0, 1)]
                await loser.flush()
                errors = [delivery.exception() for delivery in sent]
                assert [type(error) for error in errors] == [ProducerFenced] * 2, errors
            else:
                with pytest.raises(ProducerFenced, match="replaced by another one"):
                    await calls[first_call]()
            for call in (*calls.values(), loser.begin_transaction):
                with pytest.raises(ProducerFenced):
                    await call()
        assert cluster.committed(0) == cluster.hanging() == []


async def test_a_producer_whose_transaction_was_ended_for_it_goes_on_after_an_abort() -> None:
    async with transactional_cluster(version=2) as cluster, producing(cluster) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"old")
        cluster.time_out("me")
        with pytest.raises(TransactionFailed, match="INVALID_PRODUCER_EPOCH"):
            await producer.send_and_wait("t", b"late")
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"new")
        assert cluster.committed(0) == [b"new"]
        assert not cluster.hanging()


@both_versions
async def test_an_end_that_is_not_answered_can_be_asked_for_again(version: int) -> None:
    async with (
        transactional_cluster(version) as cluster,
        producing(cluster, max_block_ms=50) as producer,
    ):
        await producer.begin_transaction()
        await producer.send("t", b"x")
        await producer.flush()
        cluster.trouble = lambda: Trouble.DROP_AFTER
        with pytest.raises(RequestTimedOut):
            await producer.commit_transaction()
        assert cluster.committed(0) == [b"x"]
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(OutOfTurn, match="commit again"):
                await call()
        cluster.trouble = lambda: Trouble.NONE
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"y")
        await producer.abort_transaction()
        assert cluster.committed(0) == [b"x"]


@both_versions
async def test_a_coordinator_that_hangs_is_left_once_another_one_is_named(version: int) -> None:
    async with transactional_cluster(version, brokers=2) as cluster, producing(cluster) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        cluster.held[EndTxnRequest.api_key] = asyncio.Event()
        began_s = time.monotonic()
        commit = asyncio.ensure_future(producer.commit_transaction())
        while not cluster.waiting:
            await asyncio.sleep(0.001)
        cluster.held.clear()
        cluster.coordinator = 1
        await asyncio.wait_for(commit, 25)
        assert time.monotonic() - began_s > 0.99, "a coordinator that is only slow is not asked about sooner"
        assert cluster.committed(0) == [b"x"]


@both_versions
async def test_giving_up_to_wait_does_not_let_the_next_question_overtake(version: int) -> None:
    async with transactional_cluster(version) as cluster, producing(cluster) as producer:
        for number in range(30):
            await producer.begin_transaction()
            await producer.send("t", b"%d" % number)
            commit = asyncio.ensure_future(producer.commit_transaction())
            for _ in range(number % 10):
                await asyncio.sleep(0)
            commit.cancel()
            await asyncio.gather(commit, return_exceptions=True)
            try:
                await producer.commit_transaction()
            except OutOfTurn:
                assert commit.done()
                assert not commit.cancelled()
        assert cluster.committed(0) == [b"%d" % number for number in range(30)]


@both_versions
async def test_an_abort_waits_for_offsets_that_somebody_gave_up_waiting_for(version: int) -> None:
    """The offsets go to another broker: overtaken by the end, they might become part of the next transaction."""
    async with transactional_cluster(version, brokers=2) as cluster, producing(cluster) as producer:
        held = cluster.held[TxnOffsetCommitRequest.api_key] = asyncio.Event()
        await producer.begin_transaction()
        sending = asyncio.ensure_future(producer.send_offsets_to_transaction({HERE: 5}, "g"))
        while not cluster.waiting:
            await asyncio.sleep(0.001)
        sending.cancel()
        await asyncio.wait([sending])
        with pytest.raises(TransactionFailed, match="gave up waiting"):
            await producer.commit_transaction()
        abort = asyncio.ensure_future(producer.abort_transaction())
        done, _ = await asyncio.wait([abort], timeout=0.05)
        assert not done
        assert "EndTxn" not in cluster.asked
        held.set()
        await asyncio.wait_for(abort, 25)
        async with producer.transaction():
            await producer.send("t", b"x")
        assert (cluster.committed(0), cluster.group_offsets) == ([b"x"], {})


@both_versions
async def test_a_batch_that_arrives_after_the_abort_is_not_part_of_the_next_transaction(version: int) -> None:
    async with transactional_cluster(version) as cluster, producing(cluster) as producer:
        await producer.begin_transaction()
        held = cluster.held[ProduceRequest.api_key] = asyncio.Event()
        await producer.send("t", b"late")
        while not cluster.waiting:
            await asyncio.sleep(0.001)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"x")
        while version == 1 and cluster.asked.count("AddPartitionsToTxn") < 2:
            await asyncio.sleep(0.001)
        held.set()
        await producer.commit_transaction()
        assert cluster.committed(0) == [b"x"]


@both_versions
async def test_a_question_that_a_transaction_leaves_behind_does_not_disturb_the_next(version: int) -> None:
    async with transactional_cluster(version) as cluster, producing(cluster) as producer:
        cluster.refuse_offsets = ErrorCode.CONCURRENT_TRANSACTIONS
        await producer.begin_transaction()
        left = asyncio.ensure_future(producer.send_offsets_to_transaction({HERE: 5}, "g"))
        while cluster.asked.count("TxnOffsetCommit") < 2:
            await asyncio.sleep(0.001)
        with pytest.raises(OutOfTurn, match="offsets are being sent"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises(TransactionAborted):
            await left
        await producer.send("t", b"x")
        await producer.commit_transaction()
        assert (cluster.committed(0), cluster.group_offsets) == ([b"x"], {})


@both_versions
async def test_offsets_count_with_the_transaction(version: int) -> None:
    member = ConsumerGroupMetadata("g", 3, "m")
    async with transactional_cluster(version) as cluster, producing(cluster) as producer:
        with pytest.raises(RuntimeError):
            async with producer.transaction():
                await producer.send_offsets_to_transaction({HERE: 5}, member)
                raise RuntimeError
        assert cluster.group_offsets == {}
        async with producer.transaction():
            await producer.send_offsets_to_transaction({HERE: 6}, member)
            await producer.send_offsets_to_transaction({}, member)
        assert cluster.group_offsets == {HERE: 6}
        cluster.refuse_offsets = ErrorCode.ILLEGAL_GENERATION
        with pytest.raises(TransactionFailed, match="ILLEGAL_GENERATION"):
            async with producer.transaction():
                await producer.send("t", b"x")
                await producer.send_offsets_to_transaction({HERE: 7}, member)
        assert (cluster.group_offsets, cluster.committed(0)) == ({HERE: 6}, [])
        assert ("AddOffsetsToTxn" in cluster.asked) == (version == 1)


@both_versions
async def test_a_transaction_without_records_costs_nothing(version: int) -> None:
    async with transactional_cluster(version) as cluster, producing(cluster) as producer:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
        assert "EndTxn" not in cluster.asked


@both_versions
async def test_what_is_open_is_aborted_when_the_producer_stops(version: int) -> None:
    async with transactional_cluster(version) as cluster:
        async with producing(cluster) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"x")
            under_way = await producer.send("t", b"y")
        with pytest.raises(TransactionAborted):
            await under_way
        assert not cluster.hanging()
        assert cluster.committed(0) == []


@both_versions
async def test_nothing_is_committed_of_a_transaction_whose_producer_had_a_fault_of_its_own(
    version: int,
) -> None:
    """The producer's records were given up, and the commit counted earlier records."""
    async with transactional_cluster(version, partitions=2) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap, transactional_id="me")
        async with producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"x", partition=0)
            asyncio.get_running_loop().set_exception_handler(lambda _, context: None)  # reported there
            with mock.patch.object(requests, "encode_records", side_effect=MemoryError):
                await producer.send("t", b"y", partition=1)
                with pytest.raises(TransactionFailed, match="fault of its own: MemoryError"):
                    await producer.commit_transaction()
            await producer.abort_transaction()
        assert not cluster.hanging()
        assert cluster.committed(0) == []


async def test_an_abort_that_failed_too_is_noted() -> None:
    async with transactional_cluster(2) as cluster, producing(cluster, max_block_ms=50) as producer:
        with pytest.raises(ValueError, match="mine") as caught:
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                cluster.trouble = lambda: Trouble.DROP_BEFORE
                raise ValueError("mine")
        assert "could not be aborted" in caught.value.__notes__[0]
        with pytest.raises(OutOfTurn, match="abort again"):
            await producer.begin_transaction()
        cluster.trouble = lambda: Trouble.NONE
        await producer.abort_transaction()
        assert not cluster.hanging()


def test_the_table_of_transitions_is_the_one_in_force() -> None:
    """The table at the top of the file is compared line by line."""
    transitions = set()
    for line in (transaction_state.__doc__ or "").splitlines():
        words = line.split()
        if len(words) > 2 and words[1] in ProducerPhase.__members__:
            sources = list(ProducerPhase) if words[0] == "any" else [ProducerPhase[words[0]]]
            transitions |= {(source, ProducerPhase[words[1]]) for source in sources}
    assert transitions == TRANSITIONS


async def test_calls_out_of_turn_say_what_to_do() -> None:
    async with transactional_cluster(2) as cluster, producing(cluster) as producer:
        with pytest.raises(OutOfTurn, match="begin a transaction first"):
            await producer.send("t", b"x")
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(OutOfTurn, match="begin a transaction first"):
                await call()
        await producer.begin_transaction()
        with pytest.raises(OutOfTurn, match="commit or abort it first"):
            await producer.begin_transaction()
    async with transactional_cluster(2) as cluster, Producer(bootstrap_servers=cluster.bootstrap) as plain:
        with pytest.raises(OutOfTurn, match="transactional_id"):
            await plain.begin_transaction()
    with pytest.raises(ValueError, match="acks='all'"):
        Producer(transactional_id="x", acks=1)
    with pytest.raises(ValueError, match="transaction_timeout_ms"):
        Producer(transactional_id="x", transaction_timeout_ms=0)
    with pytest.raises(ValueError, match="not empty"):
        Producer(transactional_id="")
