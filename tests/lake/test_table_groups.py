"""Tables of one group at their common cuts: a bank whose transfers are transactions over two topics."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path

import pytest

from ottla import Producer
from tests.cluster import RunningCluster
from tests.lake.written_tables import catalog, create, rows, worker

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("lake")]
TOPICS = ("checking", "savings")


async def transfers(cluster: RunningCluster, name: str, stop: asyncio.Event) -> int:
    """Move money between accounts until `stop`; some transfers abort. Returns the number of transfers."""
    chance, done = random.Random(name), 0
    async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=name, linger_ms=0) as producer:
        while not stop.is_set():
            amount = chance.randint(1, 100)
            await producer.begin_transaction()
            for topic, change in zip(chance.sample(TOPICS, 2), (amount, -amount), strict=True):
                await producer.send(topic, b"%d" % change, partition=chance.randrange(2))
            if chance.random() < 0.1:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                done += 1
    return done


def total(folder: Path, table: str, tag: str | None = None) -> int:
    return sum(int(row["value"]) for row in rows(folder, table, tag))


async def test_tables_of_a_group_have_the_same_transactions_at_each_tag(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    for topic in TOPICS:
        await create(cluster, topic, 2, group="bank")
    stop = asyncio.Event()
    writing = [asyncio.create_task(transfers(cluster, f"teller-{number}", stop)) for number in range(2)]
    for _ in range(4):
        await asyncio.sleep(0.1)  # Transfers go on while the worker starts, reads and commits.
        assert await worker(cluster, tmp_path, *TOPICS).run()
    stop.set()
    done = sum(await asyncio.gather(*writing))
    assert await worker(cluster, tmp_path, *TOPICS).run()
    there = catalog(tmp_path)
    tags = [
        {tag for tag in there.load_table(f"lake.{topic}").metadata.refs if tag.startswith("cut-")}
        for topic in TOPICS
    ]
    assert tags[0] == tags[1]
    assert len(tags[0]) >= 4
    for tag in tags[0]:
        assert total(tmp_path, "lake.checking", tag) + total(tmp_path, "lake.savings", tag) == 0
    assert sum(len(rows(tmp_path, f"lake.{topic}")) for topic in TOPICS) == 2 * done
    noted = defaultdict(dict)
    for row in there.load_table("lake.cuts").scan().to_arrow().to_pylist():
        noted[f"cut-{row['cut']}"][row["table"]] = row["snapshot"]
    assert dict(noted) == {
        tag: {
            f"lake.{topic}": there.load_table(f"lake.{topic}").metadata.refs[tag].snapshot_id
            for topic in TOPICS
        }
        for tag in tags[0]
    }
