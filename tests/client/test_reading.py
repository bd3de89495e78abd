"""The records that a program reads, and those that count as finished, with a real cluster: failing deserializers,
failing programs, and programs that do not come back.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

import ottla.sync
from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.failures import RequestTimedOut, SerializationFailed, TransactionFailed
from ottla.client.producer import Producer
from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.client.listeners import KeptEvents
from tests.cluster import RunningCluster, running_cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    directory = tmp_path_factory.mktemp("reading")
    with running_cluster(
        directory, quorum=1, brokers=1, settings=settings, arguments=("--combined",)
    ) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", "-").replace("]", "")


async def write(cluster: RunningCluster, topic: str, *values: bytes | None, partitions: int = 1) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, key=b"%d" % number, partition=number % partitions)


def reader(cluster: RunningCluster, topic: str, **options: Any) -> Consumer:
    return Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
        **options,
    )


async def committed(cluster: RunningCluster, topic: str) -> int | None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        return (await admin.committed_offsets(topic)).get(TopicPartition(topic, 0))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.01)


# deserializers

GOOD_BAD_GOOD = (b"1", b"2", b"{", b"4", None)


async def test_a_record_has_what_the_deserializers_make_of_it(cluster: RunningCluster, topic: str) -> None:
    await write(cluster, topic, b'{"amount": 7}', None)
    async with reader(cluster, topic, key_deserializer=int, value_deserializer=json.loads) as consumer:
        first, second = await consumer.getone(), await consumer.getone()
    assert (first.key, first.value) == (0, {"amount": 7})
    assert (second.key, second.value) == (1, None), "a deserializer is not given None"


async def test_nothing_passes_over_a_record_that_cannot_be_deserialised(
    cluster: RunningCluster, topic: str
) -> None:
    await write(cluster, topic, *GOOD_BAD_GOOD)
    here = TopicPartition(topic, 0)
    async with asyncio.timeout(60), reader(cluster, topic, value_deserializer=json.loads) as consumer:
        assert [(await consumer.getone()).value for _ in range(2)] == [1, 2]
        for _ in range(3):
            with pytest.raises(SerializationFailed) as failed:
                await consumer.getone()
            assert (failed.value.partition, failed.value.offset) == (here, 2)
            assert await consumer.position(here) == 2
        assert f"the value_deserializer failed with the record at offset 2 of {topic}-0: " in str(
            failed.value
        )
        assert isinstance(failed.value.__cause__, json.JSONDecodeError)
        assert failed.value.code is ErrorCode.INVALID_RECORD
        with pytest.raises(SerializationFailed):
            await consumer.getmany(timeout_ms=None)
        consumer.seek(failed.value.partition, failed.value.offset + 1)
        assert [(await consumer.getone()).value for _ in range(2)] == [4, None]


async def test_getmany_and_iteration_give_what_is_good_before(cluster: RunningCluster, topic: str) -> None:
    await write(cluster, topic, *GOOD_BAD_GOOD)
    here = TopicPartition(topic, 0)
    async with asyncio.timeout(60), reader(cluster, topic, value_deserializer=json.loads) as consumer:
        read = await consumer.getmany(timeout_ms=None)
        assert [record.value for record in read[here]] == [1, 2]
        consumer.seek_to_beginning()
        seen: list[Any] = []
        with pytest.raises(SerializationFailed):
            async for record in consumer:
                seen += [record.value]
        assert seen == [1, 2]


async def test_other_partitions_are_read_on_beside_one_that_fails(
    cluster: RunningCluster, topic: str
) -> None:
    await write(cluster, topic, b"{", *(b"%d" % number for number in range(1, 20)), partitions=2)
    read, failures = [], 0
    async with asyncio.timeout(60), reader(cluster, topic, value_deserializer=json.loads) as consumer:
        while len(read) < 10 or not failures:
            try:
                read.append((await consumer.getone()).value)
            except SerializationFailed:
                failures += 1
    assert read == list(range(1, 20, 2))


async def test_a_key_that_cannot_be_deserialised_is_called_that(cluster: RunningCluster, topic: str) -> None:
    await write(cluster, topic, b"1")
    async with reader(cluster, topic, key_deserializer=json.loads) as consumer:
        assert (await consumer.getone()).key == 0
    async with reader(cluster, topic, key_deserializer=dict) as consumer:
        with pytest.raises(SerializationFailed, match="the key_deserializer failed with the record at"):
            await consumer.getone()


async def test_whole_transactions_are_deserialised(cluster: RunningCluster, topic: str) -> None:
    await write(cluster, topic)
    options = {"bootstrap_servers": cluster.bootstrap, "transactional_id": topic}
    async with Producer(**options) as producer:
        for value in (b"1", b"{", b"3"):
            async with producer.transaction():
                await producer.send(topic, value)

    async def values(consumer: Consumer, count: int, after: int | None) -> list[Any]:
        found: list[Any] = []
        async with aclosing(consumer.transactions(after=after)) as transactions:
            async for transaction in transactions:
                found += [record.value for some in transaction.records.values() for record in some]
                if len(found) >= count:
                    break
        return found

    async with asyncio.timeout(60), reader(cluster, topic, value_deserializer=json.loads) as consumer:
        assert await values(consumer, 1, None) == [1]
        for _ in range(2):
            with pytest.raises(SerializationFailed, match="in the transaction with commit index") as failed:
                await values(consumer, 2, None)
        assert failed.value.partition == (topic, 0)
        assert await values(consumer, 1, failed.value.commit_index) == [3]


def test_blocking_reads_do_the_same(cluster: RunningCluster, topic: str) -> None:
    asyncio.run(write(cluster, topic, *GOOD_BAD_GOOD))
    with ottla.sync.Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
    ) as consumer:
        assert [consumer.getone(timeout_ms=20_000).value for _ in range(2)] == [1, 2]
        for read in (consumer.getone, lambda: consumer.getmany(timeout_ms=20_000), lambda: next(consumer)):
            with pytest.raises(SerializationFailed, match="offset 2") as failed:
                read()  # type: ignore[operator]
        assert failed.value.partition is not None
        consumer.seek(failed.value.partition, 3)
        assert next(consumer).value == 4


# single records and batches


async def test_a_batch_goes_on_where_single_records_ended(cluster: RunningCluster, topic: str) -> None:
    await write(cluster, topic, *[b"x"] * 6)
    here = TopicPartition(topic, 0)
    async with asyncio.timeout(60), reader(cluster, topic) as consumer:
        assert (await consumer.getone()).offset == 0
        assert [
            record.offset for record in (await consumer.getmany(timeout_ms=None, max_records=2))[here]
        ] == [
            1,
            2,
        ]
        assert (await consumer.getone()).offset == 3
        consumer.pause(here)
        assert await consumer.position(here) == 4
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.getone(), 0.1)
        consumer.resume(here)
        assert [(await consumer.getone()).offset for _ in range(2)] == [4, 5]


# finished records


class CrashedError(Exception):
    """A failure of a program with a record."""


async def one_by_one(consumer: Consumer) -> Any:
    read = 0
    async for _ in consumer:
        read += 1
        if read == 3:
            return


async def in_batches(consumer: Consumer) -> Any:
    read = 0
    while read < 3:
        read += sum(map(len, (await consumer.getmany(timeout_ms=None, max_records=1)).values()))


@pytest.mark.parametrize("read", [one_by_one, in_batches])
async def test_what_a_program_fails_with_is_read_again(
    cluster: RunningCluster, topic: str, read: Callable[[Consumer], Any]
) -> None:
    await write(cluster, topic, *[b"x"] * 5)
    options = {"group_id": topic, "enable_auto_commit": True, "auto_commit_interval_ms": 20}
    with pytest.raises(CrashedError):
        async with reader(cluster, topic, **options) as consumer:
            await read(consumer)
            async with asyncio.timeout(60):
                while (
                    await consumer.committed(TopicPartition(topic, 0)) != 2
                ):  # the third record is being handled
                    await asyncio.sleep(0.01)
            raise CrashedError
    assert await committed(cluster, topic) == 2
    async with reader(cluster, topic, **options) as consumer:
        assert (await consumer.getone()).offset == 2
        await consumer.getone()
    assert await committed(cluster, topic) == 4, "a block that ends well has finished all that it read"


async def test_stop_alone_does_not_say_that_the_last_record_is_finished(
    cluster: RunningCluster, topic: str
) -> None:
    await write(cluster, topic, *[b"x"] * 5)
    consumer = reader(cluster, topic, group_id=topic, enable_auto_commit=True)
    await consumer.start()
    for _ in range(3):
        await consumer.getone()
    await consumer.stop()
    assert await committed(cluster, topic) == 2


async def test_commit_says_that_all_is_finished_and_automatic_commits_do_not_go_back(
    cluster: RunningCluster, topic: str
) -> None:
    await write(cluster, topic, *[b"x"] * 9)
    here = TopicPartition(topic, 0)
    consumer = reader(cluster, topic, group_id=topic, enable_auto_commit=True)
    await consumer.start()
    assert len((await consumer.getmany(timeout_ms=None, max_records=4))[here]) == 4
    await consumer.commit({here: 2})  # in the middle of the batch
    await consumer.stop()
    assert await committed(cluster, topic) == 2
    consumer = reader(cluster, topic, group_id=topic, enable_auto_commit=True)
    await consumer.start()
    assert (await consumer.getone()).offset == 2
    await consumer.commit()
    await consumer.stop()
    assert await committed(cluster, topic) == 3


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_what_is_in_hand_when_a_partition_is_revoked_is_read_by_the_next_owner(
    cluster: RunningCluster, topic: str, strategy: str
) -> None:
    await write(cluster, topic, *[b"x"] * 8, partitions=2)
    options = {
        "group_id": topic,
        "enable_auto_commit": True,
        "partition_assignment_strategy": (strategy,),
        "max_poll_records": 2,
    }
    first = reader(cluster, topic, **options)
    await first.start()
    in_hand: dict[TopicPartition, list[ConsumerRecord]] = {}
    async with asyncio.timeout(60):
        while not in_hand:
            in_hand = await first.getmany(timeout_ms=50)
        second = reader(cluster, topic, **options)
        await second.start()
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
        # A cooperative member continues after its buffered records of kept partitions; no others may be missing.
        kept = first.assignment() if strategy == "cooperative-sticky" else set()
        read = {(record.partition, record.offset) for at in in_hand.keys() & kept for record in in_hand[at]}
        while len(read) < 8:
            for consumer in (first, second):
                for records in (await consumer.getmany(timeout_ms=20)).values():
                    read |= {(record.partition, record.offset) for record in records}
    await first.stop()
    await second.stop()


def test_a_blocking_block_that_fails_has_not_finished_its_record(cluster: RunningCluster, topic: str) -> None:
    asyncio.run(write(cluster, topic, *[b"x"] * 5))

    def consumer() -> ottla.sync.Consumer:
        return ottla.sync.Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            group_id=topic,
            enable_auto_commit=True,
        )

    with pytest.raises(CrashedError), consumer() as failing:
        for record in failing:
            if record.offset == 2:
                raise CrashedError
    assert asyncio.run(committed(cluster, topic)) == 2
    with consumer() as good:
        assert next(good).offset == 2
    assert asyncio.run(committed(cluster, topic)) == 3


# programs that do not come back


async def test_who_does_not_come_back_leaves_the_group_and_joins_again_with_the_next_read(
    cluster: RunningCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await write(cluster, topic, b"0", b"1")
    here, events = TopicPartition(topic, 0), KeptEvents()
    away = reader(cluster, topic, group_id=topic, max_poll_interval_ms=1_000)
    away.subscribe([topic], listener=events)
    async with asyncio.timeout(40), away:
        with caplog.at_level(logging.WARNING, "ottla"):
            assert (await away.getone()).offset == 0
            await until(lambda: events.all("lost") == {here.partition})
        assert "nothing was read for longer than max_poll_interval_ms (1000 ms)" in caplog.text
        async with reader(cluster, topic, group_id=topic) as other:
            assert (await other.getone()).offset == 0, "it was not finished, and has another reader at once"
            for offsets in (None, {here: 1}):
                with pytest.raises(KafkaError, match="the next read joins again") as refused:
                    await away.commit(offsets)
                assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await away.getone()).offset == 0
        await away.commit()
        assert await away.committed(here) == 1


async def test_offsets_of_who_left_do_not_count_in_its_transaction(
    cluster: RunningCluster, topic: str
) -> None:
    await write(cluster, topic, b"0", b"1")
    here, events = TopicPartition(topic, 0), KeptEvents()
    away = reader(cluster, topic, group_id=topic, max_poll_interval_ms=1_000)
    away.subscribe([topic], listener=events)
    async with (
        asyncio.timeout(40),
        away,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer,
    ):
        await away.getone()
        await until(lambda: events.all("lost") == {here.partition})
        with pytest.raises(TransactionFailed):
            async with producer.transaction():
                await producer.send_offsets_to_transaction({here: 1}, away)
        await away.getone()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({here: 1}, away)
        assert await away.committed(here) == 1


async def test_who_waits_in_a_read_is_not_away(cluster: RunningCluster, topic: str) -> None:
    await write(cluster, topic)
    async with reader(cluster, topic, group_id=topic, max_poll_interval_ms=200) as consumer:
        await until(consumer.assignment)
        reading = asyncio.ensure_future(consumer.getmany(timeout_ms=None))
        before = consumer.group_metadata()
        await asyncio.sleep(0.8)  # four times as long as the permitted absence
        assert consumer.group_metadata() == before
        assert consumer.assignment()
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send_and_wait(topic, b"late")
        async with asyncio.timeout(60):
            assert len((await reading)[TopicPartition(topic, 0)]) == 1


def test_blocking_readers_are_away_or_not_just_the_same(cluster: RunningCluster, topic: str) -> None:
    asyncio.run(write(cluster, topic, *[b"x"] * 3))
    with ottla.sync.Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        group_id=topic,
        heartbeat_interval_ms=20,
        max_poll_interval_ms=1_000,
    ) as consumer:
        assert consumer.getone(timeout_ms=20_000).offset == 0
        asyncio.run(until(lambda: not consumer.assignment()))
        with pytest.raises(KafkaError, match="nothing was read for longer than"):
            consumer.commit()
        assert consumer.getone(timeout_ms=20_000).offset == 0, "the next read joins again"
        consumer.commit()
        with pytest.raises(RequestTimedOut, match="no record came within 10 ms"):
            for _ in range(3):
                consumer.getone(timeout_ms=10)
