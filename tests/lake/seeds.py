"""Play seeds of the lake: workers that fail, die and overtake one another write two topics as a group of tables.

    python -m tests.lake.seeds --seeds 0-1000 [--processes 2]

Tables, files and the catalog are real, and fail by chance (`failing_store.py`). The topics are in memory
(`simulated_log.py`). Compactions and expiries run in between. At the end a worker without faults completes the tables.
Each record has to be there once, as a row or as a dead letter, and both tables have to have whole transactions at each
tag. Retention must never pass the position of a table. Exits with the number of seeds that broke something, at most
100.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ottla.lake.failures import TableRefused, WorkerFenced
from ottla.lake.iceberg import tables
from ottla.lake.iceberg.compaction import compact
from ottla.lake.iceberg.expiry import KeptSnapshots, expire
from ottla.lake.iceberg.tables import MAY_PASS, Epoch, Overtaken, newest_with_position, summary_of
from ottla.lake.metrics import TableProgress
from ottla.lake.position import read_position
from ottla.lake.settings import TableSettings
from ottla.lake.table_group import TableGroup
from ottla.lake.topic_table import Consent, TopicTable
from tests.lake.failing_store import FailingCatalog, Killed, StoreFaults
from tests.lake.simulated_log import BAD, SimulatedLog

STEPS = 18
ROUNDS_MAX = 1_000
GROUP = "both"
MEMBERS = (
    TableSettings("words", "lake.words", "json", (), 1_000, "dead-letter", GROUP, hold=True),
    TableSettings("bytes", "lake.bytes", "raw", (), 1_000, "dead-letter", GROUP, hold=True),
)
_FAILURES = (*MAY_PASS, Overtaken, TableRefused)


class LostOrTwice(AssertionError):
    """A table that does not have each record once, or not the transactions of its tag."""


@dataclass
class SimulatedWorker:
    """A worker: it opens its tables with a new generation, and again after each failure."""

    lake: SimulatedLake
    catalog: FailingCatalog
    group: TableGroup | None = None

    async def step(self) -> bool:
        """Open the tables, or write a round. Returns whether more can be read. Raises as the real methods do."""
        if self.group is None:
            opened = TableGroup(
                GROUP, [self._table(member) for member in MEMBERS], self.catalog, self.lake.log
            )
            self.lake.epoch += 1
            await opened.open({member.table: Epoch(7, self.lake.epoch, "cluster") for member in MEMBERS})
            self.group = opened
            return True
        return await self.group.round()

    def _table(self, settings: TableSettings) -> TopicTable:
        topic = self.lake.log.topic(settings.topic)
        return TopicTable(settings, self.catalog, topic, "cluster", Consent(), TableProgress(settings.table))


@dataclass
class SimulatedLake:
    """A lake's folder, the log that its tables read, and the workers that write them."""

    seed: int
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    epoch: int = 0
    workers: list[SimulatedWorker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = SimulatedLog(self.seed)
        self._random = random.Random(f"lake {self.seed}")
        self._names = 0
        self._sound = self.catalog(is_sound=True)

    def catalog(self, *, is_sound: bool = False) -> FailingCatalog:
        """Return the catalog for a new process."""
        self._names += 1
        fails, kills = (0.0, 0.0) if is_sound else (self._random.choice((0.0, 0.005, 0.03)), 0.005)
        return FailingCatalog(self.folder, StoreFaults(f"{self.seed}-{self._names}", self.seed, fails, kills))

    async def play(self) -> None:
        """Play the seed. Raises LostOrTwice."""
        for _ in range(STEPS):
            await self._step()
        last = SimulatedWorker(self, self.catalog(is_sound=True))
        for _ in range(ROUNDS_MAX):
            if not await last.step():
                break
        self._check()

    async def _step(self) -> None:
        drawn = self._random.random()
        if drawn < 0.3 or not self.log.commits:
            self.log.grow(self._random.randint(1, 6))
        elif drawn < 0.38:
            await asyncio.to_thread(self._maintain)
        else:
            if not self.workers or (drawn < 0.5 and len(self.workers) < 3):
                self.workers.append(SimulatedWorker(self, self.catalog()))
            await self._work(self._random.choice(self.workers))

    async def _work(self, worker: SimulatedWorker) -> None:
        try:
            for _ in range(self._random.randint(1, 3)):
                await worker.step()
                self.counts["rounds"] += 1
                await asyncio.to_thread(self._check_needed, worker)
        except WorkerFenced:
            self.counts["fenced"] += 1
            self.workers.remove(worker)
        except Killed:
            self.counts["killed"] += 1
            self.workers.remove(worker)
        except _FAILURES as error:
            self.counts[type(error).__name__] += 1
            worker.group = None

    def _maintain(self) -> None:
        """Compact or expire a table, as another process does."""
        name = self._random.choice(MEMBERS).table
        catalog = self.catalog()
        try:
            if self._random.random() < 0.6:
                compact(catalog, name)
                self.counts["compactions"] += 1
            else:
                expire(catalog, name, KeptSnapshots(since_ms=1 << 62, newest=1))
                self.counts["expiries"] += 1
        except (*_FAILURES, Killed):
            self.counts["maintenance failed"] += 1

    def _check_needed(self, worker: SimulatedWorker) -> None:
        """Check that retention may not pass the position of a table in the catalog, by the worker's offsets."""
        assert worker.group is not None
        for table in worker.group.tables:
            loaded = self._sound.load_table(table.settings.table)
            newest = newest_with_position(loaded)
            position = None if newest is None else read_position(summary_of(newest))
            for partition, offset in table.needed.items():
                if offset > (0 if position is None else position.place(partition).open_from):
                    raise LostOrTwice(
                        f"seed {self.seed}: {table.settings.table}: retention may drop records below {offset} of "
                        f"partition {partition}, which the table lacks"
                    )

    # ------------------------------------------------------------ the check

    def _check(self) -> None:
        catalog = self._sound
        for member in MEMBERS:
            table = catalog.load_table(member.table)
            wanted = {
                record.place: record.value
                for record in self.log.records[member.topic]
                if member.topic != "words" or record.value != BAD
            }
            _compare(f"seed {self.seed}: {member.table}", _rows(table.scan()), wanted)
            for tag, reference in table.metadata.refs.items():
                if tag.startswith("cut-"):
                    self.counts["tags"] += 1
                    whole = self._places(member.topic, int(tag.removeprefix("cut-")))
                    there = _rows(table.scan(snapshot_id=reference.snapshot_id))
                    _compare(f"seed {self.seed}: {member.table} at {tag}", there, wanted, whole)
        bad = {record.place: record.value for record in self.log.records["words"] if record.value == BAD}
        if bad:
            letters = _rows(catalog.load_table("lake.words__dlq").scan())
            _compare(f"seed {self.seed}: dead letters", letters, bad)
        self.counts["records"] += sum(len(records) for records in self.log.records.values())

    def _places(self, topic: str, cut: int) -> set[tuple[int, int]]:
        return {record.place for record in self.log.records[topic] if record.commit_index <= cut}


def _rows(scan: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return found


def _compare(
    label: str,
    rows: list[dict[str, Any]],
    wanted: dict[tuple[int, int], bytes],
    places: set[tuple[int, int]] | None = None,
) -> None:
    """Check that the rows are the wanted records, each once; only those at `places`, if given."""
    wanted = {place: value for place, value in wanted.items() if places is None or place in places}
    times = Counter((row["ottla"]["partition"], row["ottla"]["offset"]) for row in rows)
    twice = sorted(place for place, count in times.items() if count > 1)
    missing, strange = sorted(wanted.keys() - times.keys()), sorted(times.keys() - wanted.keys())
    if twice or missing or strange:
        raise LostOrTwice(f"{label}: twice {twice}, missing {missing}, strange {strange}")
    for row in rows:
        value = wanted[row["ottla"]["partition"], row["ottla"]["offset"]]
        if (row["value"] if "value" in row else row["number"]) not in (value, _number(value)):
            raise LostOrTwice(f"{label}: {row} is not {value!r}")


def _number(value: bytes) -> int | None:
    return None if value == BAD else int(json.loads(value)["number"])


def play(seed: int) -> Counter[str]:
    """Play one seed, and return what was counted. Raises LostOrTwice, and unforeseen errors."""
    with tempfile.TemporaryDirectory(prefix="lake-seed-") as name, patch.object(tables, "WAIT_S", 0.0):
        lake = SimulatedLake(seed, Path(name) / "lake")
        asyncio.run(lake.play())
        for faults in StoreFaults.by_worker.values():
            lake.counts.update(faults.counts)
        StoreFaults.by_worker.clear()
        return lake.counts


def _played(seed: int) -> tuple[int, Counter[str], str]:
    logging.disable(logging.ERROR)
    try:
        return seed, play(seed), ""
    except BaseException as error:  # reported, with its seed
        return seed, Counter(), f"{type(error).__name__}: {error}"


def main() -> int:
    """Run the command that the module's docstring describes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-100", help="first-last, last excluded")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    first, last = (int(number) for number in arguments.seeds.split("-"))
    began_s, totals, broken = time.monotonic(), Counter[str](), 0
    with multiprocessing.get_context("spawn").Pool(arguments.processes, maxtasksperchild=100) as pool:
        for done, (seed, counts, failure) in enumerate(pool.imap_unordered(_played, range(first, last)), 1):
            totals += counts
            if failure:
                broken += 1
                print(f"seed {seed}: {failure}", flush=True)
            if done % 20 == 0 or done == last - first:
                print(f"{done} seeds, {broken} broken, {time.monotonic() - began_s:.0f} s", flush=True)
    print(dict(sorted(totals.items())))
    return min(broken, 100)


if __name__ == "__main__":
    sys.exit(main())
