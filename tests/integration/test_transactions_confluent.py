"""Consume, transform, produce with confluent-kafka: records and their source offsets count together, or not at all."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.conftest import create

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

DEADLINE_S = 60.0
RECORDS = 60
AT_ONCE = 7


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:10]}"


def fill(bootstrap: str, topic: str) -> list[bytes]:
    """Write records to a topic of three partitions."""
    values = [b"%d" % number for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(DEADLINE_S) == 0
    return values


def member(bootstrap: str, group: str, *topics: str) -> Consumer:
    """Return a consumer without auto-commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
        }
    )
    if topics:
        consumer.subscribe(list(topics))
    return consumer


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(DEADLINE_S)
    return producer


def until(found: Callable[[], object], consumer: Consumer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not found():
        assert time.monotonic() < deadline
        consumer.poll(0.1)


def some(consumer: Consumer) -> list[Message]:
    """Return some records, or none if there are no more for now."""
    messages = consumer.consume(AT_ONCE, 0.2)
    for message in messages:
        if (error := message.error()) is not None:
            raise KafkaException(error)
    return messages


def committed(consumer: Consumer, topic: str) -> list[int]:
    """Return the committed offset of each of three partitions, 0 if there is none."""
    found = consumer.committed([TopicPartition(topic, index) for index in range(3)], DEADLINE_S)
    return [max(0, partition.offset) for partition in found]


def everything(bootstrap: str, topic: str) -> list[bytes]:
    """Return all committed values in a topic of three partitions."""
    consumer = member(bootstrap, unique("reader"))
    values: list[bytes] = []
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), DEADLINE_S)[1] for p in range(3)]
        parts = [TopicPartition(topic, p, 0) for p in range(3)]
        consumer.assign(parts)
        deadline = time.monotonic() + DEADLINE_S
        while any(
            partition.offset < ends[partition.partition]
            for partition in consumer.position(parts)
            if ends[partition.partition]
        ):
            assert time.monotonic() < deadline
            values += [message.value() or b"" for message in some(consumer)]
            if not any(ends):
                break
    finally:
        consumer.close()
    return values


def test_what_is_processed_counts_once_whatever_is_aborted(bootstrap: str, admin: AdminClient) -> None:
    source, target, group = create(admin, 3), create(admin, 3), unique("movers")
    values = fill(bootstrap, source)
    consumer, producer = member(bootstrap, group, source), transactional(bootstrap, unique("mover"))
    before = [0, 0, 0]
    rounds = 0
    while sum(before) < RECORDS:
        messages = some(consumer)
        if not messages:
            continue
        rounds += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        after = before.copy()
        for message in messages:
            after[message.partition() or 0] = (message.offset() or 0) + 1
        reached = [TopicPartition(source, index, offset) for index, offset in enumerate(after)]
        producer.send_offsets_to_transaction(reached, consumer.consumer_group_metadata(), DEADLINE_S)
        if rounds % 3:
            producer.commit_transaction(DEADLINE_S)
            assert committed(consumer, source) == after, "at once, for a client that knows of the end"
            before = after
        else:
            producer.abort_transaction(DEADLINE_S)
            assert committed(consumer, source) == before
            for index, offset in enumerate(before):
                consumer.seek(TopicPartition(source, index, offset))
    consumer.close()
    assert rounds > 3, "something was aborted"
    assert sorted(everything(bootstrap, target)) == sorted(values)


def test_whoever_takes_over_waits_for_offsets_of_an_open_transaction(
    bootstrap: str, admin: AdminClient
) -> None:
    """The next member would otherwise process the records of that transaction again (KIP-447)."""
    source, group = create(admin, 3), unique("movers")
    fill(bootstrap, source)
    consumer, producer = member(bootstrap, group, source), transactional(bootstrap, unique("mover"))
    until(consumer.assignment, consumer)
    producer.begin_transaction()
    where = [TopicPartition(source, 0, 5)]
    producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), DEADLINE_S)
    with pytest.raises(KafkaException) as early:
        consumer.committed([TopicPartition(source, 0)], 1.0)
    assert early.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
    producer.commit_transaction(DEADLINE_S)
    assert committed(consumer, source) == [5, 0, 0]
    consumer.close()


def test_a_member_of_a_former_generation_commits_nothing(bootstrap: str, admin: AdminClient) -> None:
    source, target, group = create(admin, 3), create(admin, 3), unique("movers")
    fill(bootstrap, source)
    first, producer = member(bootstrap, group, source), transactional(bootstrap, unique("mover"))
    until(first.assignment, first)
    former = first.consumer_group_metadata()
    second = member(bootstrap, group, source)
    deadline = time.monotonic() + DEADLINE_S
    while not second.assignment():
        assert time.monotonic() < deadline
        first.poll(0.05)
        second.poll(0.05)
    producer.begin_transaction()
    producer.produce(target, b"of a zombie", partition=0)
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(source, 0, 5)], former, DEADLINE_S)
    error = refused.value.args[0]
    assert (error.code(), error.txn_requires_abort()) == (KafkaError.ILLEGAL_GENERATION, True)
    producer.abort_transaction(DEADLINE_S)
    assert committed(first, source) == [0, 0, 0]
    assert everything(bootstrap, target) == []
    first.close()
    second.close()
