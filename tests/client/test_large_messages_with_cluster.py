"""Large messages in a real cluster: restarts, rebalances, transactions, stock clients, dying producers."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import confluent_kafka
import pytest

import ottla.sync
from ottla import (
    Admin,
    Consumer,
    ConsumerRecord,
    ErrorCode,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    TransactionFailed,
    TransactionWriter,
    WriterReceipt,
)
from ottla.client.producing.large_messages.splitter import Splitter
from ottla.client.segment_header import SEGMENT_HEADER, read_segment
from ottla.testing import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("test_large_messages_with_cluster")]
DEADLINE_S = 60
SPLITTER = Splitter(100, 1 << 20, 1 << 20)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
    with LocalCluster(settings=settings) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
async def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """Return a new topic of one partition."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(request.node.name, 1, 1)])
    return str(request.node.name)


def reader(bootstrap: str, topic: str, **options: Any) -> Consumer:
    given: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, **options}
    return Consumer(topic, bootstrap_servers=bootstrap, **given)


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    async with asyncio.timeout(DEADLINE_S):
        return [await consumer.getone() for _ in range(count)]


async def read(bootstrap: str, topic: str, count: int, **options: Any) -> list[ConsumerRecord]:
    async with reader(bootstrap, topic, **options) as consumer:
        return await take(consumer, count)


def segments(name: bytes, count: int) -> Iterator[tuple[bytes | None, bytes | None, Any]]:
    """Yield a message's segments as arguments of `send`, so that a test chooses their order."""
    record = (name, name * 100 * count, 0, ())
    for key, value, _, headers in SPLITTER.split((name, (record[1])[: 100 * count], 0, ()), os.urandom(16)):
        yield value, key, headers


async def write(producer: Producer, topic: str, plan: str, partition: int = 0) -> None:
    """Write a plan: each letter is the next of the three segments of the message with that name, each digit a plain
    record.
    """
    messages = {letter: segments(letter.encode(), 3) for letter in set(plan) if letter.isalpha()}
    for letter in plan:
        if letter.isalpha():
            value, key, headers = next(messages[letter])
            await producer.send(topic, value, key, partition=partition, headers=headers)
        else:
            await producer.send(topic, letter.encode(), letter.encode(), partition=partition)
    await producer.flush()


def names(records: list[ConsumerRecord]) -> str:
    for record in records:
        assert record.value == (record.key or b"").ljust(1) * len(record.value or b"")
        assert len(record.value or b"") == (300 if (record.key or b"").isalpha() else 1)
    return b"".join(record.key or b"" for record in records).decode()


@pytest.mark.parametrize("compression", [None, "gzip", "lz4", "zstd"])
async def test_ten_megabytes_arrive_among_records_of_others(
    bootstrap: str, compression: str | None, request: pytest.FixtureRequest
) -> None:
    topic = f"large-{compression}"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 4, 1)])
    value = random.Random(4).randbytes(5 << 20) + b"easy to compress" * (5 << 16)
    others = [b"%d" % number for number in range(300)]
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "compression_type": compression}
    async with (
        Producer(large_message_segment_size=256 << 10, **options) as first,
        Producer(large_message_segment_size=100 << 10, **options) as second,
        Producer(**options) as plain,
    ):
        whole, also, *rest = await asyncio.gather(
            first.send_and_wait(topic, value, b"key", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000),
            second.send_and_wait(topic, value[::-1], b"key"),
            *(plain.send_and_wait(topic, other, b"key") for other in others),
        )
    found = await read(bootstrap, topic, 302)
    by_offset = {(read_record.partition, read_record.offset): read_record for read_record in found}
    record = by_offset[whole.partition, whole.offset]
    assert (record.key, record.timestamp_ms, list(record.headers)) == (
        b"key",
        1_700_000_000_000,
        [("h", b"1")],
    )
    assert record.value == value
    assert by_offset[also.partition, also.offset].value == value[::-1]
    assert [read_record.value for read_record in found if len(read_record.value or b"") < 10] == others
    assert {metadata.partition for metadata in (whole, also, *rest)} == {whole.partition}, "the key chooses"


