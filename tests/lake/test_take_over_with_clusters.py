"""Tables that go on after a restoration: they have the records of the restored topic, each exactly once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Producer
from tests.cluster import RunningCluster, running_cluster
from tests.commands import run_ottla
from tests.integration.mirroring import records_of
from tests.integration.restorations import backup_to, restore_from, run
from tests.lake.written_tables import catalog, create, rows, values, worker

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("lake"), pytest.mark.timeout(240)]
SIDES = ("checking", "savings")


async def transfer(cluster: RunningCluster, topics: list[str], numbers: range) -> None:
    """Move sums from one topic to the other, in transactions of which each fifth aborts."""
    async with Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id=topics[0], linger_ms=0
    ) as producer:
        for number in numbers:
            await producer.begin_transaction()
            for topic, sign in zip(topics, (1, -1), strict=True):
                await producer.send(topic, b"%d" % (sign * number), partition=number % 2)
            await (producer.abort_transaction() if number % 5 == 4 else producer.commit_transaction())


def take_over(
    cluster: RunningCluster, lake: Path, table: str, *words: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run `ottla lake take-over` in a cluster."""
    done = run_ottla(
        "lake",
        "take-over",
        "--lake",
        str(lake),
        table,
        *words,
        environ={**os.environ, "OTTLA_BOOTSTRAP": cluster.bootstrap},
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


async def committed(cluster: RunningCluster, topic: str) -> dict[tuple[int, int], bytes]:
    """Return the committed values of a topic by partition and offset."""
    found = await records_of(cluster.bootstrap, topic, "read_committed")
    return {(partition, record[0]): record[3] for partition, some in found.items() for record in some}


def tags(lake: Path, table: str) -> set[str]:
    return {tag for tag in catalog(lake).load_table(table).metadata.refs if tag.startswith("cut-")}


def total(lake: Path, table: str, tag: str) -> int:
    return sum(int(row["value"]) for row in rows(lake, table, tag))


async def test_tables_of_a_group_that_are_ahead_go_back_and_on_in_their_own_cluster(
    cluster: RunningCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake, store = tmp_path / "lake", tmp_path / "store"
    store.mkdir()
    topics = [f"{side}_{uuid.uuid4().hex[:8]}" for side in SIDES]
    for topic in topics:
        await create(cluster, topic, 2, group=topics[0])
    for first in (0, 20):
        await transfer(cluster, topics, range(first, first + 20))
        assert await worker(cluster, lake, *topics).run()
    words = backup_to(store, cluster, "--topics", "|".join(topics), "--groups", "")
    await asyncio.to_thread(run, *words)
    await transfer(cluster, topics, range(40, 60))
    assert await worker(cluster, lake, *topics).run()
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.delete_topics(topics)
    await asyncio.to_thread(run, *restore_from(store, cluster))
    await transfer(cluster, topics, range(60, 90))  # They have the offsets of lost records.

    assert not await worker(cluster, lake, *topics).run()
    assert f"`ottla lake take-over lake.{topics[0]}`" in caplog.text
    for topic in topics:
        refused = await asyncio.to_thread(take_over, cluster, lake, f"lake.{topic}", code=1)
        assert f"has records of {topic}-0 up to offset " in refused.stderr
        assert "--roll-back" in refused.stderr
        done = await asyncio.to_thread(take_over, cluster, lake, f"lake.{topic}", "--roll-back")
        assert "goes on with topic" in done.stdout
    assert await worker(cluster, lake, *topics).run()
    for topic in topics:
        expected = await committed(cluster, topic)
        assert len(expected) == (40 + 30) * 4 // 5
        assert values(lake, f"lake.{topic}") == expected
    common = tags(lake, f"lake.{topics[0]}") & tags(lake, f"lake.{topics[1]}")
    assert len(common) >= 3
    for tag in common:
        assert sum(total(lake, f"lake.{topic}", tag) for topic in topics) == 0


async def offsets_of(lake: Path, table: str) -> list[tuple[int, int]]:
    """Return partition and offset of the rows and of the dead letters of a table."""
    found: list[dict[str, Any]] = rows(lake, table) + rows(lake, f"{table}__dlq")
    return sorted((row["ottla"]["partition"], row["ottla"]["offset"]) for row in found)


async def test_a_table_with_dead_letters_goes_on_in_another_cluster(
    cluster: RunningCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A transaction is open where the table stands, and committed at the cut."""
    lake, store = tmp_path / "lake", tmp_path / "store"
    store.mkdir()
    topic = f"bills_{uuid.uuid4().hex[:8]}"
    await create(cluster, topic, 2, mode="json")
    async with (
        Producer(bootstrap_servers=cluster.bootstrap) as plain,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as slow,
    ):
        await slow.begin_transaction()
        for value in (b'{"a": 1}', b"bad in a transaction"):
            await slow.send_and_wait(topic, value, partition=0)
        for value in (b'{"a": 2}', b"bad", b'{"a": 3}'):
            await plain.send_and_wait(topic, value, partition=0)
        assert await worker(cluster, lake, topic).run()
        await slow.commit_transaction()
        await plain.send_and_wait(topic, b'{"a": 4}', partition=1)
    await asyncio.to_thread(run, *backup_to(store, cluster, "--topics", topic, "--groups", ""))

    (tmp_path / "east").mkdir()
    with running_cluster(tmp_path / "east", quorum=1, brokers=1, arguments=("--combined",)) as east:
        await asyncio.to_thread(run, *restore_from(store, east))
        async with Producer(bootstrap_servers=east.bootstrap) as plain:
            for partition, value in ((0, b'{"a": 5}'), (1, b"bad in the east")):
                await plain.send_and_wait(topic, value, partition=partition)
        before = await offsets_of(lake, f"lake.{topic}")
        assert not await worker(east, lake, topic).run()
        assert f"`ottla lake take-over lake.{topic}`" in caplog.text
        looked = await asyncio.to_thread(take_over, east, lake, f"lake.{topic}", "--dry-run")
        assert "would go on" in looked.stdout
        assert not await worker(east, lake, topic).run(), "it was only looked at"
        await asyncio.to_thread(take_over, east, lake, f"lake.{topic}")
        again = await asyncio.to_thread(take_over, east, lake, f"lake.{topic}")
        assert "nothing is to be done" in again.stdout
        assert await worker(east, lake, topic).run()
        expected = await committed(east, topic)
        assert await offsets_of(lake, f"lake.{topic}") == sorted(expected)
    assert len(expected) == 8
    assert set(before) < set(expected)
    assert [row["a"] for row in rows(lake, f"lake.{topic}")] == [1, 2, 3, 5, 4]
