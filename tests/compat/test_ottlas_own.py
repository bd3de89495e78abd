"""Features of Ottla alone are refused by Kafka with a clear error, and the client goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from benchmarks.clusters import Cluster
from ottla import Admin, Consumer, Producer, TransactionWriter, VersionUnsupported
from tests.compat.reading import read_to_the_end


@pytest.fixture
async def topic(kafka: Cluster, group: str) -> str:
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        await producer.send_and_wait(group, b"first")
    return group


@pytest.fixture
async def producer(kafka: Cluster, topic: str) -> AsyncIterator[Producer]:
    async with Producer(bootstrap_servers=kafka.bootstrap, transactional_id=topic) as producer:
        yield producer


async def test_transactions_that_others_join(kafka: Cluster, topic: str, producer: Producer) -> None:
    with pytest.raises(VersionUnsupported, match="BeginTransaction"):
        await producer.begin()
    async with producer.transaction():
        await producer.send(topic, b"by oneself")
    found = await read_to_the_end(kafka.bootstrap, topic, isolation="read_committed")
    assert found == [b"first", b"by oneself"]


async def test_application_versions(topic: str, producer: Producer) -> None:
    with pytest.raises(VersionUnsupported):
        async with producer.transaction(app_version=4):
            raise AssertionError("the block must not begin")
    assert producer.last_app_version is None


async def test_writers_with_a_token_of_another_cluster(kafka: Cluster, ours: Cluster, topic: str) -> None:
    async with Producer(bootstrap_servers=ours.bootstrap, transactional_id=topic) as owner:
        transaction = await owner.begin()
        with pytest.raises(VersionUnsupported):
            async with TransactionWriter.join(transaction.token, bootstrap_servers=kafka.bootstrap):
                raise AssertionError("no client can write there")
        await transaction.abort()


async def test_reading_transaction_by_transaction(kafka: Cluster, topic: str) -> None:
    async with Consumer(topic, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        with pytest.raises(VersionUnsupported):
            async with asyncio.timeout(30):
                await anext(consumer.transactions())
        async with asyncio.timeout(30):
            assert (await consumer.getone()).value == b"first"


async def test_ending_and_deleting_transactional_ids(kafka: Cluster, topic: str) -> None:
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        with pytest.raises(VersionUnsupported, match="AbortTransaction"):
            await admin.abort_transaction(topic)
        with pytest.raises(VersionUnsupported, match="DeleteTransactionalId"):
            await admin.delete_transactional_id(topic)