async def test_messages_without_key_and_of_the_synchronous_producer(bootstrap: str) -> None:
    topic = "without-key"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 8, 1)])
    values = [random.Random(number).randbytes(300_000) for number in range(20)]

    def send_all() -> set[tuple[int, int]]:
        with ottla.sync.Producer(
            bootstrap_servers=bootstrap,
            large_message_segment_size=10_000,
            batch_size=1_000,
            buffer_memory=50_000,
        ) as producer:
            futures = [producer.send(topic, value) for value in values]
            futures.append(producer.send(topic, b"plain"))
            return {(future.result().partition, future.result().offset) for future in futures}

    def read_all() -> list[ConsumerRecord]:
        options: dict[str, Any] = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
        with ottla.sync.Consumer(topic, **options) as consumer:
            found = [consumer.getone(timeout_ms=DEADLINE_S * 1_000) for _ in range(21)]
            assert consumer.large_message_stats().assembled == 20
            again = found[3]
            here = TopicPartition(topic, again.partition)
            consumer.seek(here, again.offset)
            while (same := consumer.getone(timeout_ms=DEADLINE_S * 1_000)).partition != again.partition:
                pass
            assert same == again
            assert consumer.committable(here, again.offset + 1) == OffsetAndMetadata(again.offset + 1)
            return found

    placed = await asyncio.to_thread(send_all)
    found = await asyncio.to_thread(read_all)
    assert sorted(read_record.value or b"" for read_record in found) == sorted([*values, b"plain"])
    assert {(read_record.partition, read_record.offset) for read_record in found} == placed


async def test_a_consumer_that_starts_again_gets_what_lay_across_its_commit(
    bootstrap: str, topic: str
) -> None:
    here = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await write(producer, topic, "1a2bab3ab4")
        async with reader(bootstrap, topic, group_id="again") as consumer:
            assert names(await take(consumer, 3)) == "123"
            await consumer.commit()
            assert await consumer.committed(here) == 1
            assert await consumer.position(here) == 7
            assert consumer.committable(here).offset == 1
        async with reader(bootstrap, topic, group_id="again") as consumer:
            first = await take(consumer, 1)
            assert (names(first), first[0].offset) == ("a", 7)
            await consumer.commit({here: first[0].offset + 1})
            assert await consumer.committed(here) == 3
        async with reader(bootstrap, topic, group_id="again") as consumer:
            assert names(await take(consumer, 2)) == "b4"
            await consumer.commit()
            assert await consumer.committed(here) == 10
        await write(producer, topic, "5")
        async with reader(bootstrap, topic, group_id="again") as consumer:
            assert names(await take(consumer, 1)) == "5"


async def test_places_kept_elsewhere(bootstrap: str, topic: str) -> None:
    here = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await write(producer, topic, "a1a2a3")
    async with reader(bootstrap, topic) as consumer:
        assert names(await take(consumer, 2)) == "12"
        kept = consumer.committable(here)
    async with reader(bootstrap, topic) as consumer:
        consumer.seek(here, kept)
        assert names(await take(consumer, 2)) == "a3"
        consumer.seek(here, 2)
        assert names(await take(consumer, 3)) == "2a3"
    async with reader(bootstrap, topic) as consumer:
        consumer.seek(here, 2)
        assert names(await take(consumer, 2)) == "23", "its beginning is not known here"
        assert consumer.large_message_stats().incomplete == 1
        with pytest.raises(ValueError, match="not assigned"):
            consumer.committable(TopicPartition("elsewhere", 0))


async def test_members_that_come_and_go_get_each_message_once(bootstrap: str) -> None:
    """Positions are committed as partitions change hands, and reading stops anywhere."""
    topic = "members"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 3, 1)])
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    count, found = 150, list[ConsumerRecord]()

    async def produce(number: int) -> None:
        value = b"%d " % number * chance.randrange(1, 200)
        await asyncio.sleep(chance.random())
        producer = producers[number % 3]
        await producer.send_and_wait(topic, value, partition=number % 3)

    async def consume() -> None:
        while len(found) < count:
            async with reader(
                bootstrap,
                topic,
                group_id="members",
                enable_auto_commit=True,
                max_poll_records=5,
                auto_commit_interval_ms=50,
            ) as consumer:
                for _ in range(chance.randrange(10, 40)):
                    if len(found) >= count:
                        break
                    try:
                        async with asyncio.timeout(0.5):
                            found.append(await consumer.getone())
                    except TimeoutError:
                        pass

    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "linger_ms": 1}
    async with (
        asyncio.timeout(DEADLINE_S),
        Producer(large_message_segment_size=20, **options) as first,
        Producer(large_message_segment_size=50, **options) as two,
        Producer(large_message_segment_size=30, **options) as three,
    ):
        producers = [first, two, three]
        await asyncio.gather(*(produce(number) for number in range(count)), consume(), consume())
    numbers = [int((read_record.value or b"").split()[0]) for read_record in found]
    assert sorted(numbers) == list(range(count)), f"seed {seed}"
    assert all(
        set((record.value or b"").split()) == {b"%d" % number}
        for record, number in zip(found, numbers, strict=True)
    )


