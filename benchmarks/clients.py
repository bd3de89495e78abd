"""Compares Python clients at one broker: Ottla's, confluent-kafka's and aiokafka's.

    python -m benchmarks.clients [CLIENT ...] [--rounds N] [--short] [--record FILE]

Measures rates of records of 100 bytes and 1 KB, and the client's CPU for each, written with acks=all and read, many at
a time and singly. Also the latency with one record in flight, peak memory, and how long the event loop is blocked by
batches of 1 MB. The clients take turns, each in separate processes. The table has medians over the rounds, and the
longest blocking.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

import ottla.sync
from ottla.testing import LocalCluster

from .client_loads import BATCH_BYTES, BATCHES, LARGE, PRODUCE, READ, SIZES, name_of
from .rounds import Row, record

LOAD_S_MAX = 120


def main() -> int:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(PRODUCE))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="one round with a fifth of the records")
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    args = parser.parse_args()
    if unknown := set(args.clients) - set(PRODUCE):
        parser.error(f"unknown client {sorted(unknown)[0]!r}: choose from {', '.join(PRODUCE)}")
    clients = args.clients or list(PRODUCE)
    rounds, scale = (1, 0.2) if args.short else (args.rounds, 1.0)
    found: dict[str, list[Row]] = {client: [] for client in clients}
    with LocalCluster() as cluster:
        fill(cluster, scale)
        for _ in range(rounds):
            for client in clients:
                found[client].append(measured(client, cluster, scale))
    results = {client: merged(rows) for client, rows in found.items()}
    show(results)
    if args.record is not None:
        record(args.record, rounds=rounds, results=results)
    return 0


def fill(cluster: LocalCluster, scale: float) -> None:
    """Create and fill the topics to read."""
    of = {name: (size, count, 64 * 1024) for name, (size, count) in SIZES.items()}
    of[BATCHES] = (*SIZES[LARGE], BATCH_BYTES)
    for name, (size, count, batch_bytes) in of.items():
        cluster.create_topic(READ + name_of(name))
        with ottla.sync.Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            batch_size=batch_bytes,
            max_request_size=2 * batch_bytes,
            linger_ms=100,
        ) as producer:
            for _ in range(int(count * scale)):
                producer.send(READ + name_of(name), bytes(size))


def measured(client: str, cluster: LocalCluster, scale: float) -> Row:
    """Run a round of a client."""
    row: Row = {}
    with topics(cluster, *map(name_of, SIZES)):
        for what in ("produce", "consume"):
            load = [sys.executable, "-m", "benchmarks.client_loads", client, what]
            done = subprocess.run(
                [*load, cluster.bootstrap_servers, str(scale)],
                stdout=subprocess.PIPE,
                check=True,
                timeout=LOAD_S_MAX,
            )
            row |= json.loads(done.stdout)
    return row


@contextmanager
def topics(cluster: LocalCluster, *names: str) -> Iterator[None]:
    """Create topics of one partition, and delete them in the end, so that no client writes after another's records."""
    for name in names:
        cluster.create_topic(name)
    yield
    cluster.delete_topics(*names)


def merged(rows: list[Row]) -> Row:
    """Return medians over the rounds; the highest value for readings with an upper bound."""
    return {key: (max if "blocked" in key else median)(row[key] for row in rows) for key in rows[0]}


def show(results: dict[str, Row]) -> None:
    """Print a line for every reading and a column for every client; some readings are missing for some clients."""
    table = Table("", *results)
    for key in dict.fromkeys(key for row in results.values() for key in row):
        digits = 0 if "records/s" in key or "MB" in key.split(",")[-1] else 2
        values = [f"{row[key]:,.{digits}f}" if key in row else "" for row in results.values()]
        table.add_row(key, *values)
    Console(width=None if sys.stdout.isatty() else 130).print(table)


if __name__ == "__main__":
    sys.exit(main())
