"""Backup and restoration of a cluster: MB per second, CPU of brokers and of the command, and the command's memory.

    python -m benchmarks.backup [--gigabytes 2] [--partitions 6] [--brokers 1] [--rounds N] [--record FILE]

Records of 1 KB are written to one topic with one replica, uncompressed. `ottla backup` copies the cluster into a
folder, and `ottla cluster restore` copies the backup into an empty cluster. Both are processes as users start them, so
their times include the start of Python. The folder, both clusters and the commands share the machine: three times the
bytes have to be free on its disk and in its memory.

The load of the machine before each measurement is recorded, since other work lowers MB/s.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from .clusters import Cluster, ottla_cluster
from .compare import admin_of, cpu_seconds, new_topic, write_to
from .reference_runs import touch_free_pages
from .rounds import Goal, Row, record

RECORD_BYTES = 1024
LOOK_EVERY_S = 0.02
COPIES = 3
"""The copies of the records that are in memory: of the source, the store and the target."""
SPARE_PAGES = 1.1
"""Pages to touch for each page of a copy: indexes and sockets need some, too."""
TIMEOUT_S = 900.0
GOALS = {
    "backup: MB/s": Goal(150, is_least=True),
    "backup: brokers, CPU s/GB": Goal(0.4, is_least=False),
    "backup: RSS, MiB": Goal(150, is_least=False),
    "restore: MB/s": Goal(150, is_least=True),
    "restore: RSS, MiB": Goal(150, is_least=False),
}
"""Goals of readings. The names are those of the table."""


def measured(cluster: Cluster, words: Sequence[str], gigabytes: float) -> Row:
    """Run a command of the CLI with a cluster, and return its readings for the bytes of the records."""
    load = os.getloadavg()[0]
    before, began = cpu_seconds(cluster.brokers), time.monotonic()
    argv = [sys.executable, "-m", "ottla", *words, "-b", cluster.bootstrap]
    running = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    status = Path(f"/proc/{running.pid}/status")
    resident_kib = 0
    while True:
        ended, code, used = os.wait4(running.pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > began + TIMEOUT_S:
            running.kill()
            raise TimeoutError(f"{' '.join(words)} has not ended within {TIMEOUT_S:g} s")
        # ru_maxrss would include the memory of this process, from which the command was forked.
        told = status.read_text().partition("VmHWM:")[2].split()
        resident_kib = max(resident_kib, int(told[0]) if told else 0)
        time.sleep(LOOK_EVERY_S)
    took = time.monotonic() - began
    running.returncode = os.waitstatus_to_exitcode(code)
    if running.returncode:
        raise RuntimeError(f"{' '.join(words)} has failed with exit code {running.returncode}")
    return {
        "MB/s": gigabytes * 1e3 / took,
        "brokers, CPU s/GB": (cpu_seconds(cluster.brokers) - before) / gigabytes,
        "command, CPU s/GB": (used.ru_utime + used.ru_stime) / gigabytes,
        "RSS, MiB": resident_kib / 1024,
        "load of the machine before": load,
    }


def one_round(folder: Path, gigabytes: float, partitions: int, brokers: int) -> Row:
    """Write the records, back them up, and restore them into another cluster."""
    store = folder / "store"
    store.mkdir()
    touch_free_pages(folder, int(gigabytes * 1e9 * COPIES * SPARE_PAGES))
    with ottla_cluster(folder / "source", brokers=brokers, quorum=1) as source:
        topic = new_topic(source, admin_of(source), partitions, replicas=1)
        write_to(source, topic, gigabytes, {"acks": "1"}, RECORD_BYTES)
        made = measured(source, ["backup", "--to", store.as_uri()], gigabytes)
    shutil.rmtree(folder / "source")
    with ottla_cluster(folder / "target", brokers=brokers, quorum=1) as target:
        restored = measured(target, ["cluster", "restore", "--from", store.as_uri()], gigabytes)
    readings = {f"backup: {name}": value for name, value in made.items()}
    return readings | {f"restore: {name}": value for name, value in restored.items()}


def show(readings: Row) -> None:
    """Print a table of the readings, with their goals."""
    table = Table("reading", "", "goal")
    for name, value in readings.items():
        table.add_row(name, f"{value:,.2f}", GOALS[name].told(value) if name in GOALS else "")
    Console().print(table)


def main() -> int:
    """Run the command of the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    args = parser.parse_args()
    rounds = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="bench-backup-") as folder:
            rounds.append(one_round(Path(folder), args.gigabytes, args.partitions, args.brokers))
    readings = {name: median(row[name] for row in rounds) for name in rounds[0]}
    show(readings)
    if args.record is not None:
        sizes = {"gigabytes": args.gigabytes, "partitions": args.partitions, "brokers": args.brokers}
        record(args.record, rounds=args.rounds, **sizes, results=readings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
