"""Debezium reports the changes of a PostgreSQL table exactly once, although worker, broker and database are killed."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER
from tests.programs.connect import WAIT_S, Worker, connect_with
from tests.programs.jvm import needs_jdk
from tests.programs.topics import Output
from tests.spark_integration.outside.postgresql_server import Server, running_server

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(1200)]
VERSION = "3.6.1.Final"
DEBEZIUM = connect_with(f"io.debezium:debezium-connector-postgres:{VERSION}")
TOPIC = "shop.public.accounts"
IDS = 20
INSERT = "INSERT INTO accounts VALUES (%s, 1, %s)"
UPDATE = "UPDATE accounts SET version = version + 1, note = %s WHERE id = %s"
DELETE = "DELETE FROM accounts WHERE id = %s"


class Account(NamedTuple):
    """A row: its number of writes since its insertion, and the last written value."""

    version: int
    note: str


class ChangingTable:
    """A thread that inserts, updates and deletes rows until the block ends; it outlives crashes of the database."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changing table")

    def __enter__(self) -> ChangingTable:
        self._server.ask(
            "CREATE TABLE accounts (id int PRIMARY KEY, version int NOT NULL, note text NOT NULL)"
        )
        self._server.ask(f"INSERT INTO accounts SELECT i, 1, 'first' FROM generate_series(1, {IDS // 2}) i")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        import psycopg

        chance = random.Random(7)
        while not self._stop.wait(0.1):
            with suppress(psycopg.OperationalError), self._server.connect("writer") as connection:
                while not self._stop.wait(0.01):
                    self._change(connection, chance)
                    connection.commit()

    def _change(self, connection: Any, chance: random.Random) -> None:
        """Run a transaction of one to three changes."""
        for _ in range(chance.randint(1, 3)):
            number, note = chance.randint(1, IDS), f"note {chance.random()}"
            if chance.random() < 0.1:
                connection.execute(DELETE, (number,))
            elif connection.execute(UPDATE, (note, number)).rowcount == 0:
                connection.execute(INSERT, (number, note))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with running_cluster(folder, quorum=1, settings=SMALL_CLUSTER) as running:
        yield running


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server("wal_level=logical") as running:
        yield running


@pytest.fixture
def worker(cluster: RunningCluster, server: Server, tmp_path: Path) -> Iterator[Worker]:
    """Run a worker of Connect; the database outlives it."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "connect",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "offset.storage.partitions": "4",
        "status.storage.topic": "connect-status",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "exactly.once.source.support": "enabled",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "1000",
        "session.timeout.ms": "10000",
        "heartbeat.interval.ms": "1000",
    }
    with Worker(tmp_path, "worker", settings, DEBEZIUM) as started:
        yield started


def begin(worker: Worker, server: Server) -> None:
    """Start the connector, which reads the table first, and then the database's log."""
    worker.ask(
        "PUT",
        "/connectors/shop/config",
        {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "exactly.once.support": "required",
            "tasks.max": "1",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "ottla",
            "database.password": "none",
            "database.dbname": "postgres",
            "topic.prefix": "shop",
            "table.include.list": "public.accounts",
            "publication.autocreate.mode": "filtered",
            "topic.creation.default.replication.factor": "3",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.cleanup.policy": "compact",
            "topic.creation.default.min.insync.replicas": "2",
        },
    )
    worker.wait_until_running("shop")


def test_a_table_through_kills(cluster: RunningCluster, server: Server, worker: Worker) -> None:
    with ChangingTable(server):
        begin(worker, server)
        wait_until(lambda: cluster.leader(TOPIC, 0) is not None, f"the topic {TOPIC}", WAIT_S)
        changes = Output(cluster.bootstrap, TOPIC, 1)
        changes.wait_for(100, WAIT_S)
        worker.kill9()
        worker.start()
        changes.wait_for(changes.read() + 100, WAIT_S)
        kill_leader(cluster, changes)
        server.crash()
        server.start()
        changes.wait_for(changes.read() + 100, WAIT_S)
        worker.kill9()
        server.crash()
        server.start()
        worker.start()
        changes.wait_for(changes.read() + 100, WAIT_S)
    found = rows(server)
    changes.wait_until(lambda: replayed(changes) == found, "all changes", WAIT_S)
    assert Counter(changes.tombstones) == Counter(key for key, _, after in told(changes) if after is None)


def kill_leader(cluster: RunningCluster, changes: Output) -> None:
    """Kill a leader; changes continue before it is back."""
    leader = cluster.leader(TOPIC, 0)
    assert leader is not None
    cluster.broker(leader).kill9()
    changes.wait_for(changes.read() + 100, WAIT_S)
    cluster.broker(leader).restart()
    cluster.wait_until_in_sync(TOPIC, WAIT_S)


def rows(server: Server) -> dict[int, Account]:
    return {number: Account(*row) for number, *row in server.ask("SELECT id, version, note FROM accounts")}


def told(changes: Output) -> Iterator[tuple[str, str, Account | None]]:
    """Yield key, operation, and the new row, in the order of the topic."""
    for key, value in changes.messages:
        change = json.loads(value)
        after = change["after"]
        yield key, change["op"], after and Account(after["version"], after["note"])


def replayed(changes: Output) -> dict[int, Account]:
    """Return the table that the changes make.

    Each is reported once: versions of a row count up from 1, or from a snapshot.
    """
    table: dict[int, Account] = {}
    for key, operation, after in told(changes):
        number = json.loads(key)["id"]
        before = table.pop(number, None)
        if after is None:
            assert before is not None, (key, operation)
            continue
        if operation == "u":
            assert before is not None, (key, after)
            assert after.version == before.version + 1, (key, before, after)
        else:
            assert before is None, (key, before, after)
        table[number] = after
    return table
