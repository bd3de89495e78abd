"""Values kept as objects, in a real cluster: both clients, transactions, groups, and stores that fail."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import ottla.sync
from ottla import (
    Admin,
    Consumer,
    ConsumerRecord,
    ErrorCode,
    ExactlyOnce,
    KafkaError,
    NewRecord,
    NewTopic,
    ObjectStoreFailed,
    Producer,
    TopicPartition,
    TransactionWriter,
    UnreadableValue,
)
from ottla.client.objects.opening import open_store
from ottla.client.objects.references import REFERENCE_HEADER, read_reference
from ottla.testing import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("test_references_with_cluster")]
DEADLINE_S = 60
LARGE = 1_000
"""The size above which the tests keep values as objects."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with LocalCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
async def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """Return a new topic of one partition."""
    name = request.node.name[:80].replace("[", ".").replace("]", "")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 1, 1)])
    return str(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of an empty store."""
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def writing(bootstrap: str, folder: Path, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "large_messages": "reference",
        "large_message_store": folder.as_uri(),
        "large_message_segment_size": LARGE,
        **options,
    }


def reading(bootstrap: str, folder: Path | None, **options: Any) -> dict[str, Any]:
    store = {} if folder is None else {"large_message_store": folder.as_uri()}
    return {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", **store, **options}


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    async with asyncio.timeout(DEADLINE_S):
        return [await consumer.getone() for _ in range(count)]


async def keys_in(folder: Path) -> list[str]:
    return sorted([found.key async for found in open_store(folder.as_uri(), 5).list()])


def value(number: int, size: int = 3 * LARGE) -> bytes:
    return (b"%06d." % number) * (size // 7)


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_a_large_value_is_an_object_and_comes_back_as_it_was(
    bootstrap: str, topic: str, folder: Path, compression: str | None
) -> None:
    values: list[bytes | None] = [b"small", value(1), None, value(2, 2_000_000), b"", b"x" * LARGE]
    async with Producer(**writing(bootstrap, folder, compression_type=compression)) as producer:
        placed = [
            await producer.send_and_wait(topic, each, key=b"k", headers=[("h", b"1")]) for each in values
        ]
    assert [each.offset for each in placed] == list(range(6))
    async with Consumer(topic, **reading(bootstrap, folder)) as consumer:
        records = await take(consumer, 6)
        assert [record.value for record in records] == values
        assert all(list(record.headers) == [("h", b"1")] for record in records)
        assert consumer.large_message_stats().fetched == 2
    async with Consumer(topic, **reading(bootstrap, None, large_messages=False)) as consumer:
        raw = [record for record in await take(consumer, 6) if record.headers[0][0] == REFERENCE_HEADER]
    references = [read_reference(record.value) for record in raw]
    assert [reference.size for reference in references] == [len(value(1)), len(value(2, 2_000_000))]
    assert all(len(record.value) < 250 for record in raw)
    assert await keys_in(folder) == sorted(reference.key for reference in references)
    assert all(reference.key.startswith(f"{topic}/") for reference in references)


async def test_without_a_size_only_values_that_fit_into_no_request_are_objects(
    bootstrap: str, topic: str, folder: Path
) -> None:
    options = writing(
        bootstrap, folder, large_message_segment_size=None, max_request_size=300_000, batch_size=1000
    )
    async with Producer(**options) as producer:
        await producer.send_and_wait(topic, value(1, 200_000))
        await producer.send_and_wait(topic, value(2, 400_000))
        with pytest.raises(
            KafkaError, match=r"the reference takes up to .* max_request_size is 300000"
        ) as caught:
            await producer.send(topic, value(3, 400_000), key=b"k" * 299_500)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(KafkaError, match="large_message_max_size is 33554432"):
            await producer.send(topic, bytes(33_554_433))
    assert len(await keys_in(folder)) == 1
    async with Consumer(topic, **reading(bootstrap, folder)) as consumer:
        assert [record.value for record in await take(consumer, 2)] == [value(1, 200_000), value(2, 400_000)]


async def test_many_values_come_in_order_through_a_small_buffer(
    bootstrap: str, topic: str, folder: Path
) -> None:
    async with Producer(**writing(bootstrap, folder)) as producer:
        for number in range(60):
            await producer.send(topic, value(number, 20_000 if number % 3 else 100))
        await producer.flush()
    for options in ({}, {"large_message_buffer_bytes": 45_000}, {"max_poll_records": 3}):
        async with Consumer(topic, **reading(bootstrap, folder, **options)) as consumer:
            records = await take(consumer, 60)
        assert [record.value for record in records] == [
            value(number, 20_000 if number % 3 else 100) for number in range(60)
        ]


async def test_no_object_is_made_for_a_topic_that_does_not_exist(bootstrap: str, folder: Path) -> None:
    async with Producer(**writing(bootstrap, folder, max_block_ms=300)) as producer:
        with pytest.raises(KafkaError):
            await producer.send("no.such-topic!", value(1))
    assert await keys_in(folder) == []


async def test_a_store_that_is_away_fails_the_send_alone(bootstrap: str, topic: str, folder: Path) -> None:
    async with (
        Producer(**writing(bootstrap, folder), transactional_id=topic) as producer,
        producer.transaction(),
    ):
        await producer.send(topic, b"before")
        os.rmdir(folder)
        with pytest.raises(ObjectStoreFailed, match=r"was not created: the folder .* does not exist"):
            await producer.send(topic, value(1))
        os.mkdir(folder)
        await producer.send(topic, value(2))
    options = reading(bootstrap, folder, isolation_level="read_committed")
    async with Consumer(topic, **options) as consumer:
        assert [record.value for record in await take(consumer, 2)] == [b"before", value(2)]


async def test_an_aborted_transaction_leaves_objects_alone(bootstrap: str, topic: str, folder: Path) -> None:
    async with Producer(**writing(bootstrap, folder), transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send(topic, value(1))
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await producer.send(topic, value(2))
            assert transaction is not None
    options = reading(bootstrap, folder, isolation_level="read_committed")
    async with Consumer(topic, **options) as consumer:
        assert [record.value for record in await take(consumer, 1)] == [value(2)]
    assert len(await keys_in(folder)) == 2


async def test_an_upload_that_outlives_its_transaction_joins_no_other(
    bootstrap: str, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(**writing(bootstrap, folder), transactional_id=topic) as producer:
        referrer = producer.steps.parts.referrer
        assert referrer is not None
        begun, goes_on = asyncio.Event(), asyncio.Event()
        stored = referrer.stored

        async def slowly(*arguments: Any) -> Any:
            begun.set()
            await goes_on.wait()
            return await stored(*arguments)

        monkeypatch.setattr(referrer, "stored", slowly)
        await producer.begin_transaction()
        late = asyncio.ensure_future(producer.send(topic, value(1)))
        await begun.wait()
        await producer.abort_transaction()
        async with producer.transaction():
            goes_on.set()
            with pytest.raises(KafkaError, match="the transaction ended before the object"):
                await late
            await producer.send(topic, b"alone")
    options = reading(bootstrap, folder, isolation_level="read_committed")
    async with Consumer(topic, **options) as consumer:
        assert [record.value for record in await take(consumer, 1)] == [b"alone"]


async def test_whole_transactions_have_their_values(bootstrap: str, topic: str, folder: Path) -> None:
    async with Producer(**writing(bootstrap, folder), transactional_id=topic) as producer:
        transaction = await producer.begin()
        await producer.send(topic, value(1))
        async with TransactionWriter.join(transaction.token, **writing(bootstrap, folder)) as writer:
            await writer.send(topic, value(2))
            receipt = await writer.finish()
        await transaction.commit([receipt])
        async with producer.transaction():
            await producer.send(topic, value(3))
            await producer.send(topic, b"small")
    gone = [key for key in await keys_in(folder) if (folder / key).read_bytes() == value(3)]
    (folder / gone[0]).unlink()

    async def first(consumer: Consumer, count: int, **options: Any) -> AsyncIterator[list[Any]]:
        async with aclosing(consumer.transactions(**options)) as found:
            for _ in range(count):
                transaction = await anext(found)
                yield sorted([record.value for some in transaction.records.values() for record in some])

    async with Consumer(topic, **reading(bootstrap, folder)) as consumer, asyncio.timeout(DEADLINE_S):
        damage: list[UnreadableValue] = []
        seen: list[list[Any]] = []
        with pytest.raises(UnreadableValue, match=r"the object .* was not read.*passing_over") as caught:
            async for values in first(consumer, 2):
                seen += [values]
        assert seen == [[value(1), value(2)]]
        damage.append(caught.value)
        assert [values async for values in first(consumer, 2, passing_over=damage)] == [
            [value(1), value(2)],
            [b"small"],
        ]
        with pytest.raises(UnreadableValue, match="more bytes than buffer_bytes_max"):
            async for _ in first(consumer, 1, buffer_bytes_max=5_000):
                pass


async def test_a_group_goes_on_at_the_first_value_that_was_not_handed_out(
    bootstrap: str, topic: str, folder: Path
) -> None:
    async with Producer(**writing(bootstrap, folder)) as producer:
        for number in range(10):
            await producer.send(topic, value(number))
    hidden = folder.with_name("hidden")
    options = reading(bootstrap, folder, group_id=topic, enable_auto_commit=True, max_poll_records=1)
    async with Consumer(topic, **options) as consumer:
        assert [record.value for record in await take(consumer, 4)] == [value(number) for number in range(4)]
        os.rename(folder, hidden)
        with pytest.raises(UnreadableValue, match="does not exist"):
            await take(consumer, 10)
        reached = consumer.reading.progress.handed_out()[TopicPartition(topic, 0)]
    os.rename(hidden, folder)
    async with Consumer(topic, **options) as consumer:
        rest = await take(consumer, 10 - reached)
    assert [record.value for record in rest] == [value(number) for number in range(reached, 10)]


async def test_a_program_of_exactly_once_reads_and_writes_references(
    bootstrap: str, topic: str, folder: Path
) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(f"{topic}.copy", 1, 1)])
    async with Producer(**writing(bootstrap, folder)) as producer:
        for number in range(5):
            await producer.send(topic, value(number))

    async def copy(record: ConsumerRecord) -> NewRecord:
        return NewRecord(f"{topic}.copy", record.value[::-1])

    options = {"group_id": topic, "idle_timeout_ms": 1000, "auto_offset_reset": "earliest"}
    async with ExactlyOnce(topic, **writing(bootstrap, folder, **options)) as processor:
        await processor.run(copy)
    async with Consumer(f"{topic}.copy", **reading(bootstrap, folder)) as consumer:
        assert [record.value for record in await take(consumer, 5)] == [value(n)[::-1] for n in range(5)]
    assert sum(key.startswith(f"{topic}.copy/") for key in await keys_in(folder)) == 5


def test_synchronous_clients_keep_values_as_objects(bootstrap: str, folder: Path) -> None:
    topic = "synchronous-references"
    with ottla.sync.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    with ottla.sync.Producer(**writing(bootstrap, folder)) as producer:
        sent = [producer.send(topic, value(number) if number % 2 else b"small") for number in range(20)]
        assert [each.result(DEADLINE_S).offset for each in sent] == list(range(20))
        shutil.move(folder, folder.with_name("away"))
        with pytest.raises(ObjectStoreFailed):
            producer.send(topic, value(1)).result(DEADLINE_S)
        shutil.move(folder.with_name("away"), folder)
    with ottla.sync.Consumer(topic, **reading(bootstrap, folder)) as consumer:
        records = [consumer.getone(timeout_ms=DEADLINE_S * 1000) for _ in range(20)]
    assert [record.value for record in records] == [value(n) if n % 2 else b"small" for n in range(20)]


async def test_clients_of_one_process_share_a_store_in_memory(bootstrap: str, topic: str) -> None:
    store = {
        "bootstrap_servers": bootstrap,
        "large_message_store": f"memory://{topic}",
        "large_messages": "reference",
    }
    async with Producer(**store, large_message_segment_size=10) as producer:
        await producer.send_and_wait(topic, value(1))
    async with Consumer(topic, **store, auto_offset_reset="earliest") as consumer:
        assert [record.value for record in await take(consumer, 1)] == [value(1)]
