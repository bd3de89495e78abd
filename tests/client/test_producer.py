"""The producer with brokers that fail in every way the protocol allows: order and exactly-once hold."""

from __future__ import annotations

import asyncio
import random

import pytest

from ottla.client.failures import ClientClosed, NoBrokerReachable, RequestTimedOut
from ottla.client.producer import Producer
from ottla.client.producing.departures import BATCHES_MAX
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.producers import InitProducerIdRequest
from tests.client.fake_cluster import Fault, fake_cluster

FINAL = (Fault.INVALID_TIMESTAMP, Fault.REFUSED)
FAULTS = [fault for fault in Fault if fault not in (Fault.NONE, Fault.HANG, *FINAL)]


@pytest.mark.parametrize("seed", range(30))
async def test_every_record_arrives_once_and_in_order_whatever_fails(seed: int) -> None:
    chance = random.Random(seed)

    def fault() -> Fault:
        return chance.choice(FAULTS) if chance.random() < 0.3 else Fault.NONE

    async with fake_cluster(brokers=3, partitions=4, fault=fault) as cluster:
        async with Producer(
            bootstrap_servers=cluster.bootstrap,
            batch_size=chance.choice([200, 1000, 16384]),
            linger_ms=chance.choice([0, 0, 1]),
            retry_backoff_max_ms=5,
        ) as producer:
            sent: list[list[bytes]] = [[] for _ in range(4)]
            deliveries = []
            for number in range(400):
                partition = chance.randrange(4)
                value = b"%d-%d" % (partition, number)
                sent[partition].append(value)
                deliveries.append(await producer.send("t", value, partition=partition))
                if chance.random() < 0.05:
                    await asyncio.sleep(0)
            await producer.flush()
            placed = [delivery.result() for delivery in deliveries]
        assert [log.values for log in cluster.logs] == sent, f"seed {seed}"
        for where, number in zip(placed, range(400), strict=True):
            assert cluster.logs[where.partition].values[where.offset].endswith(b"-%d" % number)


