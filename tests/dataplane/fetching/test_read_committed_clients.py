"""Stock read-committed consumers of a broker that serves few other APIs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from ottla.client.consumer import Consumer
from ottla.dataplane.cluster.listed_brokers import ListedBrokers
from ottla.dataplane.cluster.lost_brokers import LostBrokers
from ottla.dataplane.cluster.topic_creation import TopicCreator, TopicDefaults
from ottla.dataplane.handlers.api_versions import ApiVersionsHandlers
from ottla.dataplane.handlers.list_offsets import ListOffsetsHandlers
from ottla.dataplane.handlers.metadata import MetadataHandlers
from ottla.dataplane.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandlers
from ottla.dataplane.handlers.produce import ProduceHandlers
from ottla.dataplane.server import Server
from ottla.dataplane.server.handler import HandlerTable
from ottla.protocol.messages.metadata_records import BrokerListener, BrokerRecord
from tests.dataplane.handlers.test_metadata import StubQuorum
from tests.dataplane.transactions.closed_gate import closed_gate

from .consumers import LISTENER, OWN_ID, Shelf
from .test_read_committed import ID, Writers

COMMITTED = [b"1 plain", b"3 committed", b"4 committed", b"6 plain", b"7 committed"]
LATER = [b"8 open, then committed", b"9 plain"]


def write(writers: Writers) -> None:
    """Write the records in `COMMITTED`, among others; then those in `LATER`, of which the first is in an open
    transaction.
    """
    writers.write(-1, b"1 plain")
    writers.write(7, b"2 aborted", b"2 aborted too")
    writers.write(8, b"3 committed")
    writers.partition.log.roll(0)
    writers.end(7, commit=False)
    writers.write(7, b"4 committed")
    writers.end(8, commit=True)
    writers.write(8, b"5 aborted")
    writers.write(-1, b"6 plain")
    writers.end(7, commit=True)
    writers.end(8, commit=False)
    writers.write(8, b"7 committed")
    writers.end(8, commit=True)
    writers.write(9, LATER[0])
    writers.write(-1, LATER[1])


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[str, Writers]]:
    shelf = Shelf(directory)
    quorum = StubQuorum()
    quorum.image = shelf.image
    table = HandlerTable(shelf.handlers)
    table.add(ListOffsetsHandlers(shelf.replicas))
    table.add(OffsetForLeaderEpochHandlers(shelf.replicas))
    table.add(ApiVersionsHandlers(table, quorum, OWN_ID))
    creator = TopicCreator(quorum, TopicDefaults(), random.Random(1))
    table.add(
        MetadataHandlers(
            quorum, OWN_ID, creator, ListedBrokers(0, lambda: 0), LostBrokers(lambda: quorum.image)
        )
    )
    server = Server(table)
    # librdkafka takes a broker without Produce for one that is too old for transactions.
    table.add(ProduceHandlers(shelf.replicas, server.purgatory, closed_gate()))
    port = server.listen(LISTENER, "127.0.0.1", 0).port
    listener = BrokerListener(name=LISTENER, host="127.0.0.1", port=port, security_protocol="PLAINTEXT")
    shelf.tell(BrokerRecord(broker_id=OWN_ID, broker_epoch=OWN_ID, listeners=[listener]))
    shelf.create("t", ID, 1)
    server.start()
    try:
        yield f"127.0.0.1:{port}", Writers(shelf.replica("t"))
    finally:
        server.close()
        await shelf.close()


async def test_aiokafka(tmp_path: Path) -> None:
    where = TopicPartition("t", 0)
    async with asyncio.timeout(60), serving(tmp_path) as (address, writers):
        write(writers)
        async with AIOKafkaConsumer(
            bootstrap_servers=address, isolation_level="read_committed", fetch_max_wait_ms=20_000
        ) as consumer:
            consumer.assign([where])
            consumer.seek(where, 0)
            assert [(await consumer.getone()).value for _ in COMMITTED] == COMMITTED
            assert consumer.last_stable_offset(where) == 13 < consumer.highwater(where)
            assert await consumer.end_offsets([where]) == {where: 13}
            assert not await consumer.getmany(timeout_ms=100)
            writers.end(9, commit=True)
            assert [(await consumer.getone()).value for _ in LATER] == LATER


def with_librdkafka(address: str, release: Callable[[], None]) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )

    def polled(count: int) -> list[bytes | None]:
        messages = [consumer.poll(20) for _ in range(count)]
        return [None if message is None else message.value() for message in messages]

    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        assert polled(len(COMMITTED)) == COMMITTED
        assert consumer.poll(0.1) is None
        release()
        assert polled(len(LATER)) == LATER
    finally:
        consumer.close()


def with_kafka_python(address: str, release: Callable[[], None]) -> None:
    where = kafka.TopicPartition("t", 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", consumer_timeout_ms=20_000
    )
    try:
        consumer.assign([where])
        consumer.seek(where, 0)
        assert [next(consumer).value for _ in COMMITTED] == COMMITTED
        assert consumer.end_offsets([where]) == {where: 13}
        release()
        assert [next(consumer).value for _ in LATER] == LATER
    finally:
        consumer.close()


@pytest.mark.parametrize("reads", [with_librdkafka, with_kafka_python])
async def test_clients_with_threads(tmp_path: Path, reads: Callable[[str, Callable[[], None]], None]) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60), serving(tmp_path) as (address, writers):
        write(writers)

        def release() -> None:
            loop.call_soon_threadsafe(lambda: writers.end(9, commit=True))

        await asyncio.to_thread(reads, address, release)


async def test_our_own_client(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path) as (address, writers):
        write(writers)
        reading = Consumer(
            "t", bootstrap_servers=address, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        async with reading as consumer:
            assert [(await consumer.getone()).value for _ in COMMITTED] == COMMITTED
            writers.end(9, commit=True)
            assert [(await consumer.getone()).value for _ in LATER] == LATER
