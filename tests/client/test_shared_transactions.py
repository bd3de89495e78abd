"""Transactions with writers in other processes: exactly the chosen writers count."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from ottla.client.failures import (
    OutOfTurn,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
    VersionUnsupported,
)
from ottla.client.producer import Producer
from ottla.client.transactions.transaction import WriterReceipt
from ottla.client.transactions.transactions import CommitResult
from ottla.client.transactions.writer import TransactionWriter
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import ProduceRequest
from tests.client.fake_cluster import Fault, fake_cluster
from tests.client.fake_transactions import TransactionalCluster, Trouble, transactional_cluster


def owner(cluster: TransactionalCluster, **options: int) -> Producer:
    return Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id="job", retry_backoff_max_ms=5, **options
    )


async def write(cluster: TransactionalCluster, token: str, *values: bytes) -> WriterReceipt:
    async with TransactionWriter.join(
        token, bootstrap_servers=cluster.bootstrap, retry_backoff_max_ms=5
    ) as writer:
        for value in values:
            await writer.send("t", value)
        return await writer.finish()


async def test_a_writer_that_is_stopped_before_it_has_finished_gives_no_receipt() -> None:
    """A writer gave one if a task stopped it while another task waited for the receipt."""
    async with transactional_cluster(2) as cluster, owner(cluster) as producer:
        transaction = await producer.begin()
        cluster.held[ProduceRequest.api_key] = asyncio.Event()
        writer = TransactionWriter.join(transaction.token, bootstrap_servers=cluster.bootstrap)
        await writer.start()
        await writer.send("t", b"a")
        finishing = asyncio.create_task(writer.finish())
        async with asyncio.timeout(20):
            while not cluster.waiting:
                await asyncio.sleep(0.001)
        await writer.stop()
        with pytest.raises(TransactionFailed, match="stopped before it had finished"):
            await finishing


async def test_exactly_the_chosen_writers_count() -> None:
    async with transactional_cluster(2) as cluster, owner(cluster) as producer:
        transaction = await producer.begin()
        first = await write(cluster, transaction.token, b"a", b"b")
        await write(cluster, transaction.token, b"not chosen")
        third = await write(cluster, transaction.token, b"c")
        await producer.send("t", b"the owner's")
        result = await transaction.commit(writers=[first, third])
        assert result == CommitResult(was_committed=False, commit_index=1)
        assert sorted(cluster.committed(0)) == [b"a", b"b", b"c", b"the owner's"]
        assert not cluster.hanging()


@pytest.mark.parametrize("seed", range(10))
async def test_exactly_the_chosen_writers_count_whatever_fails(seed: int) -> None:
    chance = random.Random(seed)
    final = (Fault.INVALID_TIMESTAMP, Fault.REFUSED)
    faults = [fault for fault in Fault if fault not in (Fault.NONE, Fault.HANG, *final)]
    troubles = [trouble for trouble in Trouble if trouble not in (Trouble.NONE, Trouble.ABORTABLE)]
    async with transactional_cluster(2, brokers=2, partitions=2) as cluster:
        cluster.fault = lambda: chance.choice(faults) if chance.random() < 0.2 else Fault.NONE
        cluster.trouble = lambda: chance.choice(troubles) if chance.random() < 0.2 else Trouble.NONE
        expected: set[bytes] = set()
        async with owner(cluster) as producer:
            for number in range(8):
                async with await producer.begin(app_version=number) as transaction:
                    for writer in range(chance.randrange(4)):
                        values = [b"%d-%d-%d" % (number, writer, place) for place in range(5)]
                        receipt = await write(cluster, transaction.token, *values)
                        if chance.random() < 0.6:
                            transaction.include(str(receipt))
                            expected.update(values)
                assert transaction.result is not None
                assert not transaction.result.was_committed
                assert producer.last_app_version == number
        found = [value for partition in range(2) for value in cluster.committed(partition)]
        assert len(found) == len(set(found))
        assert set(found) == expected, f"seed {seed}"
        assert not cluster.hanging()


async def test_the_same_version_counts_once() -> None:
    async with transactional_cluster(2) as cluster:
        async with owner(cluster) as producer:
            assert producer.last_app_version is None
            async with producer.transaction(app_version=7) as transaction:
                await producer.send("t", b"once")
            assert transaction.result == CommitResult(was_committed=False, commit_index=1)
        async with owner(cluster) as restarted:
            assert restarted.last_app_version == 7
            again = await restarted.begin(app_version=7)
            await restarted.send("t", b"once")
            assert (await again.commit()).was_committed
            assert restarted.last_app_version == 7
            async with restarted.transaction(app_version=8):
                await restarted.send("t", b"next")
            assert restarted.last_app_version == 8
        assert cluster.committed(0) == [b"once", b"next"]


async def test_a_commit_that_is_not_answered_says_the_same_when_asked_again() -> None:
    async with transactional_cluster(2) as cluster, owner(cluster) as producer:
        transaction = await producer.begin(app_version=1)
        receipt = await write(cluster, transaction.token, b"x")
        troubles = iter([Trouble.DROP_AFTER, Trouble.DROP_AFTER])
        cluster.trouble = lambda: next(troubles, Trouble.NONE)
        assert await transaction.commit(writers=[receipt]) == CommitResult(False, 1)
        assert cluster.committed(0) == [b"x"]


async def test_a_writer_that_nobody_knows_is_refused_and_nothing_is_decided() -> None:
    async with transactional_cluster(2) as cluster, owner(cluster) as producer:
        transaction = await producer.begin()
        receipt = await write(cluster, transaction.token, b"x")
        with pytest.raises(TransactionFailed, match="INVALID_TXN_STATE"):
            await transaction.commit(writers=[receipt, "w1.99.0"])
        await transaction.abort()
        assert cluster.committed(0) == []
        async with producer.transaction():
            await producer.send("t", b"y")
        assert cluster.committed(0) == [b"y"]


async def test_an_aborted_transaction_takes_its_writers_with_it() -> None:
    async with transactional_cluster(2) as cluster, owner(cluster) as producer:
        with pytest.raises(RuntimeError):
            async with await producer.begin() as transaction:
                transaction.include(await write(cluster, transaction.token, b"x"))
                raise RuntimeError
        assert cluster.committed(0) == []
        assert not cluster.hanging()
        with pytest.raises(KafkaError) as refused:
            await write(cluster, transaction.token, b"y")
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE


async def test_a_writer_that_is_too_late_gets_no_receipt() -> None:
    async with transactional_cluster(2) as cluster, owner(cluster) as producer:
        transaction = await producer.begin()
        async with TransactionWriter.join(transaction.token, bootstrap_servers=cluster.bootstrap) as writer:
            await writer.send_and_wait("t", b"in time")
            await transaction.commit()
            late = await writer.send("t", b"late")
            with pytest.raises(TransactionFailed, match="INVALID_PRODUCER_EPOCH"):
                await writer.finish()
            with pytest.raises(KafkaError):
                await late
        assert cluster.committed(0) == []


async def test_a_writer_that_has_finished_takes_no_more() -> None:
    async with transactional_cluster(2) as cluster, owner(cluster) as producer:
        transaction = await producer.begin()
        async with TransactionWriter.join(transaction.token, bootstrap_servers=cluster.bootstrap) as writer:
            await writer.send("t", b"x")
            receipt = await writer.finish()
            assert await writer.finish() == receipt
            with pytest.raises(OutOfTurn, match="finished"):
                await writer.send("t", b"y")
        async with TransactionWriter.join(transaction.token, bootstrap_servers=cluster.bootstrap) as writer:
            gone = await writer.send("t", b"z")
        with pytest.raises(TransactionAborted):
            await gone
        await transaction.commit([receipt])
        assert cluster.committed(0) == [b"x"]


async def test_each_transaction_object_is_for_one_transaction() -> None:
    async with transactional_cluster(2) as cluster, owner(cluster) as producer:
        plain = producer.transaction()
        with pytest.raises(OutOfTurn, match="has not begun"):
            await plain.commit()
        async with plain:
            with pytest.raises(OutOfTurn, match="nobody can join"):
                _ = plain.token
            with pytest.raises(OutOfTurn, match="nobody can have joined"):
                await plain.commit(["w1.1.0"])
        with pytest.raises(OutOfTurn, match="begun before"):
            await plain.begin()
        async with await producer.begin() as shared:
            with pytest.raises(OutOfTurn, match="another one has begun"):
                await plain.commit()
            await shared.commit()
        with pytest.raises(ValueError, match="0 or more"):
            await producer.begin(app_version=-1)


async def test_a_fenced_owner_commits_nothing() -> None:
    async with transactional_cluster(2) as cluster, owner(cluster) as producer:
        transaction = await producer.begin()
        receipt = await write(cluster, transaction.token, b"x")
        async with owner(cluster):
            with pytest.raises(ProducerFenced):
                await transaction.commit([receipt])
        assert cluster.committed(0) == []


async def test_other_clusters_say_that_they_have_none() -> None:
    async with transactional_cluster(2) as cluster:
        cluster.served = [request for request in cluster.served if request.api_key < 20_000]
        async with owner(cluster) as producer:
            with pytest.raises(VersionUnsupported, match="BeginTransaction"):
                await producer.begin()
            async with producer.transaction():
                await producer.send("t", b"x")
        assert cluster.committed(0) == [b"x"]
    async with fake_cluster() as plain:
        with pytest.raises(VersionUnsupported, match="JoinTransaction"):
            async with TransactionWriter.join("v1.x.y", bootstrap_servers=plain.bootstrap):
                pass


def test_receipts_travel_as_text_and_as_json() -> None:
    receipt = WriterReceipt(4711, 3)
    assert WriterReceipt.parse(str(receipt)) == receipt
    assert WriterReceipt(*json.loads(json.dumps(receipt))) == receipt
    for text in ("", "w1.1", "w2.1.0", "w1.a.0", "w1.1.0.0", "w1.-1.0"):
        with pytest.raises(ValueError, match="receipt"):
            WriterReceipt.parse(text)
