"""Tables that a worker has written from a cluster, read back by pyiceberg and by DuckDB."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, NestedField

from ottla import Admin, Producer, TopicPartition
from ottla.client.admin import TOPIC_RESOURCE
from ottla.lake import cluster_view
from ottla.lake.cluster_view import LakeView
from ottla.lake.iceberg import files
from ottla.lake.iceberg.schemas import RECORD
from ottla.lake.iceberg.tables import EPOCH, Epoch, LakeTable, newest_with_position, summary_of
from ottla.lake.position import PartitionReach, read_position
from ottla.lake.status import TableStatus, table_status
from ottla.lake.table_group import TableGroup
from ottla.lake.topic_table import Consent
from tests.cluster import RunningCluster
from tests.lake.written_tables import catalog, create, rows, values, worker

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("lake")]
MOMENT = datetime(2026, 5, 6, 7, 8, 9, 123000, UTC)


async def test_a_raw_table_has_each_committed_record_once(cluster: RunningCluster, tmp_path: Path) -> None:
    """Three workers, one after the other; one transaction is open while the first two write, and another aborts."""
    await create(cluster, "raw")
    expected: dict[tuple[int, int], bytes] = {}

    def note(sent: object, value: bytes) -> None:
        expected[sent.partition, sent.offset] = value  # type: ignore[attr-defined]

    async with (
        Producer(bootstrap_servers=cluster.bootstrap) as plain,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id="fast") as fast,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id="slow") as slow,
    ):
        await slow.begin_transaction()
        for partition in (0, 1):
            note(await slow.send_and_wait("raw", b"slow", partition=partition), b"slow")
        for number in range(50):
            value = b"plain %d" % number
            note(await plain.send_and_wait("raw", value, partition=number % 2, timestamp_ms=number), value)
        async with fast.transaction():
            note(await fast.send_and_wait("raw", b"fast", partition=1), b"fast")
        await fast.begin_transaction()
        await fast.send_and_wait("raw", b"aborted", partition=0)
        await fast.abort_transaction()
        open_now = {place: value for place, value in expected.items() if value == b"slow"}
        assert await worker(cluster, tmp_path, "raw").run()
        assert values(tmp_path, "lake.raw") == {
            place: value for place, value in expected.items() if place not in open_now
        }
        note(await plain.send_and_wait("raw", b"later", partition=0), b"later")
        assert await worker(cluster, tmp_path, "raw").run()
        assert len(values(tmp_path, "lake.raw")) == len(expected) - 2
        await slow.commit_transaction()
    assert await worker(cluster, tmp_path, "raw").run()
    assert values(tmp_path, "lake.raw") == expected
    snapshots = catalog(tmp_path).load_table("lake.raw").snapshots()
    assert len(snapshots) == 3
    assert await worker(cluster, tmp_path, "raw").run()
    assert len(catalog(tmp_path).load_table("lake.raw").snapshots()) == 3  # There was nothing to write.


async def test_keys_headers_and_timestamps_are_in_the_column_ottla(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    await create(cluster, "whole", 1, partition_by="day(timestamp)")
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        ms = int(MOMENT.timestamp() * 1000)
        await producer.send_and_wait(
            "whole", b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=ms
        )
        await producer.send_and_wait("whole", None, timestamp_ms=0)
        await producer.send_and_wait("whole", b"", timestamp_ms=ms - 86_400_000)
    assert await worker(cluster, tmp_path, "whole").run()
    first, second, third = rows(tmp_path, "lake.whole")
    assert first["ottla"] == {
        "partition": 0,
        "offset": 0,
        "timestamp": MOMENT,
        "key": b"k",
        "headers": [{"name": "h", "value": b"1"}, {"name": "n", "value": None}],
    }
    assert (second["value"], second["ottla"]["timestamp"]) == (None, datetime(1970, 1, 1, tzinfo=UTC))
    assert (third["value"], third["ottla"]["key"]) == (b"", None)
    table = catalog(tmp_path).load_table("lake.whole")
    assert len(list(table.scan().plan_files())) == 3
    assert (
        len(list(table.scan(row_filter="ottla.timestamp >= '2026-05-06T00:00:00+00:00'").plan_files())) == 1
    )


async def test_duckdb_reads_the_files_of_a_table(cluster: RunningCluster, tmp_path: Path) -> None:
    await create(cluster, "orders", 1, mode="json")
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(100):
            order = {"customer": f"c{number % 3}", "amount": number / 2, "lines": [{"sku": "x", "n": number}]}
            await producer.send("orders", json.dumps(order).encode())
        await producer.flush()
    assert await worker(cluster, tmp_path, "orders").run()
    paths = [file.file.file_path for file in catalog(tmp_path).load_table("lake.orders").scan().plan_files()]
    found = duckdb.execute(
        "SELECT customer, sum(amount), sum(lines[1].n), count(DISTINCT ottla.offset) FROM read_parquet(?) "
        "GROUP BY customer ORDER BY customer",
        [[path.removeprefix("file://") for path in paths]],
    ).fetchall()
    assert found == [
        (
            f"c{rest}",
            sum(n / 2 for n in range(rest, 100, 3)),
            sum(range(rest, 100, 3)),
            len(range(rest, 100, 3)),
        )
        for rest in range(3)
    ]


async def test_columns_follow_the_records_and_others_are_dead_letters(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    await create(cluster, "events", 1, mode="json")
    batches: list[list[bytes]] = [
        [b'{"id": 1}', b'{"id": 2, "tags": ["a"]}', b"no JSON", b'{"id": "x"}'],
        [
            b'{"id": 3, "at": {"lat": 1.5}}',
            b'{"id": 4, "at": {"lon": 2}}',
            b'{"id": 5, "at": "home"}',
            b'{"ID": 6}',
        ],
    ]
    for batch in batches:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for value in batch:
                await producer.send_and_wait("events", value)
        assert await worker(cluster, tmp_path, "events").run()
    found = [
        {name: value for name, value in row.items() if name != "ottla"}
        for row in rows(tmp_path, "lake.events")
    ]
    assert found == [
        {"id": 1, "tags": None, "at": None},
        {"id": 2, "tags": ["a"], "at": None},
        {"id": 3, "tags": None, "at": {"lat": 1.5, "lon": None}},
        {"id": 4, "tags": None, "at": {"lat": None, "lon": 2}},
    ]
    letters = rows(tmp_path, "lake.events__dlq")
    assert [(row["ottla"]["offset"], row["value"], row["error"]) for row in letters] == [
        (2, b"no JSON", "the value is not JSON: Expecting value at character 0"),
        (3, b'{"id": "x"}', "id is text, and the column is long"),
        (6, b'{"id": 5, "at": "home"}', "at is text, and the column is a struct"),
        (7, b'{"ID": 6}', "field 'ID' and column 'id' differ in upper and lower case alone"),
    ]


@pytest.mark.parametrize("fate", ["fail", "skip"])
async def test_bad_records_stop_a_table_or_are_left_out(
    cluster: RunningCluster, tmp_path: Path, fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"strict_{fate}"
    await create(cluster, topic, 1, mode="json", bad_records=fate)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in (b'{"a": 1}', b"bad", b'{"a": 2}'):
            await producer.send_and_wait(topic, value)
    done = await worker(cluster, tmp_path, topic).run()
    assert "partition 0, offset 1: the value is not JSON" in caplog.text
    assert not catalog(tmp_path).table_exists(f"lake.{topic}__dlq")
    if fate == "skip":
        assert done
        assert [row["a"] for row in rows(tmp_path, f"lake.{topic}")] == [1, 2]
        return
    assert not done
    assert rows(tmp_path, f"lake.{topic}") == []
    assert list((tmp_path / "lake" / topic).rglob("*.parquet")) == []  # The files of the round are deleted.
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.alter_configs(TOPIC_RESOURCE, topic, {"ottla.lake.bad_records": "dead-letter"})
    assert await worker(cluster, tmp_path, topic).run()
    assert [row["a"] for row in rows(tmp_path, f"lake.{topic}")] == [1, 2]
    assert [row["value"] for row in rows(tmp_path, f"lake.{topic}__dlq")] == [b"bad"]


async def test_a_topic_that_was_made_anew_and_lost_records_need_a_person(
    cluster: RunningCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await create(cluster, "anew", 1)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("anew", b"former")
    assert await worker(cluster, tmp_path, "anew").run()
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.delete_topics(["anew"])
        await create(cluster, "anew", 1)
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send_and_wait("anew", b"first")
        assert not await worker(cluster, tmp_path, "anew").run()
        assert "it was made anew" in caplog.text
        assert await worker(cluster, tmp_path, "anew", consent=Consent(new_topics=True)).run()
        assert sorted(row["value"] for row in rows(tmp_path, "lake.anew")) == [b"first", b"former"]

        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for value in (b"deleted", b"last"):
                await producer.send_and_wait("anew", value)
        await admin.delete_records({TopicPartition("anew", 0): 2})
        assert not await worker(cluster, tmp_path, "anew").run()
        assert "anew-0 begins at offset 2 by now, and offsets from 1 on are not in the table" in caplog.text
        assert await worker(cluster, tmp_path, "anew", consent=Consent(lost_records=True)).run()
    assert sorted(row["value"] for row in rows(tmp_path, "lake.anew")) == [b"first", b"former", b"last"]


async def test_a_log_that_ends_before_the_table_needs_a_person(
    cluster: RunningCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_view, "PATIENCE_S", 0.0)
    await create(cluster, "shorter", 1)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("shorter", b"first")
        assert await worker(cluster, tmp_path, "shorter").run()
        table = LakeTable(catalog(tmp_path), "lake.shorter", Epoch(0, 0))
        table.refresh()
        snapshot = newest_with_position(table.table)
        assert snapshot is not None
        start = read_position(summary_of(snapshot))
        assert start is not None
        beyond = replace(start, places={0: PartitionReach(9, 9)})
        table.table.transaction().set_properties({EPOCH: ""}).commit_transaction()
        table.open(table.table.schema())
        table.append([], start, beyond)
        lost = "shorter-0 ends at offset 1 by now, and was read up to 9: its log has lost records"
        assert not await worker(cluster, tmp_path, "shorter").run()
        assert lost in caplog.text
        assert lost in (await status_of(cluster, tmp_path, "lake.shorter")).problem
        assert await worker(cluster, tmp_path, "shorter", consent=Consent(lost_records=True)).run()
        await producer.send_and_wait("shorter", b"last")
    assert await worker(cluster, tmp_path, "shorter").run()
    assert values(tmp_path, "lake.shorter") == {(0, 0): b"first", (0, 1): b"last"}
    assert not (await status_of(cluster, tmp_path, "lake.shorter")).problem


async def status_of(cluster: RunningCluster, folder: Path, table: str) -> TableStatus:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        view = LakeView(admin)
        await view.start()
        return await table_status(await view.settings_of(table), view, catalog(folder))


async def test_a_later_worker_ends_an_earlier_one(
    cluster: RunningCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await create(cluster, "fenced", 1, **{"commit.ms": "1000"})
    caplog.set_level(logging.INFO)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("fenced", b"1")
        first = worker(cluster, tmp_path, "fenced", once=False)
        running = asyncio.create_task(first.run())
        async with asyncio.timeout(30):
            while "table lake.fenced: cut" not in caplog.text:
                await asyncio.sleep(0.02)
        assert await worker(cluster, tmp_path, "fenced").run()
        async with asyncio.timeout(30):
            while "this worker leaves it alone" not in caplog.text:
                await producer.send_and_wait("fenced", b"more")
                await asyncio.sleep(0.2)
        first.stop()
        assert not await running
    assert await worker(cluster, tmp_path, "fenced").run()
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        end = (await admin.list_offsets({TopicPartition("fenced", 0): -1}))[TopicPartition("fenced", 0)]
    assert len(values(tmp_path, "lake.fenced")) == end


async def test_a_table_that_others_made_keeps_its_columns(
    cluster: RunningCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = NestedField(1, "ottla", RECORD, required=False)
    await worker(cluster, tmp_path, "nothing").run()
    there = catalog(tmp_path)
    there.create_namespace_if_not_exists("sales")
    there.create_table("sales.prices", Schema(own, NestedField(2, "price", DoubleType(), required=False)))
    there.create_table("sales.binary", Schema(own, NestedField(2, "payload", BinaryType(), required=False)))
    await create(cluster, "prices", 1, mode="json", table="sales.prices")
    await create(cluster, "binary", 1, table="sales.binary")
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in (b'{"price": 1}', b'{"price": 1.5}'):
            await producer.send_and_wait("prices", value)
    assert not await worker(cluster, tmp_path, "prices", "binary").run()
    assert "table sales.binary: column value is missing" in caplog.text
    assert [row["price"] for row in rows(tmp_path, "sales.prices")] == [1.0, 1.5]


async def test_large_rounds_are_many_files_with_bounded_rows(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are small here: row groups of 32 KiB, files of some 64 KiB, and rounds of 300 offsets."""
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 32 * 1024)
    monkeypatch.setattr(files, "FILE_BYTES", 64 * 1024)
    monkeypatch.setattr("ottla.lake.table_group.OFFSETS_PER_ROUND", 300)
    monkeypatch.setattr("ottla.lake.window_reader.BATCH_ROWS", 40)
    await create(cluster, "large", 2)
    async with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=5) as producer:
        for number in range(1_000):
            await producer.send("large", b"%04d" % number * 256, partition=number % 2)
        await producer.flush()
    assert await worker(cluster, tmp_path, "large").run()
    found = values(tmp_path, "lake.large")
    assert sorted(found.values()) == [b"%04d" % number * 256 for number in range(1_000)]
    table = catalog(tmp_path).load_table("lake.large")
    assert len(table.snapshots()) == 4
    assert len(list(table.scan().plan_files())) >= 4


async def test_an_unforeseen_error_ends_no_table(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RuntimeError("as the test says")]
    round_of = TableGroup.round

    async def fails_once(group: TableGroup) -> bool:
        if failures:
            raise failures.pop()
        return await round_of(group)

    monkeypatch.setattr(TableGroup, "round", fails_once)
    await create(cluster, "unforeseen", 1)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("unforeseen", b"1")
    caplog.set_level(logging.INFO)
    writing = worker(cluster, tmp_path, "unforeseen", once=False)
    running = asyncio.create_task(writing.run())
    async with asyncio.timeout(60):
        while "table lake.unforeseen: cut" not in caplog.text:
            await asyncio.sleep(0.02)
    writing.stop()
    assert await running
    assert "lake.unforeseen: an unforeseen error; it is tried again" in caplog.text
    assert list(values(tmp_path, "lake.unforeseen").values()) == [b"1"]
