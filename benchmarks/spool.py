"""A producer's spool: records of 100 bytes per second into its files, through them and out, and the CPU for one.

    python -m benchmarks.spool [--rounds N] [--record FILE]

One broker, one partition. The kinds take turns; the table has medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

import ottla
import ottla.sync

from .clusters import ottla_cluster
from .rounds import record
from .sync_client import COUNT, TOPIC, VALUE, Reading, timed

NOWHERE = "127.0.0.1:1"
INTO, THROUGH, OUT = "into the files, no cluster", "through the files", "out of the files"


async def one_round(bootstrap: str, readings: dict[str, list[Reading]]) -> None:
    """Fill a spool without a cluster, empty it, then send as with any producer."""
    with tempfile.TemporaryDirectory() as folder:
        async with ottla.Producer(bootstrap_servers=NOWHERE, spool_dir=folder) as producer:
            with timed(readings[INTO]):
                for _ in range(COUNT):
                    await producer.send(TOPIC, VALUE)
        with timed(readings[OUT]):
            async with ottla.Producer(bootstrap_servers=bootstrap, spool_dir=folder) as producer:
                await producer.flush()
        async with ottla.Producer(bootstrap_servers=bootstrap, spool_dir=folder) as producer:
            await producer.send_and_wait(TOPIC, VALUE)
            with timed(readings[THROUGH]):
                for _ in range(COUNT):
                    await producer.send(TOPIC, VALUE)
                await producer.flush()


def main() -> int:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    readings: dict[str, list[Reading]] = {INTO: [], THROUGH: [], OUT: []}
    with tempfile.TemporaryDirectory() as name, ottla_cluster(Path(name), brokers=1, quorum=1) as cluster:
        with ottla.sync.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([ottla.NewTopic(TOPIC, 1, 1)])
        for _ in range(args.rounds):
            asyncio.run(one_round(cluster.bootstrap, readings))
    table = Table("", "records/s", "CPU us")
    for kind, some in readings.items():
        table.add_row(kind, f"{median(one[0] for one in some):,.0f}", f"{median(one[1] for one in some):.1f}")
    Console().print(table)
    if args.record is not None:
        record(args.record, readings=readings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
