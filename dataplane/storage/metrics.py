"""Metrics of the compaction of this broker's logs, by data folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...protocol.exposition import Family, gauge

if TYPE_CHECKING:
    from .log_cleaner import LogCleaner
    from .log_store import LogStore

UNCLEANABLE = gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Logs that compaction skips until the broker restarts, since it failed on them.",
    "logdirectory",
)
UNREADABLE = gauge(
    "ottla_log_cleaner_unreadable_batches",
    "Batches with unreadable records in the last compaction of their logs, which copied them unchanged.",
    "logdirectory",
)


class CleanerMetrics:
    """Metrics of the log cleaner, for each usable data folder."""

    def __init__(self, cleaner: LogCleaner[Any], logs: LogStore) -> None:
        self._cleaner = cleaner
        self._logs = logs

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics."""
        paths = [folder.path for folder in self._logs.usable]
        yield Family(UNCLEANABLE, [((str(path),), self._cleaner.uncleanable_in(path)) for path in paths])
        yield Family(UNREADABLE, [((str(path),), self._cleaner.unreadable_in(path)) for path in paths])
