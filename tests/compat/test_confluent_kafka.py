"""Each client reads the other's records, byte for byte, in clusters of both kinds."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka
import pytest

from ottla import Producer
from tests.compat.conftest import Topics
from tests.compat.reading import DEADLINE_S, read

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADERS: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", b""), ("none", None)]
VALUES = [b"%d " % number * 30 for number in range(200)]
STAMP_MS = 1_700_000_000_000


def read_with_confluent_kafka(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.subscribe([topic])
        found = list[Any]()
        while len(found) < count:
            messages = consumer.consume(count - len(found), DEADLINE_S)
            assert messages, f"{len(found)} of {count} within {DEADLINE_S} s"
            found += messages
        assert all(message.error() is None for message in found)
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
async def test_it_reads_what_ours_has_written(bootstrap: str, topics: Topics, codec: str) -> None:
    topic = await topics()
    options = None if codec == "none" else codec
    async with (
        Producer(
            bootstrap_servers=bootstrap, compression_type=options, linger_ms=5, transactional_id=topic
        ) as producer,
        producer.transaction(),
    ):
        for number, value in enumerate(VALUES):
            await producer.send(topic, value, b"k", headers=HEADERS, timestamp_ms=STAMP_MS + number)
    found = await asyncio.to_thread(read_with_confluent_kafka, bootstrap, topic, len(VALUES))
    assert [message.value() for message in found] == VALUES
    assert {message.key() for message in found} == {b"k"}
    assert all(message.headers() == HEADERS for message in found)
    assert [message.timestamp()[1] - STAMP_MS for message in found] == list(range(len(VALUES)))


@pytest.mark.parametrize("codec", CODECS)
async def test_ours_reads_what_it_has_written(bootstrap: str, topics: Topics, codec: str) -> None:
    topic = await topics()

    def write() -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "transactional.id": topic}
        )
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for number, value in enumerate(VALUES):
            producer.produce(topic, value, b"k", headers=HEADERS, timestamp=STAMP_MS + number)
        producer.commit_transaction(DEADLINE_S)

    await asyncio.to_thread(write)
    found = await read(bootstrap, topic, len(VALUES), isolation="read_committed")
    assert [record.value for record in found] == VALUES
    assert {record.key for record in found} == {b"k"}
    assert all(list(record.headers) == HEADERS for record in found)
    assert [record.timestamp_ms - STAMP_MS for record in found] == list(range(len(VALUES)))
