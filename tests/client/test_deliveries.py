"""The result of `send`: it acts like a future, and the short cut into a batch is invisible."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import weakref
from collections import defaultdict

import pytest

from ottla.client.failures import ClientClosed, OutOfTurn
from ottla.client.producer import Producer
from ottla.client.producing import appending_in_python
from ottla.client.producing.appending import DeliveryFields
from ottla.client.producing.deliveries import BatchResult, RecordDelivery
from ottla.client.producing.partitioner import murmur2_partition
from ottla.protocol.errors import KafkaError
from tests.client.fake_cluster import Fault, fake_cluster
from tests.client.fake_transactions import transactional_cluster

HOUR_MS = 3_600_000


async def test_a_delivery_is_awaited_like_a_future() -> None:
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        first, second, third, fourth = [await producer.send("t", b"%d" % n) for n in range(4)]
        assert asyncio.isfuture(first)
        placed = await asyncio.gather(first, second)
        assert [metadata.offset for metadata in placed] == [0, 1]
        done, pending = await asyncio.wait({first, third}, timeout=25)  # type: ignore[type-var]
        assert (done, pending) == ({first, third}, set())
        assert (await asyncio.wait_for(fourth, 25)).offset == 3
        assert await fourth == await asyncio.shield(fourth) == fourth.result()
        assert (fourth.exception(), fourth.cancelled(), fourth.done()) == (None, False, True)
        late = await producer.send("t", b"late")
        assert (await asyncio.create_task(waits(late))).offset == 4
        assert {(await future).offset for future in asyncio.as_completed([late, second])} == {4, 1}


@pytest.mark.skipif(
    DeliveryFields is appending_in_python.DeliveryFields, reason="Python's own objects are always looked at"
)
async def test_the_collector_looks_at_deliveries_only_where_somebody_waits() -> None:
    """The collector would otherwise scan the whole program repeatedly, and block the loop."""
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"the first")
        before = gc.get_stats()[2]["collections"]
        deliveries = [await producer.send("t", b"") for _ in range(50_000)]
        assert not any(gc.is_tracked(delivery) for delivery in deliveries[1:])
        assert gc.get_stats()[2]["collections"] - before <= 1
        assert (await deliveries[-1]).offset == 50_000


async def test_a_delivery_that_its_own_callback_holds_is_collected() -> None:
    class Held:
        delivery: RecordDelivery

        def told(self, _: RecordDelivery) -> None: ...

    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"the first")
        batch = BatchResult(asyncio.get_running_loop(), "t", 0)
        held = Held()
        held.delivery = await producer.send("t", b"")
        await producer.flush()
        held.delivery.batch = batch  # that is never settled
        held.delivery.add_done_callback(held.told)
        gone = weakref.ref(held)
        del held, batch
        gc.collect()
        assert gone() is None


async def waits(delivery: RecordDelivery) -> object:
    return await delivery


async def test_callbacks_are_called_by_the_loop_in_their_order_and_context() -> None:
    calls: list[object] = []
    where = contextvars.ContextVar("where", default="outside")
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        delivery = await producer.send("t", b"a")
        context = contextvars.copy_context()
        context.run(where.set, "inside")
        delivery.add_done_callback(lambda done: calls.append((1, done is delivery, where.get())))
        delivery.add_done_callback(
            lambda done: calls.append((2, done is delivery, where.get())), context=context
        )
        unwanted = calls.append
        delivery.add_done_callback(unwanted)
        assert (delivery.remove_done_callback(unwanted), delivery.remove_done_callback(unwanted)) == (1, 0)
        await delivery
        await asyncio.sleep(0)
        assert calls == [(1, True, "outside"), (2, True, "inside")]
        delivery.add_done_callback(lambda _: calls.append(3))
        assert 3 not in calls
        await asyncio.sleep(0)
        assert 3 in calls


async def test_cancelling_ends_the_waiting_and_not_the_sending() -> None:
    async with (
        fake_cluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=HOUR_MS) as producer,
    ):
        delivery, other = await producer.send("t", b"a"), await producer.send("t", b"b")
        with pytest.raises(asyncio.InvalidStateError):
            delivery.result()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.01)
        assert (delivery.cancelled(), delivery.done(), delivery.cancel()) == (True, True, False)
        with pytest.raises(asyncio.CancelledError):
            delivery.result()
        assert not other.done()
        await producer.flush()
        assert (other.result().offset, cluster.logs[0].values) == (1, [b"a", b"b"])
        assert delivery.cancelled()


async def test_a_task_that_waits_can_be_cancelled() -> None:
    async with (
        fake_cluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=HOUR_MS) as producer,
    ):
        task = asyncio.create_task(waits(await producer.send("t", b"a")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_failure_is_told_to_all_of_the_batch() -> None:
    async with (
        fake_cluster(fault=lambda: Fault.INVALID_TIMESTAMP) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        deliveries = [await producer.send("t", b"%d" % n) for n in range(3)]
        found = await asyncio.gather(*deliveries, return_exceptions=True)
        assert all(isinstance(outcome, KafkaError) and outcome is found[0] for outcome in found)
        for delivery in deliveries:
            assert delivery.exception() is found[0]
            with pytest.raises(KafkaError, match="INVALID_TIMESTAMP"):
                await delivery


async def test_another_loop_cannot_wait_for_it() -> None:
    async with (
        fake_cluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=HOUR_MS) as producer,
    ):
        delivery = await producer.send("t", b"a")

        def elsewhere() -> None:
            asyncio.run(waits(delivery))  # type: ignore[arg-type]

        with pytest.raises(RuntimeError, match="different loop"):
            await asyncio.to_thread(elsewhere)


async def test_both_ways_into_a_batch_keep_the_order() -> None:
    """Some headers, timestamps and sizes take the full path, between records that do not."""
    async with (
        fake_cluster(partitions=3) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, batch_size=2_000) as producer,
    ):
        sent: dict[int, list[bytes]] = defaultdict(list)
        deliveries = []
        for number in range(3_000):
            value = b"%d" % number * (1 + number % 7)
            key = b"%d" % (number % 11)
            headers = [("h", b"")] if number % 5 == 0 else ()
            delivery = await producer.send("t", value, key, headers=headers)
            sent[murmur2_partition(key, 3)].append(value)
            deliveries.append((delivery, value))
        await producer.flush()
        assert [log.values for log in cluster.logs] == [sent[partition] for partition in range(3)]
        for delivery, value in deliveries:
            where = delivery.result()
            assert cluster.logs[where.partition].values[where.offset] == value


async def test_the_loop_gets_its_turn_long_before_a_large_batch_is_full() -> None:
    async with fake_cluster() as cluster:
        options = {"batch_size": 1_000_000, "linger_ms": HOUR_MS}
        async with Producer(bootstrap_servers=cluster.bootstrap, **options) as producer:
            sent = longest = since = 0

            async def others() -> None:
                nonlocal longest, since
                while True:
                    longest, since = max(longest, sent - since), sent
                    await asyncio.sleep(0)

            task = asyncio.create_task(others())
            for _ in range(10_000):
                await producer.send("t", b"x")
                sent += 1
            task.cancel()
            assert 0 < longest <= 1_001


async def test_what_many_wait_for_each_for_his_own_travels_together() -> None:
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"first")
        before = cluster.produce_requests
        placed = await asyncio.gather(*(producer.send_and_wait("t", b"%d" % n) for n in range(100)))
        assert [metadata.offset for metadata in placed] == list(range(1, 101))
        assert cluster.produce_requests - before <= 3


async def test_a_stopped_producer_takes_nothing_however_open_its_batches_are() -> None:
    async with fake_cluster() as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=HOUR_MS)
        await producer.start()
        await producer.send("t", b"a")
        stopping = asyncio.create_task(producer.stop())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await producer.send("t", b"b")
        await stopping
        assert cluster.logs[0].values == [b"a"]


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_nothing_slips_into_a_transaction_that_ends(end: str) -> None:
    async with (
        transactional_cluster(2) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id="me", linger_ms=HOUR_MS) as producer,
    ):
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        await producer.send("t", b"b", partition=0)
        ending = producer.commit_transaction() if end == "commit" else producer.abort_transaction()
        task = asyncio.create_task(ending)
        await asyncio.sleep(0)
        with pytest.raises(OutOfTurn):
            await producer.send("t", b"c", partition=0)
        await task


async def test_whoever_keeps_a_delivery_keeps_no_record() -> None:
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"first")
        values = [bytes(1_000 + number) for number in range(3)]
        before = [sys.getrefcount(value) for value in values]
        deliveries = [await producer.send("t", value) for value in values]
        assert [sys.getrefcount(value) for value in values] > before
        await producer.flush()
        assert [sys.getrefcount(value) for value in values] == before
        assert [delivery.result().offset for delivery in deliveries] == [1, 2, 3]