async def test_records_wait_for_a_cluster_that_is_away_while_the_producer_has_no_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records wait for their delivery timeout."""
    async with (
        fake_cluster(brokers=2) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, retry_backoff_max_ms=5) as producer,
    ):
        away = asyncio.Event()

        async def leave(api_key: int) -> None:
            if api_key == InitProducerIdRequest.api_key and not away.is_set():
                away.set()
                await cluster.stop()

        monkeypatch.setattr(cluster, "before_answer", leave)
        delivery = await producer.send("t", b"a", partition=0)
        await away.wait()
        failed, _ = await asyncio.wait({delivery}, timeout=0.5)  # it has been refused many times by then
        assert not failed
        await cluster.restart()
        async with asyncio.timeout(25):
            assert (await delivery).offset == 0


async def test_a_refused_first_batch_is_not_overtaken() -> None:
    """A broker that does not know the producer would take the second as the first, and refuse the first for good."""
    faults = iter([Fault.NOT_ENOUGH_REPLICAS])
    async with (
        fake_cluster(fault=lambda: next(faults, Fault.NONE)) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, batch_size=100, retry_backoff_max_ms=5) as producer,
    ):
        values = [b"%d" % number * 50 for number in range(5)]
        deliveries = [await producer.send("t", value) for value in values]
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == [0, 1, 2, 3, 4]
        assert cluster.logs[0].values == values


async def test_what_was_appended_behind_a_refused_batch_is_not_appended_again() -> None:
    """The batch's number is out of place in the producer's new sequence, but shows the broker that it has the batch."""
    faults = iter([Fault.NONE, Fault.INVALID_TIMESTAMP, Fault.TIMED_OUT_AFTER])
    async with (
        fake_cluster(fault=lambda: next(faults, Fault.NONE)) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, batch_size=100, retry_backoff_max_ms=5) as producer,
    ):
        await producer.send_and_wait("t", b"a")
        refused, behind, last = [await producer.send("t", value * 100) for value in (b"b", b"c", b"d")]
        await producer.flush()
        with pytest.raises(KafkaError, match="INVALID_TIMESTAMP"):
            refused.result()
        assert (behind.result().offset, last.result().offset) == (1, 2)
        assert cluster.logs[0].values == [b"a", b"c" * 100, b"d" * 100]


@pytest.mark.parametrize("seed", range(5))
async def test_without_idempotence_order_holds_and_nothing_is_lost(seed: int) -> None:
    chance = random.Random(seed)

    def fault() -> Fault:
        return chance.choice(FAULTS) if chance.random() < 0.3 else Fault.NONE

    async with fake_cluster(brokers=2, partitions=1, fault=fault) as cluster:
        async with Producer(
            bootstrap_servers=cluster.bootstrap, acks=1, batch_size=200, retry_backoff_max_ms=5
        ) as producer:
            for number in range(200):
                await producer.send("t", b"%d" % number)
        first_seen = list(dict.fromkeys(cluster.logs[0].values))
        assert first_seen == [b"%d" % number for number in range(200)], f"seed {seed}"


async def test_records_sent_together_travel_together() -> None:
    async with fake_cluster() as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send_and_wait("t", b"first")
            before = cluster.produce_requests
            for number in range(100):
                await producer.send("t", b"%d" % number)
            await producer.flush()
        assert cluster.produce_requests - before <= 2


async def test_a_lone_record_lingers_for_company_and_flush_does_not_wait() -> None:
    async with (
        fake_cluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=60_000) as producer,
    ):
        delivery = await producer.send("t", b"x")
        await asyncio.sleep(0.05)
        assert not delivery.done()
        await asyncio.wait_for(producer.flush(), 25)
        assert delivery.result().offset == 0


async def test_a_leader_that_moves_is_followed_at_once() -> None:
    async with (
        fake_cluster(brokers=2) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        await producer.send_and_wait("t", b"a")
        cluster.move_leaders()
        began = asyncio.get_running_loop().time()
        assert (await producer.send_and_wait("t", b"b")).offset == 1
        assert asyncio.get_running_loop().time() - began < 1


async def test_a_leader_that_hangs_is_left_once_another_one_leads() -> None:
    faults = iter([Fault.NONE, Fault.HANG])
    async with (
        fake_cluster(brokers=2, fault=lambda: next(faults, Fault.NONE)) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        await producer.send_and_wait("t", b"a")
        async with asyncio.timeout(25):
            assert (await producer.send_and_wait("t", b"b")).offset == 1
        assert cluster.logs[0].values == [b"a", b"b"]


async def test_a_full_buffer_makes_send_wait() -> None:
    faults = iter([Fault.NONE])
    async with fake_cluster(fault=lambda: next(faults, Fault.NOT_LEADER)) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap, buffer_memory=2000, retry_backoff_max_ms=5)
        await producer.start()
        await producer.send_and_wait("t", b"x")
        deliveries = [await producer.send("t", b"y" * 900) for _ in range(2)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send("t", b"y" * 900), 0.05)
        cluster.fault = lambda: Fault.NONE
        deliveries.append(await asyncio.wait_for(producer.send("t", b"y" * 900), 25))
        await producer.stop()
        assert [delivery.result().offset for delivery in deliveries] == [1, 2, 3]


async def test_a_record_that_nobody_takes_fails_in_time() -> None:
    options = {"delivery_timeout_ms": 100, "retry_backoff_max_ms": 5}
    async with (
        fake_cluster(fault=lambda: Fault.NOT_LEADER) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, **options) as producer,
    ):
        with pytest.raises(RequestTimedOut, match="delivery_timeout_ms"):
            await producer.send_and_wait("t", b"x")
        cluster.fault = lambda: Fault.NONE
        assert (await producer.send_and_wait("t", b"y")).offset == 0


async def test_what_is_not_sent_fails_when_the_producer_is_closed_hard() -> None:
    async with fake_cluster(fault=lambda: Fault.NOT_LEADER) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap, retry_backoff_max_ms=5)
        await producer.start()
        delivery = await producer.send("t", b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.stop(), 0.1)
        with pytest.raises(ClientClosed):
            delivery.result()
        with pytest.raises(ClientClosed):
            await producer.send("t", b"x")


async def test_without_acks_nothing_is_waited_for() -> None:
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap, acks=0) as producer:
        assert (await producer.send_and_wait("t", b"x")).offset == -1


async def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="acks is"):
        Producer(acks=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd"):
        Producer(compression_type="lzma")
    with pytest.raises(ValueError, match="idempotence needs"):
        Producer(acks=1, enable_idempotence=True)
    with pytest.raises(ValueError, match="is no bootstrap server"):
        Producer(bootstrap_servers="localhost:port")
    with pytest.raises(NoBrokerReachable, match=r"127\.0\.0\.1:1"):
        await Producer(bootstrap_servers="127.0.0.1:1").start()
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        with pytest.raises(KafkaError, match="max_request_size"):
            await producer.send("t", b"x" * 2_000_000)


async def test_no_request_has_more_batches_than_brokers_take() -> None:
    """Each batch may belong to another topic, and a request may have 10,000 elements.

    Otherwise a broker refuses all of it.
    """
    partitions = 2 * BATCHES_MAX + 500
    async with (
        fake_cluster(partitions=partitions) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=60_000) as producer,
    ):
        deliveries = [await producer.send("t", b"x", partition=number) for number in range(partitions)]
        await producer.flush()
        assert [delivery.result().partition for delivery in deliveries] == list(range(partitions))
    assert all(log.values == [b"x"] for log in cluster.logs)
    assert cluster.batches_at_once <= BATCHES_MAX < 5_000