async def test_transactions_count_with_all_their_segments_or_none(bootstrap: str, topic: str) -> None:
    values = [bytes([number]) * 250_000 for number in range(4)]
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "large_message_segment_size": 20_000}
    async with (
        Producer(transactional_id="large", **options) as producer,
        Producer(**options) as plain,
    ):
        async with producer.transaction():
            await asyncio.gather(producer.send(topic, values[0]), plain.send(topic, values[1], b"plain"))
        await plain.flush()
        await producer.begin_transaction()
        await producer.send(topic, b"gone" * 100_000)
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"small")
            await producer.send(topic, values[2])
    stable = await read(bootstrap, topic, 4, isolation_level="read_committed")
    assert sorted(record.value or b"" for record in stable) == sorted([*values[:3], b"small"])
    assert len(await read(bootstrap, topic, 5)) == 5, "a read-uncommitted consumer gets the aborted message"
    async with (
        asyncio.timeout(DEADLINE_S),
        reader(bootstrap, topic) as consumer,
        aclosing(consumer.transactions()) as transactions,
    ):
        found = [await anext(transactions) for _ in range(3)]
        assert consumer.large_message_stats().buffered_bytes == 0
    by_kind = {transaction.commit_index is None: [] for transaction in found}
    for transaction in found:
        by_kind[transaction.commit_index is None].append(
            [record.value for some in transaction.records.values() for record in some]
        )
    assert by_kind[True] == [[values[1]]]
    assert by_kind[False] == [[values[0]], [b"small", values[2]]]


async def test_writers_of_one_transaction_write_large_messages_at_once(bootstrap: str, topic: str) -> None:
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "large_message_segment_size": 10_000}
    values = [bytes([number]) * 500_000 for number in range(2)]
    async with Producer(transactional_id="owner", **options) as owner:
        transaction = await owner.begin()

        async def write_one(value: bytes) -> WriterReceipt:
            async with TransactionWriter.join(transaction.token, **options) as writer:
                await writer.send(topic, value, b"key")
                return await writer.finish()

        kept, _, _ = await asyncio.gather(
            write_one(values[0]), write_one(b"not committed" * 50_000), owner.send(topic, values[1], b"key")
        )
        await transaction.commit(writers=[kept])
    async with (
        asyncio.timeout(DEADLINE_S),
        reader(bootstrap, topic) as consumer,
        aclosing(consumer.transactions()) as transactions,
    ):
        found = (await anext(transactions)).records[TopicPartition(topic, 0)]
    assert sorted(read_record.value or b"" for read_record in found) == values
    stable = await read(bootstrap, topic, 2, isolation_level="read_committed")
    assert sorted(record.value or b"" for record in stable) == values


async def test_offsets_of_a_transaction_keep_what_lies_across_them(bootstrap: str, topic: str) -> None:
    """A consumer that restarts each time reads, writes and commits one record at a time."""
    copies = f"{topic}-copies"
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await write(producer, topic, "1ab2a3ba4cbc5c")
    async with Producer(
        bootstrap_servers=bootstrap, transactional_id="copier", large_message_segment_size=100
    ) as producer:
        for _ in range(8):
            async with (
                reader(bootstrap, topic, group_id="copier", isolation_level="read_committed") as consumer,
                producer.transaction(),
            ):
                (record,) = await take(consumer, 1)
                await producer.send(copies, record.value, record.key)
                offsets = {TopicPartition(topic, 0): record.offset + 1}
                await producer.send_offsets_to_transaction(offsets, consumer)
    found = await read(bootstrap, copies, 8, isolation_level="read_committed")
    assert names(found) == "123a4b5c"


