"""The consumer without a group's help, or with no more of it than offsets that are kept."""

from __future__ import annotations

import asyncio

import pytest

from ottla import EARLIEST, Admin, Consumer, ErrorCode, KafkaError, NewTopic, Producer, TopicPartition
from tests.compat.conftest import Topics
from tests.compat.reading import DEADLINE_S, read_to_the_end


async def fill(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    """Write the values "0", "1", ..., with timestamps one second apart."""
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.send(
                topic, b"%d" % number, partition=partition, timestamp_ms=1_700_000_000_000 + 1_000 * number
            )


async def next_value(consumer: Consumer) -> bytes | None:
    async with asyncio.timeout(DEADLINE_S):
        return (await consumer.getone()).value


async def test_it_seeks_by_offset_by_time_and_to_both_ends(bootstrap: str, topics: Topics) -> None:
    topic = await topics()
    await fill(bootstrap, topic, 20)
    here = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([here])
        consumer.seek(here, 7)
        assert await next_value(consumer) == b"7"
        assert await consumer.position(here) == 8
        consumer.seek_to_beginning(here)
        assert await next_value(consumer) == b"0"
        consumer.seek_to_timestamp(1_700_000_004_500, here)
        assert await next_value(consumer) == b"5"
        consumer.seek_to_end(here)
        assert await consumer.position(here) == 20
        assert await consumer.lag(here) == 0


async def test_offsets_are_found_by_time(bootstrap: str, topics: Topics, admin: Admin) -> None:
    topic = await topics(2)
    await fill(bootstrap, topic, 10)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        found = await consumer.offsets_for_times({full: 1_700_000_002_500, empty: 0})
        assert found == {full: 3, empty: None}
        assert await consumer.offsets_for_times({full: 1_800_000_000_000}) == {full: None}
        assert await consumer.beginning_offsets([full, empty]) == {full: 0, empty: 0}
        assert await consumer.end_offsets([full, empty]) == {full: 10, empty: 0}
    assert await admin.list_offsets({full: 1_700_000_002_500, empty: EARLIEST}) == {full: 3, empty: 0}


async def test_paused_partitions_wait(bootstrap: str, topics: Topics) -> None:
    topic = await topics(2)
    for partition in (0, 1):
        await fill(bootstrap, topic, 5, partition)
    async with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.pause(TopicPartition(topic, 0))
        async with asyncio.timeout(DEADLINE_S):
            first = [await consumer.getone() for _ in range(5)]
        assert {record.partition for record in first} == {1}
        consumer.resume(TopicPartition(topic, 0))
        async with asyncio.timeout(DEADLINE_S):
            rest = [await consumer.getone() for _ in range(5)]
        assert [record.value for record in rest] == [b"0", b"1", b"2", b"3", b"4"]


async def test_the_log_start_moves_and_readers_are_told_or_moved(
    bootstrap: str, topics: Topics, admin: Admin
) -> None:
    topic = await topics()
    await fill(bootstrap, topic, 10)
    here = TopicPartition(topic, 0)
    assert await admin.delete_records({here: 6}) == {here: 6}
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([here])
        consumer.seek(here, 2)
        with pytest.raises(KafkaError) as gone:
            await next_value(consumer)
        assert gone.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([here])
        consumer.seek(here, 2)
        assert await next_value(consumer) == b"6"


async def test_offsets_are_kept_without_members(bootstrap: str, topics: Topics, group: str) -> None:
    topic = await topics(2)
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await fill(bootstrap, topic, 5)
    async with Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.assign([here, there])
        await consumer.commit({here: 3})
        assert await consumer.committed(here) == 3
        assert await consumer.committed(there) is None
    async with Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.assign([here])
        assert await next_value(consumer) == b"3"


async def test_patterns_find_topics_that_come_later(bootstrap: str, admin: Admin, group: str) -> None:
    await admin.create_topics([NewTopic(f"{group}.a", 1), NewTopic(f"x{group}.b", 1)])
    async with Consumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", metadata_max_age_ms=200
    ) as consumer:
        consumer.subscribe(pattern=rf"{group}\..*")
        await fill(bootstrap, f"{group}.a", 1)
        assert await next_value(consumer) == b"0"
        await admin.create_topics([NewTopic(f"{group}.late", 1)])
        await fill(bootstrap, f"{group}.late", 1)
        async with asyncio.timeout(DEADLINE_S):
            while (await consumer.getone()).topic != f"{group}.late":
                pass  # records not committed before the rebalance are read again
        assert consumer.subscription() == {f"{group}.a", f"{group}.late"}


async def test_committed_records_alone_are_read_where_that_is_asked(bootstrap: str, topics: Topics) -> None:
    topic = await topics()
    async with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        async with producer.transaction():
            await producer.send(topic, b"committed")
        with pytest.raises(LookupError):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"aborted")
                raise LookupError
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open")
        assert await read_to_the_end(bootstrap, topic, isolation="read_committed") == [b"committed"]
        assert await read_to_the_end(bootstrap, topic, isolation="read_uncommitted") == [
            b"committed",
            b"aborted",
            b"open",
        ]
        await producer.commit_transaction()
    assert await read_to_the_end(bootstrap, topic, isolation="read_committed") == [b"committed", b"open"]


async def test_records_larger_than_a_fetch_are_read(bootstrap: str, topics: Topics) -> None:
    topic = await topics()
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(topic, b"x" * 500_000)
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=1_000,
        fetch_max_bytes=1_000,
    ) as consumer:
        assert await next_value(consumer) == b"x" * 500_000


async def test_a_topic_that_is_not_there_is_named(bootstrap: str) -> None:
    with pytest.raises(KafkaError) as refused:
        async with Consumer("no topic has this name", bootstrap_servers=bootstrap, request_timeout_ms=1_000):
            pass
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
