"""A store in gofakes3, a server that speaks the protocol of S3 and keeps its objects in a file. It is killed during
backups and restorations.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.client.objects.opening import open_store
from tests.client.objects.store_servers import check_store, running
from tests.cluster import running_cluster
from tests.commands import run_ottla
from tests.integration.foreign_builds import gofakes3, needs_go
from tests.integration.mirroring import records_of

pytestmark = [needs_go, pytest.mark.timeout(600)]  # The first run builds the server.

BUCKET = "bucket"
URL = f"s3://{BUCKET}/some/prefix"
TOPIC = "orders"
TRANSACTIONS, RECORDS_OF_ONE, RECORD_BYTES = 40, 20, 2_000
LIVES_S = (0.2, 2.0)
"""The shortest and the longest life of the server."""
KILLS = 3
DEADLINE_S = 120


class Server:
    """A server that is killed and started again at one address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        self.address = "127.0.0.1:0"
        self.kills = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the end of the block, which kills it."""
        argv = [gofakes3(), str(self._folder / "objects"), self.address, BUCKET]
        with running(self._log, argv, "serving") as url:
            self.address = url.removeprefix("http://")
            yield

    @contextmanager
    def killed_at_times(self, seed: int) -> Iterator[None]:
        """Run the server until the end of the block, and kill it again and again."""
        stop, chance = Event(), random.Random(seed)

        def kill() -> None:
            while not stop.is_set():
                with self.running():
                    stop.wait(chance.uniform(*LIVES_S))
                self.kills += 1

        killing = Thread(target=kill)
        killing.start()
        try:
            yield
        finally:
            stop.set()
            killing.join()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a server, and let this process and its children use it as S3."""
    server = Server(tmp_path)
    with server.running():
        pass
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.address}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "some-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "some-secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return server


async def test_a_server_creates_reads_lists_and_deletes_objects(server: Server) -> None:
    with server.running():
        await check_store(open_store(URL, 20))


async def test_a_backup_and_its_restoration_outlive_kills_of_the_server(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    with (
        running_cluster(tmp_path / "source", quorum=1, brokers=1) as source,
        running_cluster(tmp_path / "target", quorum=1, brokers=1) as target,
    ):
        await write(source.bootstrap)
        with server.killed_at_times(seed=0):
            while server.kills < KILLS:
                await asyncio.to_thread(run, "backup", "--to", URL, "-b", source.bootstrap)
            found = await asyncio.to_thread(run, "backup", "verify", URL, "-o", "json")
            assert json.loads(found.stdout)["damages"] == []
            before, copies = server.kills, list[str]()
            while server.kills == before:
                copies.append(f"{TOPIC}-{len(copies)}")
                words = ("--from", URL, "-b", target.bootstrap, "--rename", f"{TOPIC}={copies[-1]}")
                await asyncio.to_thread(run, "cluster", "restore", *words)
        expected = await records_of(source.bootstrap, TOPIC, "read_committed")
        assert sum(map(len, expected.values())) == TRANSACTIONS * RECORDS_OF_ONE
        for copy in copies:
            assert await records_of(target.bootstrap, copy, "read_committed") == expected


async def write(bootstrap: str) -> None:
    """Write transactions over two partitions."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, 2, 1)])
    async with Producer(bootstrap_servers=bootstrap, transactional_id=TOPIC, linger_ms=0) as producer:
        for number in range(TRANSACTIONS):
            async with producer.transaction():
                for record in range(RECORDS_OF_ONE):
                    value = random.Random(number).randbytes(RECORD_BYTES)
                    await producer.send(TOPIC, value, partition=record % 2)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command, which must succeed."""
    done = run_ottla(*words, timeout_s=DEADLINE_S)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done
