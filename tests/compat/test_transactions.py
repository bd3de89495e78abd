"""Transactions: atomic, including offsets, and closed to fenced zombies."""

from __future__ import annotations

import asyncio

import pytest

from ottla import Admin, Consumer, KafkaError, Producer, ProducerFenced, TopicPartition, TransactionFailed
from tests.compat.conftest import Topics
from tests.compat.reading import DEADLINE_S, eventually, read_to_the_end


async def test_many_in_a_row_some_of_them_aborted(bootstrap: str, topics: Topics) -> None:
    topic, expected = await topics(3), list[bytes]()
    async with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        for number in range(40):
            values = [b"%d-%d" % (number, index) for index in range(number % 7 * 10)]
            try:
                async with producer.transaction():
                    for index, value in enumerate(values):
                        await producer.send(topic, value, partition=index % 3)
                    if number % 4 == 3:
                        raise LookupError
            except LookupError:
                continue
            expected += values
    found = await read_to_the_end(bootstrap, topic, isolation="read_committed")
    assert sorted(filter(None, found)) == sorted(expected)


async def test_a_pipeline_copies_exactly_once(
    bootstrap: str, topics: Topics, group: str, admin: Admin
) -> None:
    source, target = await topics(2), await topics(2)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(200):
            await producer.send(source, b"%d" % number, partition=number % 2)

    async def copy(until: int, *, breaks: bool) -> None:
        """Copy like a worker that may die with an open transaction."""
        copied = 0
        async with (
            Consumer(
                source,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                heartbeat_interval_ms=100,
                max_poll_records=15,
            ) as consumer,
            Producer(bootstrap_servers=bootstrap, transactional_id=group) as producer,
        ):
            while copied < until:
                batch = await consumer.getmany(timeout_ms=DEADLINE_S * 1_000)
                async with producer.transaction():
                    for record in (record for records in batch.values() for record in records):
                        await producer.send(target, record.value)
                        copied += 1
                    offsets = {partition: records[-1].offset + 1 for partition, records in batch.items()}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                    if breaks and copied >= until:
                        raise LookupError

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(LookupError):
            await copy(60, breaks=True)
        left = 200 - sum((await admin.committed_offsets(group)).values())
        await copy(left, breaks=False)
    found = await read_to_the_end(bootstrap, target, isolation="read_committed")
    assert sorted(found, key=lambda value: int(value or b"-1")) == [b"%d" % number for number in range(200)]
    assert await admin.committed_offsets(group) == {TopicPartition(source, index): 100 for index in (0, 1)}


async def test_offsets_of_a_member_of_the_past_do_not_count(
    bootstrap: str, topics: Topics, group: str, admin: Admin
) -> None:
    topic = await topics()
    here = TopicPartition(topic, 0)
    options = {"bootstrap_servers": bootstrap, "group_id": group}
    async with Producer(bootstrap_servers=bootstrap, transactional_id=group) as producer:
        async with Consumer(topic, **options) as consumer:
            await eventually(lambda: bool(consumer.assignment()), "a member")
            past = consumer.group_metadata()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({here: 3}, past)
        async with Consumer(topic, **options) as consumer:
            await eventually(lambda: bool(consumer.assignment()), "another member")
            with pytest.raises(TransactionFailed):
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({here: 7}, past)
            assert await admin.committed_offsets(group) == {here: 3}
            async with producer.transaction():
                await producer.send_offsets_to_transaction({here: 8}, consumer)
    assert await admin.committed_offsets(group) == {here: 8}


async def test_whoever_takes_over_an_id_fences_its_owner(bootstrap: str, topics: Topics) -> None:
    topic = await topics()
    async with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as former:
        await former.begin_transaction()
        await former.send_and_wait(topic, b"former")
        async with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as successor:
            async with successor.transaction():
                await successor.send(topic, b"successor")
            with pytest.raises(ProducerFenced):
                await former.send_and_wait(topic, b"zombie")
            with pytest.raises(ProducerFenced):
                await former.abort_transaction()
            async with successor.transaction():  # the zombie's last words have not fenced it
                await successor.send(topic, b"successor again")
    found = await read_to_the_end(bootstrap, topic, isolation="read_committed")
    assert found == [b"successor", b"successor again"]


async def test_a_transaction_that_is_open_for_too_long_is_aborted(bootstrap: str, topics: Topics) -> None:
    topic = await topics()
    async with Producer(
        bootstrap_servers=bootstrap, transactional_id=topic, transaction_timeout_ms=500
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"forgotten")
        async with Consumer(topic, bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
            here = TopicPartition(topic, 0)
            async with asyncio.timeout(DEADLINE_S):
                while (await consumer.end_offsets([here]))[here] == 0:  # the last stable offset
                    await asyncio.sleep(0.1)
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"in time")
    assert await read_to_the_end(bootstrap, topic, isolation="read_committed") == [b"in time"]


async def test_transactions_are_listed_and_described(bootstrap: str, topics: Topics, admin: Admin) -> None:
    topic = await topics()
    here = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"v")
        (listed,) = [
            transaction
            for transaction in await admin.list_transactions()
            if transaction.transactional_id == topic
        ]
        assert listed.state == "Ongoing"
        assert listed in await admin.list_transactions(states=["Ongoing"], pattern="t-.*")
        assert listed not in await admin.list_transactions(open_longer_than_ms=3_600_000)
        described = (await admin.describe_transactions([topic]))[topic]
        assert not isinstance(described, KafkaError)
        assert (described.state, described.partitions, described.timeout_ms) == ("Ongoing", (here,), 60_000)
        producers = (await admin.describe_producers([here]))[here]
        assert not isinstance(producers, KafkaError)
        assert [(known.producer_id, known.transaction_start) for known in producers] == [
            (listed.producer_id, 0)
        ]
        assert await admin.find_hanging([here]) == []
        await producer.abort_transaction()
    unknown = (await admin.describe_transactions(["nobody's"]))["nobody's"]
    assert isinstance(unknown, KafkaError)
