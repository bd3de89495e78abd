"""Columns with a real broker: data sent as columns, as records, or in transactions comes back as both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import ottla.sync
from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.failures import OutOfTurn, TransactionAborted, TransactionFailed
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.cluster import RunningCluster, running_cluster

pytestmark = pytest.mark.cluster
MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123000, UTC)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("columns")
    settings = {"log.segment.bytes": str(1 << 26), "group.initial.rebalance.delay.ms": "0"}
    with running_cluster(
        directory, quorum=1, brokers=1, arguments=("--combined",), settings=settings
    ) as running:
        yield running


async def create(cluster: RunningCluster, name: str, partitions: int = 1) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1)])


def reader(cluster: RunningCluster, *topics: str, **options: Any) -> Consumer:
    return Consumer(*topics, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)


async def read_all(consumer: Consumer, count: int, **options: Any) -> pa.Table:
    """Return at least `count` rows, in the order of arrival."""
    found = []
    async with asyncio.timeout(60):
        while sum(table.num_rows for table in found) < count:
            found.append(await consumer.fetch_arrow(timeout_ms=5_000, **options))
            found[-1].validate(full=True)
    return pa.Table.from_batches(found).unify_dictionaries() if found else None


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
async def test_columns_come_back_as_they_were_sent(cluster: RunningCluster, compression: str | None) -> None:
    topic = f"roundtrip-{compression}"
    await create(cluster, topic, 3)
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    keys = [None if number % 5 == 0 else b"k%d" % (number % 17) for number in range(3_000)]
    values = [None if number % 7 == 0 else b"v%d" % number for number in range(3_000)]
    headers = [[{"key": "h", "value": b"%d" % number}] if number % 11 == 0 else [] for number in range(3_000)]
    table = pa.table(
        {
            "key": pa.array(keys, pa.large_binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, pa.list_(header)),
        }
    )
    async with Producer(
        bootstrap_servers=cluster.bootstrap, compression_type=compression, batch_size=5_000
    ) as producer:
        delivery = await producer.send_arrow(topic, table, headers="headers", timestamp=MOMENT)
        columns_sent = await delivery
        places = {}
        for key in {key for key in keys if key}:
            places[key] = (await producer.send_and_wait(topic, b"by send", key=key)).partition
    assert (columns_sent.topic, columns_sent.records) == (topic, 3_000)
    async with reader(cluster, topic) as consumer:
        found = await read_all(consumer, 3_000 + len(places), include_headers=True)
        positions = {partition: await consumer.position(partition) for partition in consumer.assignment()}
    assert found.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    rows = found.to_pylist()
    assert {row["topic"] for row in rows} == {topic}
    sent = [row for row in rows if row["value"] != b"by send"]
    assert {row["timestamp"] for row in sent} == {MOMENT}
    assert sorted((row["key"] or b"", row["value"] or b"", str(row["headers"])) for row in sent) == sorted(
        (key or b"", value or b"", str(some)) for key, value, some in zip(keys, values, headers, strict=True)
    )
    assert all(row["partition"] == places[row["key"]] for row in sent if row["key"])
    for partition in range(3):
        of_partition = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in of_partition] == list(range(len(of_partition)))
        assert positions[TopicPartition(topic, partition)] == len(of_partition)
        sent_there = [row for row in sent if row["partition"] == partition]
        assert columns_sent.partitions.get(partition, (0, -1, -1)) == (
            len(sent_there),
            0,
            len(sent_there) - 1,
        )
        numbers = [int(row["value"][1:]) for row in sent_there if row["key"] and row["value"]]
        assert numbers == sorted(numbers)


async def test_records_and_columns_are_read_in_turn_from_where_one_seeks(cluster: RunningCluster) -> None:
    await create(cluster, "in-turn")
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(0, 100, 10):
            await producer.send("in-turn", b"%d" % number)
            rows = pa.table({"value": [str(number + step) for step in range(1, 10)]})
            await producer.send_arrow("in-turn", rows)
        await producer.flush()
    here = TopicPartition("in-turn", 0)
    async with reader(cluster, group_id="in-turn") as consumer:
        consumer.assign([here])
        seen: list[bytes] = []
        while len(seen) < 90:
            batch = await consumer.fetch_arrow(here, timeout_ms=5_000, max_records=4)
            assert 0 < batch.num_rows <= 4
            seen += batch["value"].to_pylist()
            assert await consumer.position(here) == len(seen)
            for records in (await consumer.getmany(timeout_ms=5_000, max_records=3)).values():
                seen += [record.value or b"" for record in records]
        assert seen == [b"%d" % number for number in range(len(seen))]
        consumer.seek(here, 42)
        batch = await consumer.fetch_arrow(timeout_ms=5_000)
        assert batch["offset"].to_pylist()[0] == 42
        await consumer.commit()
        assert await consumer.committed(here) == 42 + batch.num_rows
        consumer.seek_to_end(here)
        assert (await consumer.fetch_arrow(timeout_ms=50)).num_rows == 0
        consumer.seek(here, 0)
        consumer.pause(here)
        assert (await consumer.fetch_arrow(timeout_ms=50)).num_rows == 0
        consumer.resume(here)
        assert (await consumer.fetch_arrow(timeout_ms=5_000))["offset"].to_pylist()[0] == 0


async def test_only_committed_columns_are_read(cluster: RunningCluster) -> None:
    await create(cluster, "committed")
    rows = [pa.table({"value": [f"{name}{number}" for number in range(200)]}) for name in "abc"]
    async with Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id="columns", batch_size=500
    ) as producer:
        with pytest.raises(OutOfTurn):
            await producer.send_arrow("committed", rows[0])
        async with producer.transaction():
            await producer.send_arrow("committed", rows[0])
        await producer.begin_transaction()
        delivery = await producer.send_arrow("committed", rows[1])
        await producer.flush()
        await producer.abort_transaction()
        assert (await delivery).records == 200
        async with producer.transaction():
            await producer.send("committed", b"one record")
            delivery = await producer.send_arrow("committed", rows[2])
        assert (await delivery).partitions[0].records == 200
    async with reader(cluster, "committed", isolation_level="read_committed") as consumer:
        found = (await read_all(consumer, 401))["value"].to_pylist()
    expected = [*rows[0]["value"].to_pylist(), "one record", *rows[2]["value"].to_pylist()]
    assert found == [text.encode() for text in expected]
    async with reader(cluster, "committed") as consumer:
        assert (await read_all(consumer, 601)).num_rows == 601


async def begun_sending(producer: Producer, topic: str) -> asyncio.Task[Any]:
    """Begin to send rows, and return while some are not accepted yet."""
    table = pa.table({"value": ["v" * 100] * 20_000})
    sending = asyncio.create_task(producer.send_arrow(topic, table))
    while not producer._sender._queues:
        await asyncio.sleep(0)
    return sending


async def test_rows_of_a_transaction_that_ends_meanwhile_are_not_part_of_the_next(
    cluster: RunningCluster,
) -> None:
    await create(cluster, "meanwhile")
    async with Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id="hasty", batch_size=1_000
    ) as producer:
        await producer.begin_transaction()
        sending = await begun_sending(producer, "meanwhile")
        await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises((TransactionAborted, OutOfTurn)):
            await sending
        await producer.send("meanwhile", b"the next")
        await producer.commit_transaction()
    async with reader(cluster, "meanwhile", isolation_level="read_committed") as consumer:
        assert (await read_all(consumer, 1))["value"].to_pylist() == [b"the next"]


async def test_rows_that_were_handed_over_in_part_keep_their_transaction_from_being_committed(
    cluster: RunningCluster,
) -> None:
    await create(cluster, "in-part")
    async with Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id="in-part", batch_size=1_000
    ) as producer:
        await producer.begin_transaction()
        sending = await begun_sending(producer, "in-part")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(
            TransactionFailed, match="rows of columns for topic 'in-part' were not all handed"
        ):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_arrow("in-part", pa.table({"value": ["the next"]}))
    async with reader(cluster, "in-part", isolation_level="read_committed") as consumer:
        assert (await read_all(consumer, 1))["value"].to_pylist() == [b"the next"]


async def test_a_large_table_goes_through_a_small_buffer(cluster: RunningCluster) -> None:
    await create(cluster, "large", 4)
    count, most = 200_000, 0
    table = pa.table({"key": [f"k{number % 1000}" for number in range(count)], "value": ["v" * 100] * count})
    async with Producer(
        bootstrap_servers=cluster.bootstrap, buffer_memory=500_000, batch_size=50_000
    ) as producer:
        sending = asyncio.create_task(producer.send_arrow("large", table))
        while not sending.done():
            await asyncio.sleep(0)
            most = max(most, producer._appender.buffered_bytes)
        columns_sent = await (await sending)
        assert producer._appender.buffered_bytes == 0
    assert columns_sent.records == count
    assert 100_000 < most <= 500_000
    async with reader(cluster, "large") as consumer:
        found = await read_all(consumer, count)
    assert found.num_rows == count
    for partition, rows in columns_sent.partitions.items():
        assert rows == (found["partition"].to_pylist().count(partition), 0, rows.records - 1)


async def test_partitions_take_turns(cluster: RunningCluster) -> None:
    await create(cluster, "turns", 2)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for partition in range(2):
            await (await producer.send_arrow("turns", pa.table({"value": ["v"] * 10}), partition=partition))
    async with reader(cluster, "turns") as consumer:
        async with asyncio.timeout(60):
            while (
                not all(state.buffer for state in consumer._fetcher.assigned.values())
                or not consumer.assignment()
            ):
                await asyncio.sleep(0.01)
        turns = [await consumer.fetch_arrow(max_records=3) for _ in range(4)]
        assert [set(turn["partition"].to_pylist()) for turn in turns] in ([{0}, {1}] * 2, [{1}, {0}] * 2)
        here, there = (TopicPartition("turns", index) for index in range(2))
        assert set((await consumer.fetch_arrow(there))["partition"].to_pylist()) == {1}
        assert await consumer.position(here) == 6
        assert await consumer.position(there) == 10


async def test_what_stands_before_damage_comes_first(cluster: RunningCluster) -> None:
    await create(cluster, "damaged")
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for name in "abc":
            await producer.send_and_wait("damaged", name.encode())
    here = TopicPartition("damaged", 0)
    async with reader(cluster) as consumer:
        consumer.assign([here])
        async with asyncio.timeout(60):
            while not consumer._fetcher.assigned[here].buffer:
                await asyncio.sleep(0.01)
        chunk = consumer._fetcher.assigned[here].buffer[0]
        broken = bytearray(chunk._batches)
        broken[-1] ^= 1
        chunk._batches = memoryview(broken)
        chunk._walk = type(chunk)(here, chunk._batches, 0)._walk
        assert (await consumer.fetch_arrow())["value"].to_pylist() == [b"a", b"b"]
        with pytest.raises(KafkaError) as caught:
            await consumer.fetch_arrow()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert await consumer.position(here) == 2
        assert (await consumer.fetch_arrow(timeout_ms=5_000))["value"].to_pylist() == [b"c"]  # fetched again


def test_without_an_event_loop(cluster: RunningCluster) -> None:
    table = pa.table({"key": ["a", None, "c"], "value": ["1", "2", "3"]})
    with ottla.sync.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send("no-loop", b"0", partition=0)
        sent = producer.send_arrow("no-loop", table, partition=0, timeout_ms=30_000)
    assert sent == ("no-loop", 3, {0: (3, 1, 3)})
    with ottla.sync.Consumer(
        "no-loop", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        batch = consumer.fetch_arrow(timeout_ms=10_000, max_records=3)
        assert batch["value"].to_pylist() == [b"0", b"1", b"2"]

        async def interrupted() -> None:
            consumer._read_columns_again(batch)

        consumer._loop.run(interrupted())
        assert consumer.fetch_arrow(timeout_ms=10_000)["key"].to_pylist() == [None, b"a", None, b"c"]
