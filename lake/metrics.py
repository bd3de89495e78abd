"""The worker's metrics: the lag of each table, and the work done since the process started."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..protocol.exposition import Families, Family, counter, gauge

LAG_RECORDS = gauge(
    "ottla_lake_lag_records",
    "Offsets that were committed when the worker last looked, and that the table does not have.",
    "table",
)
LAG_SECONDS = gauge(
    "ottla_lake_lag_seconds",
    "Seconds since the newest cut that the table has whole was found. It grows between commits; -1 before the first.",
    "table",
)
FAILING = gauge(
    "ottla_lake_table_failing",
    "1 if the last round of the table failed, or the table needs a person; the log has the reason.",
    "table",
)
COMMITS = counter(
    "ottla_lake_commits_total", "Commits of records, or of a position without records.", "table"
)
FILES = counter("ottla_lake_files_total", "Files of rows that were committed.", "table")
ROWS = counter("ottla_lake_rows_total", "Records that were committed, as rows or as dead letters.", "table")


@dataclass(slots=True)
class TableProgress:
    """The state of one table in this process, and its work since the start."""

    table: str
    lag_records: int = 0
    whole_at_s: float | None = None
    """The time of the newest cut that the table has whole, by a clock that only goes forward."""
    is_failing: bool = False
    commits: int = 0
    files: int = 0
    rows: int = 0

    def note_round(self, lag_records: int, whole_at_s: float | None) -> None:
        """Note the end of a round: the offsets that are left, and the time of the cut if none were left then."""
        self.lag_records = lag_records
        if whole_at_s is not None:
            self.whole_at_s = whole_at_s

    def note_commit(self, *, files: int, rows: int) -> None:
        """Count a commit."""
        self.commits += 1
        self.files += files
        self.rows += rows


def families(tables: Iterable[TableProgress], now_s: float) -> Families:
    """Yield the metrics of tables. `now_s` is of the clock of `TableProgress.whole_at_s`."""
    known = sorted(tables, key=lambda progress: progress.table)
    yield Family(LAG_RECORDS, [((progress.table,), progress.lag_records) for progress in known])
    yield Family(
        LAG_SECONDS,
        [
            ((progress.table,), -1 if progress.whole_at_s is None else max(0.0, now_s - progress.whole_at_s))
            for progress in known
        ],
    )
    yield Family(FAILING, [((progress.table,), int(progress.is_failing)) for progress in known])
    yield Family(COMMITS, [((progress.table,), progress.commits) for progress in known])
    yield Family(FILES, [((progress.table,), progress.files) for progress in known])
    yield Family(ROWS, [((progress.table,), progress.rows) for progress in known])
