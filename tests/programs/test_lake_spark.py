"""Spark with Iceberg's runtime reads tables that `ottla lake run` wrote: by the folder's path, and by the catalog over
HTTP.

Iceberg's newest runtime on Maven Central is for Spark 4.1, so this Spark has an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla import Producer
from tests.cluster import RunningCluster
from tests.commands import run_ottla
from tests.lake.conftest import cluster as cluster
from tests.lake.served_catalog import served_catalog
from tests.lake.test_table_groups import TOPICS, transfers
from tests.lake.written_tables import catalog, create, rows
from tests.programs.environments import SCRIPTS, Environment
from tests.programs.jvm import Jars, needs_jdk

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(900)]
PYTHON = Environment("lake_spark")
RUNTIME = Jars("iceberg-spark", ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",))
ROUNDS = 3


async def write_accounts(cluster: RunningCluster, first: int) -> None:
    """Change three accounts, delete one of them, and add a column in the second round."""
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(first, first + 6):
            change: dict[str, Any] = {"amount": number} | ({"owner": f"o{number}"} if first else {})
            await producer.send_and_wait("accounts", json.dumps(change).encode(), key=b"k%d" % (number % 3))
        await producer.send_and_wait("accounts", None, key=b"k0")


async def run(*words: str) -> None:
    """Run a command, which must succeed."""
    done = await asyncio.to_thread(run_ottla, *words)
    assert done.returncode == 0, (words, done.stderr)


async def write_lake(cluster: RunningCluster, folder: Path) -> None:
    """Write the tables by some rounds of the worker, while transfers go on, and compact them."""
    for topic in TOPICS:
        await create(cluster, topic, 2, group="bank")
    await create(cluster, "accounts", 1, mode="upsert")
    stop = asyncio.Event()
    writing = asyncio.create_task(transfers(cluster, "teller", stop))
    for number in range(ROUNDS):
        await write_accounts(cluster, 6 * number)
        await run("lake", "run", "--lake", str(folder), "--once", "-b", cluster.bootstrap)
    stop.set()
    await writing
    await run("lake", "compact", "--lake", str(folder))


def expected(folder: Path) -> dict[str, Any]:
    """Return what Spark has to find, as pyiceberg reads it."""
    refs = catalog(folder).load_table("lake.checking").metadata.refs
    newest = {
        topic: [
            [row["ottla"]["partition"], row["ottla"]["offset"], row["value"].decode()]
            for row in rows(folder, f"lake.{topic}")
        ]
        for topic in TOPICS
    }
    tags = {
        tag: [sum(int(row["value"]) for row in rows(folder, f"lake.{topic}", tag)) for topic in TOPICS]
        for tag in refs
        if tag.startswith("cut-")
    }
    last = 6 * ROUNDS - 1
    accounts = [["k1", f"o{last - 1}", last - 1], ["k2", f"o{last}", last]]
    return {"newest": newest, "tags": tags, "accounts": accounts}


async def test_spark_reads_tables_by_the_path_and_by_the_catalog(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    await write_lake(cluster, tmp_path)
    (jar,) = RUNTIME.folder.glob("iceberg-spark-runtime-*.jar")
    with served_catalog(tmp_path) as address:
        argv = [PYTHON.python, SCRIPTS / "lake_spark.py", jar, tmp_path, address]
        done = await asyncio.to_thread(
            subprocess.run, argv, capture_output=True, text=True, check=False, timeout=600
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    wanted = expected(tmp_path)
    assert found == {"path": wanted["newest"], "folder": wanted, "served": wanted}
    assert len(wanted["tags"]) >= ROUNDS
    assert all(sum(totals) == 0 for totals in wanted["tags"].values()), "each transfer is in both tables"
    assert all(wanted["newest"].values())
