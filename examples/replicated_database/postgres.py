"""PostgreSQL as the source: logical decoding follows its table `accounts`, transaction by transaction.

    psql -c "CREATE TABLE accounts (id text PRIMARY KEY, balance bigint, note text)"
    python -m examples.replicated_database.postgres --name branch --dsn "host=127.0.0.1 dbname=postgres"
    python -m examples.replicated_database.node --name branch --replica-only --folder /tmp/n9 --port 7009

The server is the master, so the SCN is the position of a commit in its log (LSN), and the generation is its timeline.
Each commit is written to the topic as one transaction whose `app_version` is that LSN. So this program stores no state:
after a crash `last_app_version` is the last commit in the topic, and the slot in the server has all later commits.

Needs `wal_level=logical`, and psycopg, which Ottla itself does not need.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any, LiteralString, NamedTuple

import psycopg

from ottla import KafkaError, Producer

from .changes import Change, Names, Row, Value, partition_of
from .master import SEGMENT_BYTES
from .node import make_topics
from .state import TABLE

logger = logging.getLogger(__name__)
COLUMNS = ("id", "balance", "note")
PEEKED_MAX = 1000
"""Largest number of changes read at once; the server adds the rest of the last transaction."""
PAUSE_S = 0.1
_UNCHANGED = "unchanged-toast-datum"
_TOKEN = re.compile(r"(?P<tuple>old-key|new-tuple):|(?P<name>\w+)\[[^]]+\]:(?P<value>'(?:[^']|'')*'|\S+)")
Rows = dict[str, Row | None]


class Commit(NamedTuple):
    """The rows that a transaction of the server left in the table."""

    lsn: int
    rows: Rows


class Source:
    """A replication slot, and a producer that only one process owns at a time."""

    def __init__(
        self, connection: psycopg.AsyncConnection, producer: Producer, names: Names, count: int
    ) -> None:
        self._connection = connection
        self._producer = producer
        self._names = names
        self._count = count
        self._last: dict[int, int] = {}  # newest SCN of each partition that was written since the start
        self._timeline = 0

    async def follow(self, dsn: str) -> None:
        """Follow the server forever. Raises KafkaError and psycopg.Error; a new call continues where the topic ends."""
        ((self._timeline,),) = await self._ask("SELECT timeline_id FROM pg_control_checkpoint()")
        if self._producer.last_app_version is None:
            await self._write(await self._copied(dsn))
        while True:
            done = self._producer.last_app_version or 0
            newest = None
            async for commit in self._commits():
                if commit.lsn > done:
                    await self._write(commit)
                newest = commit.lsn
            if newest is None:
                await asyncio.sleep(PAUSE_S)
            else:  # the topic has the commit: the server may forget it
                await self._ask("SELECT pg_replication_slot_advance(%s, %s)", self._slot, lsn_text(newest))

    @property
    def _slot(self) -> str:
        return re.sub(r"\W", "_", self._names.database)

    async def _write(self, commit: Commit) -> None:
        parts: defaultdict[int, Rows] = defaultdict(dict)
        for key, row in commit.rows.items():
            parts[partition_of(key, self._count)][key] = row
        async with self._producer.transaction(app_version=commit.lsn):
            for partition, rows in parts.items():
                change = Change(self._timeline, commit.lsn, self._last.get(partition), rows)
                await self._producer.send(self._names.log, change.encode(), partition=partition)
        self._last |= dict.fromkeys(parts, commit.lsn)

    async def _copied(self, dsn: str) -> Commit:
        """Return all rows at the beginning of a new slot: the server exports that snapshot to another connection."""
        await self._ask(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            self._slot,
        )
        async with (
            await psycopg.AsyncConnection.connect(
                dsn, replication="database", autocommit=True, cursor_factory=psycopg.AsyncClientCursor
            ) as keeper,
            await psycopg.AsyncConnection.connect(dsn) as reader,
        ):
            made = await keeper.execute(
                _statement(f"CREATE_REPLICATION_SLOT {self._slot} LOGICAL test_decoding")
            )
            _, lsn, snapshot, _ = await made.fetchone() or ("", "0/0", "", "")
            await reader.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await reader.execute(_statement(f"SET TRANSACTION SNAPSHOT '{snapshot}'"))
            found = await reader.execute(_statement(f"SELECT {', '.join(COLUMNS)} FROM {TABLE}"))
            return Commit(lsn_number(lsn), {row[0]: list(row) async for row in found})

    async def _commits(self) -> AsyncIterator[Commit]:
        rows: Rows = {}
        for lsn, line in await self._ask(
            "SELECT lsn::text, data FROM pg_logical_slot_peek_changes(%s, NULL, %s, 'skip-empty-xacts', '1')",
            self._slot,
            PEEKED_MAX,
        ):
            if line.startswith("BEGIN"):
                rows = {}
            elif line.startswith("COMMIT"):
                yield Commit(lsn_number(lsn), rows)
            elif line.startswith(f"table public.{TABLE}: "):
                rows |= changed_rows(line)

    async def _ask(self, statement: LiteralString, *arguments: object) -> list[tuple[Any, ...]]:
        return await (await self._connection.execute(statement, arguments)).fetchall()


def changed_rows(line: str) -> Rows:
    """Return the changed rows of a test_decoding line. Raises ValueError for a statement without rows, as TRUNCATE."""
    what = line.split(": ", 2)[1]
    old, new = (dict(some) for some in _tuples(line))
    if what == "DELETE":
        return {str(new["id"]): None}
    if what not in ("INSERT", "UPDATE"):
        raise ValueError(f"{what} cannot be followed, only INSERT, UPDATE and DELETE")
    row: Row = []
    for name in COLUMNS:
        if new[name] == _UNCHANGED and name not in old:
            raise ValueError(f"the line leaves out a large {name}: ALTER TABLE {TABLE} REPLICA IDENTITY FULL")
        row.append(old[name] if new[name] == _UNCHANGED else new[name])
    moved: Rows = {str(old["id"]): None} if "id" in old and old["id"] != new["id"] else {}
    return moved | {str(new["id"]): row}


def _tuples(line: str) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the columns before the change (if the line has them) and after it."""
    old: dict[str, Value] = {}
    new: dict[str, Value] = {}
    into = new
    for token in _TOKEN.finditer(line):
        if token["tuple"]:
            into = old if token["tuple"] == "old-key" else new
        else:
            into[token["name"]] = _value(token["value"])
    return old, new