async def test_a_stock_client_reads_segments_as_records(bootstrap: str, topic: str) -> None:
    value = random.Random(1).randbytes(1_000)
    async with Producer(bootstrap_servers=bootstrap, large_message_segment_size=300) as producer:
        placed = await producer.send_and_wait(topic, value, b"key", headers=[("h", b"1")])
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "stock"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = [await asyncio.to_thread(consumer.poll, DEADLINE_S) for _ in range(4)]
    consumer.close()
    assert b"".join(message.value() for message in found) == value
    headers = [read_segment(dict(message.headers())[SEGMENT_HEADER]) for message in found]
    assert [(header.number, header.segments, header.value_bytes) for header in headers] == [
        (n, 4, 1_000) for n in range(4)
    ]
    assert (found[-1].offset(), found[-1].key()) == (placed.offset, b"key")
    assert [record.value for record in await read(bootstrap, topic, 4, large_messages=False)] == [
        message.value() for message in found
    ]


async def test_a_producer_that_is_killed_in_the_middle_holds_up_nobody(bootstrap: str, topic: str) -> None:
    code = f"""if True:
        from ottla.sync import Producer
        with Producer(bootstrap_servers={bootstrap!r}, large_message_segment_size=300, batch_size=300) as producer:
            producer.send_and_wait({topic!r}, bytes(30 << 20))
    """
    here = TopicPartition(topic, 0)
    victim = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    try:
        async with reader(bootstrap, topic) as looking, asyncio.timeout(DEADLINE_S):
            while not (await looking.end_offsets([here]))[here]:
                await asyncio.sleep(0.01)
    finally:
        victim.kill()
        await victim.wait()
    async with Producer(bootstrap_servers=bootstrap, large_message_segment_size=300) as producer:
        await producer.send(topic, b"x" * 1_000)
        last = await producer.send_and_wait(topic, b"y")
    written = last.offset - 4
    assert 0 < written < (30 << 20) // 300
    async with reader(bootstrap, topic, group_id="survivors") as consumer:
        assert [record.value for record in await take(consumer, 2)] == [b"x" * 1_000, b"y"]
        assert await consumer.position(here) == last.offset + 1
        await consumer.commit()
        assert await consumer.committed(here) == 0
        assert consumer.large_message_stats().buffered_bytes > 0
    options: dict[str, Any] = {"group_id": "survivors", "large_message_expiry_offsets": 2}
    async with (
        reader(bootstrap, topic, **options) as consumer,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        await producer.send(topic, b"z")
        assert [record.value for record in await take(consumer, 1)] == [b"z"], "the others were given before"
        assert consumer.large_message_stats().expired == 1
        await consumer.commit()
        assert await consumer.committed(here) == last.offset + 2


async def test_a_send_that_was_cancelled_gives_readers_nothing(bootstrap: str, topic: str) -> None:
    taken = []
    async with Producer(
        bootstrap_servers=bootstrap, large_message_segment_size=100, batch_size=150
    ) as producer:
        await producer.send_and_wait(topic, b"begin")
        for step in range(12):
            value = b"%d" % step * 301
            sending = asyncio.ensure_future(producer.send(topic, value))
            for _ in range(step):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            taken += [] if sending.cancelled() else [value]
        await producer.send_and_wait(topic, b"end")
    assert 0 < len(taken) < 12
    found = await read(bootstrap, topic, len(taken) + 2)
    assert [read_record.value for read_record in found] == [b"begin", *taken, b"end"]


async def test_what_is_too_large_is_refused_and_what_fails_fails_as_a_whole(bootstrap: str) -> None:
    topic = "refusing"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, configs={"max.message.bytes": "2000"})])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(KafkaError, match="max_request_size") as refused:
            await producer.send(topic, bytes(2 << 20))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "large_message_max_size": 10_000,
        "batch_size": 1_500,  # one segment each
    }
    async with Producer(large_message_segment_size=1_000, **options) as producer:
        with pytest.raises(KafkaError, match="large_message_max_size is 10000") as refused:
            await producer.send(topic, bytes(10_001))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        failing = await producer.send(topic, bytes(10_000), b"k" * 1_900)  # its last segment has the key
        await producer.send(topic, b"n" * 9_000, b"k")
        with pytest.raises(KafkaError) as refused:
            await failing
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert [record.value for record in await read(bootstrap, topic, 1)] == [b"n" * 9_000]
    async with Producer(transactional_id="f", large_message_segment_size=1_000, **options) as producer:
        with pytest.raises(TransactionFailed):
            async with producer.transaction():
                await producer.send(topic, bytes(10_000), b"k" * 1_900)
    with pytest.raises(ValueError, match="large_message_segment_size"):
        Producer(large_message_segment_size=1 << 20)
    with pytest.raises(ValueError, match="large_message_buffer_bytes"):
        Consumer(large_message_buffer_bytes=0)


