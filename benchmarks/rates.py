"""Rates of records of 100 bytes and the CPU for each, of several kinds of clients in turns, at one broker."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

import ottla.sync

from .clusters import ottla_cluster
from .rounds import record

COUNT = 100_000
VALUE = bytes(100)
TOPIC = "speed"
Reading = tuple[float, float]
"""Records per second, and CPU microseconds for one record."""
Readings = dict[str, list[Reading]]
"""Readings by the kind of client."""


@contextmanager
def timed(readings: list[Reading]) -> Iterator[None]:
    """Take a reading for COUNT records in the block."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    yield
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    readings.append((COUNT / took_s, cpu_s / COUNT * 1e6))


def main(
    description: str | None, kinds: Iterable[str], one_round: Callable[[str, Readings], None], rounds: int
) -> int:
    """Run the command of a benchmark: `rounds` calls of `one_round` with the bootstrap servers, and one table."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    readings: Readings = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as name, ottla_cluster(Path(name), brokers=1, quorum=1) as cluster:
        with ottla.sync.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([ottla.NewTopic(TOPIC, 1, 1)])
        for _ in range(args.rounds):
            one_round(cluster.bootstrap, readings)
    table = Table("", "records/s", "CPU us")
    for kind, some in readings.items():
        table.add_row(
            kind,
            f"{median(reading[0] for reading in some):,.0f}",
            f"{median(reading[1] for reading in some):.1f}",
        )
    Console().print(table)
    if args.record is not None:
        record(args.record, readings=readings)
    return 0
