"""The progress of a pipeline, batch by batch. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """A finished micro-batch.

    `started` and `watermark` are UTC times in ISO 8601. `behind` counts the records that were available at its start
    and not read; None if unknown. `late` counts results dropped because they came after the watermark.
    """

    batch: int
    started: str
    seconds: float
    rows: int
    behind: int | None
    watermark: str | None
    late: int

    @property
    def rows_per_second(self) -> float:
        """The average number of records per second while the batch was processed."""
        return self.rows / self.seconds if self.seconds else 0.0

    def to_json(self) -> str:
        """Return the progress as a line of JSON."""
        return json.dumps({**asdict(self), "rows_per_second": round(self.rows_per_second)})

    def __str__(self) -> str:
        text = f"batch {self.batch}: {self.rows:,} rows in {self.seconds:.1f} s, {self.rows_per_second:,.0f} rows/s"
        if self.behind is not None:
            text += f", {self.behind:,} behind"
        return text + (f", {self.late:,} too late" if self.late else "")


def batch_progress(told: Mapping[str, Any]) -> BatchProgress | None:
    """Return the progress from Spark's JSON report; None for a report without a batch."""
    durations = told.get("durationMs", {})
    if "addBatch" not in durations:
        return None
    return BatchProgress(
        batch=told["batchId"],
        started=told["timestamp"],
        seconds=durations.get("triggerExecution", 0) / 1000,
        rows=told.get("numInputRows", 0),
        behind=_behind(told.get("sources", [])),
        watermark=told.get("eventTime", {}).get("watermark"),
        late=sum(operator.get("numRowsDroppedByWatermark", 0) for operator in told.get("stateOperators", [])),
    )


def _behind(sources: list[dict[str, Any]]) -> int | None:
    counts = []
    for source in sources:
        latest = source.get("latestOffset")
        latest = json.loads(latest) if isinstance(latest, str) else latest
        if isinstance(latest, dict) and "behind" in latest:
            counts.append(int(latest["behind"]["records"]))
    return sum(counts) if counts else None