async def test_a_segment_that_fails_while_others_wait_for_room(bootstrap: str) -> None:
    topic = "no-room"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, configs={"max.message.bytes": "500"})])
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "large_message_segment_size": 1_000,
        "batch_size": 1_000,
        "buffer_memory": 2_500,
    }
    async with Producer(**options) as producer:
        with pytest.raises(KafkaError) as refused:
            await producer.send_and_wait(topic, bytes(100_000))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await producer.send_and_wait(topic, b"1")

    def send_in_transactions() -> None:
        with ottla.sync.Producer(transactional_id="no-room", **options) as producer:
            producer.begin_transaction()
            producer.send(topic, b"aborted")  # from now on `send` waits for nothing
            failing = producer.send(topic, bytes(100_000))
            with pytest.raises(TransactionFailed):
                producer.commit_transaction()
            assert failing.exception(timeout=DEADLINE_S) is not None
            producer.abort_transaction()
            with producer.transaction():
                producer.send(topic, b"2")

    await asyncio.to_thread(send_in_transactions)
    found = await read(bootstrap, topic, 2, isolation_level="read_committed")
    assert [read_record.value for read_record in found] == [b"1", b"2"]


async def test_segments_that_are_deleted_cost_their_own_message_only(bootstrap: str, topic: str) -> None:
    here = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await write(producer, topic, "1a2bab3ab4")
    async with reader(bootstrap, topic, group_id="late") as consumer:
        assert names(await take(consumer, 3)) == "123"
        await consumer.commit()
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.delete_records({here: 3})
    async with reader(bootstrap, topic, group_id="late", auto_offset_reset="none") as consumer:
        assert names(await take(consumer, 2)) == "b4"
        assert consumer.large_message_stats().incomplete == 1


async def test_what_is_given_up_is_told_and_damage_is_raised(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    here = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await write(producer, topic, "a1aa2")
        await producer.send(topic, b"x", headers=[(SEGMENT_HEADER, b"nonsense")])
        await write(producer, topic, "3")
    async with reader(bootstrap, topic, large_message_buffer_bytes=700) as consumer:
        assert names(await take(consumer, 2)) == "12"
        for _ in range(2):
            with pytest.raises(
                KafkaError, match=f"{topic}-0, offset 5: .* has 8 bytes instead of 37"
            ) as raised:
                await take(consumer, 1)
            assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
        consumer.seek(here, 6)
        assert names(await take(consumer, 1)) == "3"
        assert consumer.large_message_stats().evicted == 1
    (line,) = [record.getMessage() for record in caplog.records if "given up" in record.getMessage()]
    assert f"topic={topic} partition=0 first_offset=0 last_offset=0" in line


async def test_compaction_leaves_the_newest_message_of_each_key(bootstrap: str) -> None:
    topic = "compacted"
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.01",
    }
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, configs=configs)])
    values = [bytes([number]) * 40_000 for number in range(100)]
    async with (
        Producer(bootstrap_servers=bootstrap, large_message_segment_size=10_000) as producer,
        asyncio.timeout(DEADLINE_S),
    ):
        for number, value in enumerate(values):
            await producer.send(topic, value, b"key-%d" % (number % 2))
        await producer.send_and_wait(topic, b"end", b"end")
        while True:
            found: list[ConsumerRecord] = []
            async with reader(bootstrap, topic) as consumer:
                while not found or found[-1].key != b"end":
                    found += await take(consumer, 1)
            if len(found) < 60:
                break
            await asyncio.sleep(0.1)
    newest = {read_record.key: read_record.value for read_record in found}
    assert newest == {b"key-0": values[98], b"key-1": values[99], b"end": b"end"}
