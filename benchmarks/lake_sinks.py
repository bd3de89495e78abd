"""Two sinks that write the same records to tables: `ottla lake run`, and Kafka Connect with Iceberg's sink.

`whole_run` measures a sink until all rows of a topic are in its table. `killed_run` kills a sink with SIGKILL at seeded
moments while records arrive. Rows that are missing or there twice are counted by the field `id`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb

from .clusters import Cluster
from .lake_connect import connect_argv
from .lake_runs import Run, rows_of, table_of, worker_argv
from .lake_topics import create, create_for_lake, fill, json_values, paced

TABLE = "lake.orders"
ARRIVING = 5_000
"""Rows per second that arrive while a sink is killed."""
KILL_WITHIN_S = 3.0
"""Seconds after the first written bytes of a run within which it is killed."""
STUCK_S = 180.0
"""Seconds without a written byte after which a sink counts as stuck, and is started again."""
COUNT_S = 0.25
"""Seconds between looks at a table."""
STARTS_AT_END = 3
SETTLE_S = 10.0
"""Seconds in which a complete table may still get rows twice."""
WHOLE_COMMIT_MS, KILLED_COMMIT_MS = 2_000, 1_000

Tell = Callable[[str], None]
"""A function that shows progress."""


@dataclass(frozen=True)
class LakeSink:
    """A program that writes a topic to the table `TABLE` of a lake's folder."""

    argv: list[str]
    lake: Path
    log: Path
    table: str = TABLE

    def start(self) -> Run:
        """Start it."""
        return Run(self.argv, self.log)

    @property
    def rows(self) -> int:
        """The number of rows that its table has."""
        return rows_of(self.lake, self.table)

    @property
    def written_bytes(self) -> int:
        """The size of the data files in the folder, whether or not a snapshot names them."""
        size = 0
        for file in self.lake.rglob("*.parquet"):
            with suppress(FileNotFoundError):  # a file of a round that failed
                size += file.stat().st_size
        return size

    def counted(self, rows: int) -> dict[str, int]:
        """Return the numbers of rows that are missing, and that are there too often. Their ids are below `rows`."""
        table = table_of(self.lake, self.table)
        files = [] if table is None else [task.file.file_path for task in table.scan().plan_files()]
        found = Counts()
        if files:
            query = "SELECT count(*), count(DISTINCT id) FILTER (id BETWEEN 0 AND ?) FROM read_parquet(?)"
            paths = [file.removeprefix("file://") for file in files]
            found = Counts(*duckdb.execute(query, [rows - 1, paths]).fetchall()[0])
        return {"missing": rows - found.distinct, "twice": found.all - found.distinct}


@dataclass(frozen=True)
class Counts:
    """The rows of a table, and the number of their different ids."""

    all: int = 0
    distinct: int = 0


def whole_run(sink: LakeSink, rows: int, size: int, tell: Tell) -> Mapping[str, object]:
    """Measure a sink from its start until its table has all rows.

    `second_half` counts rows for a second of CPU since the first commit with half of the rows. So it has no start, and
    of a JVM the code that was compiled meanwhile.
    """
    commits: list[tuple[int, float]] = []
    run = sink.start()

    def is_whole() -> bool:
        if (found := sink.rows) != (commits[-1][0] if commits else 0):
            commits.append((found, run.cpu_s))
            tell(f"{found:,} of {rows:,} rows")
        return found >= rows

    try:
        run.wait_for(is_whole, COUNT_S)
        took_s = time.monotonic() - run.began
        run.look()
    finally:
        run.kill()
    half = next(number for number, (found, _) in enumerate(commits) if found >= rows / 2)
    later = commits[-1][0] - commits[half][0], run.cpu_s - commits[half][1]
    return {
        **asdict(run.reading(rows, size, took_s)),
        "second_half_rows_per_cpu_s": later[0] / later[1] if later[0] else None,
        "commits": len(commits),
        **sink.counted(rows),
    }


# ---------------------------------------------------------------- kills