def _value(text: str) -> Value:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return None if text == "null" else int(text) if text.lstrip("-").isdecimal() else text


def _statement(text: str) -> bytes:
    """Encode a statement that takes no parameters; its names are known to be harmless."""
    return text.encode()


def lsn_number(text: str) -> int:
    """Return `16/B374D848` as a number that rises with the log."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    """Return the text form of an LSN, the inverse of `lsn_number`."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


async def run(options: argparse.Namespace) -> None:
    """Follow the server until stopped; start again after an error of the cluster or the server."""
    names = Names(options.name)
    await make_topics(options.bootstrap, names, options.partitions, options.replicas)
    while True:
        try:
            async with (
                Producer(
                    bootstrap_servers=options.bootstrap,
                    transactional_id=f"{names.database}-postgres",
                    large_message_segment_size=SEGMENT_BYTES,
                ) as producer,
                await psycopg.AsyncConnection.connect(options.dsn, autocommit=True) as connection,
            ):
                await Source(connection, producer, names, options.partitions).follow(options.dsn)
        except (KafkaError, psycopg.OperationalError) as error:
            logger.warning("following starts again: %s", error)
            await asyncio.sleep(1)


def main() -> None:
    """Parse the command line, and follow a server."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.replicated_database.postgres", description=__doc__
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="brokers of the Ottla cluster")
    parser.add_argument("--name", required=True, help="the database: the name of its topic, and of the slot")
    parser.add_argument("--partitions", type=int, default=4, help="of the topic")
    parser.add_argument("--replicas", type=int, default=3, help="of each topic, if it is made now")
    parser.add_argument("--dsn", required=True, help="the server, as libpq has it")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
