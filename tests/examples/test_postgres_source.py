"""The example's replicas follow a real PostgreSQL server, whose follower is killed repeatedly."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster import Node, RunningCluster, running_cluster, wait_until
from tests.examples.database_nodes import ROOT, DatabaseNode, Rows, node_of, running
from tests.spark_integration.outside.postgresql_server import Server, running_server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
ACCOUNTS = 8
BALANCE = 100


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("source"), quorum=1, brokers=1) as found:
        yield found


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server("wal_level=logical") as found:
        yield found


def test_every_commit_arrives_once(cluster: RunningCluster, server: Server, tmp_path: Path) -> None:
    chance = random.Random(7)
    replica = node_of(1, tmp_path, cluster.bootstrap, "branch", "--replica-only", "--replicas", "1")
    source = source_of(tmp_path, cluster, server)
    with server.connect("bank") as bank:
        bank.execute(
            "CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL, note text NOT NULL)"
        )
        bank.execute("ALTER TABLE accounts REPLICA IDENTITY FULL")
        with bank.cursor() as cursor:
            rows = [(f"a{number}", BALANCE, "x" * 20_000) for number in range(ACCOUNTS)]
            cursor.executemany("INSERT INTO accounts VALUES (%s, %s, %s)", rows)
        bank.commit()  # before there is a slot
        with running([replica]):
            try:
                for round_ in range(4):
                    source.restart()
                    if round_ == 0:  # it copies the existing rows
                        wait_until(lambda: len(all_rows(replica)) == ACCOUNTS, "the copy", 60)
                    for number in range(25):
                        payer, payee = chance.sample(range(ACCOUNTS), 2)
                        move = "UPDATE accounts SET balance = balance + %s WHERE id = %s"
                        bank.execute(move, (-(number % 4), f"a{payer}"))
                        bank.execute(move, (number % 4, f"a{payee}"))
                        if number % 5 == 0:
                            bank.rollback()
                        else:
                            bank.commit()
                    bank.execute("INSERT INTO accounts VALUES (%s, 0, 'it''s new')", (f"receipt-{round_}",))
                    bank.execute("DELETE FROM accounts WHERE id = %s", (f"receipt-{round_ - 1}",))
                    bank.commit()
                    if round_ < 3:
                        source.kill9()  # somewhere on the way
                expected = bank.execute("SELECT id, balance, note FROM accounts ORDER BY id").fetchall()
                wait_until(lambda: all_rows(replica) == expected, "the rows of the server", 60)
                assert sum(int(row[1]) for row in expected) == ACCOUNTS * BALANCE
            except BaseException as error:
                error.add_note(f"the source ends with:\n{source.log()[-3000:]}")
                raise
            finally:
                with suppress(ProcessLookupError):
                    source.kill9()


def source_of(directory: Path, cluster: RunningCluster, server: Server) -> Node:
    argv = [sys.executable, "-m", "examples.replicated_database.postgres", "--bootstrap", cluster.bootstrap]
    argv += ["--name", "branch", "--replicas", "1", "--dsn", server.address]
    entry = {"id": 0, "pid": 0, "port": 0, "argv": argv, "cwd": str(ROOT), "env": dict(os.environ)}
    return Node("source", entry | {"log": str(directory / "source.log")})


def all_rows(node: DatabaseNode) -> Rows:
    """Return the rows of all partitions, in the order of the keys; empty while the files are being made."""
    with suppress(sqlite3.OperationalError):
        return sorted(
            (row for partition in range(4) for row in node.rows(partition)), key=lambda row: str(row[0])
        )
    return []
