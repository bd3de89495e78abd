"""A producer that forgets a topic that it has not used for a while, and then uses it again."""

from __future__ import annotations

import asyncio

import pytest

from ottla import sync
from ottla.client.producer import Producer
from tests.client.fake_cluster import FakeCluster, Fault, fake_cluster

IDLE_MS = 20


async def forgotten(producer: Producer, topic: str = "t") -> None:
    """Wait until the producer has forgotten the topic."""
    async with asyncio.timeout(25):
        while topic in producer.parts.cluster.metadata.topics:
            await asyncio.sleep(0.001)


def producer_of(cluster: FakeCluster, **options: object) -> Producer:
    return Producer(
        bootstrap_servers=cluster.bootstrap,
        metadata_max_age_ms=1,
        metadata_max_idle_ms=IDLE_MS,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("idempotent", [True, False])
async def test_records_follow_each_other_though_the_topic_was_forgotten_between(idempotent: bool) -> None:
    """Brokers refuse, or take for a duplicate, a number that does not continue the sequence."""
    sent = [b"%d" % number for number in range(5)]
    async with (
        fake_cluster(brokers=2, partitions=2) as cluster,
        producer_of(cluster, enable_idempotence=idempotent) as producer,
    ):
        for value in sent:
            for partition in range(2):
                await producer.send_and_wait("t", value, partition=partition)
            await forgotten(producer)
        assert [log.values for log in cluster.logs] == [sent, sent]


async def test_a_topic_with_records_that_wait_is_not_forgotten() -> None:
    async with fake_cluster(brokers=1) as cluster, producer_of(cluster) as producer:
        await producer.partitions_for("t")
        cluster.fault = lambda: Fault.NOT_LEADER
        delivery = await producer.send("t", b"1")
        asked = cluster.metadata_requests
        async with asyncio.timeout(25):
            while cluster.metadata_requests < asked + 3 * IDLE_MS:
                assert "t" in producer.parts.cluster.metadata.topics
                await asyncio.sleep(0.001)
        cluster.fault = lambda: Fault.NONE
        await delivery
        assert cluster.logs[0].values == [b"1"]


async def test_threads_send_to_a_topic_that_was_forgotten() -> None:
    def send() -> None:
        with sync.Producer(
            bootstrap_servers=cluster.bootstrap, metadata_max_age_ms=1, metadata_max_idle_ms=IDLE_MS
        ) as producer:
            for number in range(3):
                producer.send("t", b"%d" % number, headers=[("h", b"")]).result(25)
                while producer._writer.steps.knows("t"):
                    pass

    async with fake_cluster(brokers=1) as cluster:
        await asyncio.to_thread(send)
        assert cluster.logs[0].values == [b"0", b"1", b"2"]
