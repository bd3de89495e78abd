"""The producer: records written to Kafka are read unchanged, and Kafka's refusals are reported by their own names."""

from __future__ import annotations

import asyncio

import pytest

from ottla import TOPIC_RESOURCE, Admin, Consumer, ErrorCode, KafkaError, Producer, TopicPartition
from tests.compat.conftest import Topics
from tests.compat.reading import read

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
async def test_every_compression_is_stored_and_read(
    bootstrap: str, topics: Topics, codec: str | None
) -> None:
    topic, values = await topics(), [b"%d " % number * 50 for number in range(500)]
    async with Producer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5) as producer:
        placed = await asyncio.gather(*[await producer.send(topic, value) for value in values])
    assert [metadata.offset for metadata in placed] == list(range(500))
    assert [record.value for record in await read(bootstrap, topic, 500)] == values


async def test_an_idempotent_producer_is_known_by_the_leader(
    bootstrap: str, topics: Topics, admin: Admin
) -> None:
    topic = await topics()
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(3):
            await producer.send_and_wait(topic, b"v")
    partition = TopicPartition(topic, 0)
    producers = (await admin.describe_producers([partition]))[partition]
    assert not isinstance(producers, KafkaError)
    assert [
        (producer.producer_epoch, producer.last_sequence, producer.transaction_start)
        for producer in producers
    ] == [(0, 2, -1)]


async def test_keys_headers_timestamps_and_tombstones_arrive_as_they_were(
    bootstrap: str, topics: Topics
) -> None:
    topic = await topics()
    headers = [("trace", b"4711"), ("trace", None), ("grüße", b"")]
    async with Producer(bootstrap_servers=bootstrap) as producer:
        metadata = await producer.send_and_wait(
            topic, b"value", b"key", timestamp_ms=1_700_000_000_123, headers=headers
        )
        await producer.send_and_wait(topic, None, b"key")
        await producer.send_and_wait(topic, b"", b"")
    assert metadata.timestamp_ms == 1_700_000_000_123
    first, second, third = await read(bootstrap, topic, 3)
    assert (first.key, first.value, first.timestamp_ms) == (b"key", b"value", 1_700_000_000_123)
    assert list(first.headers) == headers
    assert (second.key, second.value, list(second.headers)) == (b"key", None, [])
    assert (third.key, third.value) == (b"", b"")


async def test_the_time_is_the_brokers_where_the_topic_says_so(bootstrap: str, topics: Topics) -> None:
    topic = await topics(message_timestamp_type="LogAppendTime")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        metadata = await producer.send_and_wait(topic, b"v", timestamp_ms=5)
    (record,) = await read(bootstrap, topic, 1)
    assert metadata.timestamp_ms == record.timestamp_ms > 1_700_000_000_000


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_acks_is_taken(bootstrap: str, topics: Topics, acks: int | str) -> None:
    topic = await topics()
    async with Producer(bootstrap_servers=bootstrap, acks=acks) as producer:
        placed = [await producer.send_and_wait(topic, b"%d" % number) for number in range(3)]
    assert [metadata.offset for metadata in placed] == ([-1] * 3 if acks == 0 else [0, 1, 2])
    assert [record.value for record in await read(bootstrap, topic, 3)] == [b"0", b"1", b"2"]


async def test_what_is_refused_is_told_by_its_name_and_the_rest_goes_on(
    bootstrap: str, topics: Topics, admin: Admin
) -> None:
    topic = await topics(max_message_bytes="1000")
    async with Producer(bootstrap_servers=bootstrap, max_block_ms=500) as producer:
        with pytest.raises(KafkaError) as refused:
            await producer.send_and_wait(topic, b"x" * 5_000)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert (await producer.send_and_wait(topic, b"small")).offset == 0
        with pytest.raises(KafkaError) as refused:
            await producer.send(topic, b"v", partition=7)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError) as refused:
            await producer.send("not a topic's name", b"v")
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [record.value for record in await read(bootstrap, topic, 1)] == [b"small"]


@pytest.mark.parametrize("transactional", [False, True])
async def test_batches_that_are_too_large_are_split_also_when_the_limit_shrinks(
    bootstrap: str, topics: Topics, admin: Admin, group: str, transactional: bool
) -> None:
    topic = await topics(max_message_bytes="100000")
    values = [b"%d-" % number + bytes(2_000) for number in range(600)]
    async with Producer(
        bootstrap_servers=bootstrap, linger_ms=5, transactional_id=group if transactional else None
    ) as producer:
        if transactional:
            await producer.begin_transaction()
        sent = [await producer.send(topic, value) for value in values[:300]]
        await admin.alter_configs(TOPIC_RESOURCE, topic, {"max.message.bytes": "20000"})
        sent += [await producer.send(topic, value) for value in values[300:]]
        assert [(await delivery).offset for delivery in sent] == list(range(600))
        if transactional:
            await producer.commit_transaction()
    assert [record.value for record in await read(bootstrap, topic, 600)] == values


async def test_a_partition_that_was_added_is_written_and_read_at_once(
    bootstrap: str, topics: Topics, admin: Admin
) -> None:
    topic = await topics()
    added = TopicPartition(topic, 1)
    async with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        await producer.send_and_wait(topic, b"known", partition=0)
        consumer.assign([added])
        await admin.create_partitions(topic, 2)
        async with asyncio.timeout(10):
            assert (await producer.send_and_wait(topic, b"v", partition=1)).offset == 0
            assert (await consumer.getone()).value == b"v"
            assert (await consumer.end_offsets([added]))[added] == 1


async def test_more_in_sync_replicas_than_there_are_replicas_cannot_be_asked_for(
    bootstrap: str, topics: Topics
) -> None:
    topic = await topics(min_insync_replicas="2")  # counts as 1 if there is one replica
    async with Producer(bootstrap_servers=bootstrap) as producer:
        assert (await producer.send_and_wait(topic, b"v")).offset == 0


async def test_topics_come_to_be_by_being_written_to(bootstrap: str, group: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        assert (await producer.send_and_wait(f"new-{group}", b"v")).offset == 0


async def test_keys_go_where_confluents_murmur2_puts_them(bootstrap: str, topics: Topics) -> None:
    """Java's client does so, and librdkafka with `partitioner=murmur2_random`."""
    from confluent_kafka import Producer as Confluent

    topic, keys = await topics(7), [b"customer-%d" % number for number in range(50)]
    theirs: dict[bytes, int] = {}
    confluent = Confluent({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        confluent.produce(
            topic, b"", key, on_delivery=lambda _, record: theirs.update({record.key(): record.partition()})
        )
    assert await asyncio.to_thread(confluent.flush, 30) == 0
    async with Producer(bootstrap_servers=bootstrap) as producer:
        mine = {key: (await producer.send_and_wait(topic, b"", key)).partition for key in keys}
    assert mine == theirs