class Arrivals:
    """Records that a thread writes to a topic until the block ends."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.rows = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=fill, args=(bootstrap, topic, self._values()), name="arrivals")

    def __enter__(self) -> Arrivals:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _values(self) -> Iterator[bytes]:
        for value in paced(json_values(), ARRIVING):
            if self._stop.is_set():
                return
            self.rows += 1
            yield value


def killed_run(
    sink: LakeSink, bootstrap: str, topic: str, kills: int, seed: int, tell: Tell
) -> Mapping[str, object]:
    """Kill a sink while records arrive, let it finish, and count its rows.

    A kill comes at a seeded moment within `KILL_WITHIN_S` after the run's first bytes: before, in or after a commit.
    """
    moments = random.Random(seed)
    stuck = 0
    with Arrivals(bootstrap, topic) as arrivals:
        for number in range(kills):
            tell(f"kill {number + 1} of {kills}, {sink.rows:,} of {arrivals.rows:,} rows")
            before = sink.written_bytes
            run = sink.start()
            try:
                stuck += not _writes(sink, before)
                time.sleep(moments.uniform(0, KILL_WITHIN_S))
            finally:
                run.kill()
    began = time.monotonic()
    starts = 0
    while (missing := sink.counted(arrivals.rows)["missing"]) and starts < STARTS_AT_END:
        starts += 1
        tell(f"the end, {arrivals.rows - missing:,} of {arrivals.rows:,} rows")
        _finish(sink, arrivals.rows)
    return {
        "rows": arrivals.rows,
        "kills": kills,
        "seed": seed,
        "runs_that_wrote_nothing": stuck,
        "starts_at_end": starts,
        "end_s": time.monotonic() - began,
        **sink.counted(arrivals.rows),
    }


def _finish(sink: LakeSink, rows: int) -> None:
    """Run a sink until its table has every row and has settled, or until it is stuck."""
    run, known = sink.start(), -1
    try:
        while True:
            before = sink.written_bytes
            if (found := sink.rows) != known:
                known = found
                if found >= rows and sink.counted(rows)["missing"] == 0:
                    time.sleep(SETTLE_S)
                    return
            if not _writes(sink, before, known):
                return
    finally:
        run.kill()


def _writes(sink: LakeSink, before: int, rows: int | None = None) -> bool:
    """Return whether the size of the data files changes within `STUCK_S`, or the number of rows, if it is given."""
    deadline = time.monotonic() + STUCK_S
    while sink.written_bytes == before and (rows is None or sink.rows == rows):
        if time.monotonic() > deadline:
            return False
        time.sleep(COUNT_S)
    return True


# ---------------------------------------------------------------- both sides


def ottla_killed(cluster: Cluster, folder: Path, kills: int, seed: int, tell: Tell) -> Mapping[str, object]:
    """Kill `ottla lake run`."""
    settings = {
        "ottla.lake.mode": "json",
        "ottla.lake.table": TABLE,
        "ottla.lake.commit.ms": str(KILLED_COMMIT_MS),
    }
    create_for_lake(cluster.bootstrap, "orders", settings)
    lake = folder / "ottla-killed"
    sink = LakeSink(worker_argv(cluster.bootstrap, lake, "orders"), lake, folder / "ottla-killed.log")
    return killed_run(sink, cluster.bootstrap, "orders", kills, seed, tell)


def connect_whole(
    cluster: Cluster, folder: Path, topic: str, rows: int, size: int, tell: Tell
) -> Mapping[str, object]:
    """Measure Connect with a filled topic."""
    sink = _connect(cluster, folder / f"connect-{cluster.name.replace(' ', '-')}", topic, WHOLE_COMMIT_MS)
    return whole_run(sink, rows, size, tell)


def connect_killed(cluster: Cluster, folder: Path, kills: int, seed: int, tell: Tell) -> Mapping[str, object]:
    """Kill Connect."""
    create(cluster.bootstrap, "arriving", {})
    sink = _connect(cluster, folder / "connect-killed", "arriving", KILLED_COMMIT_MS)
    return killed_run(sink, cluster.bootstrap, "arriving", kills, seed, tell)


def _connect(cluster: Cluster, lake: Path, topic: str, commit_ms: int) -> LakeSink:
    argv = connect_argv(cluster.bootstrap, lake, topic, TABLE, commit_ms)
    return LakeSink(argv, lake, lake / "connect.log")
