"""The report on a micro-batch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.spark_integration.pipelines.progress import BatchProgress, batch_progress

DONE: dict[str, Any] = {
    "batchId": 4,
    "timestamp": "2026-01-02T03:04:05.678Z",
    "numInputRows": 3000,
    "durationMs": {"addBatch": 1000, "triggerExecution": 1500},
    "eventTime": {"watermark": "2013-01-01T00:00:00.000Z"},
    "stateOperators": [{"numRowsDroppedByWatermark": 2}, {}],
    "sources": [{"latestOffset": json.dumps({"behind": {"records": 7000}})}],
}


def told(**changes: Any) -> BatchProgress:
    found = batch_progress({**DONE, **changes})
    assert found is not None
    return found


def test_a_line_for_people_and_one_for_programs() -> None:
    assert str(told()) == "batch 4: 3,000 rows in 1.5 s, 2,000 rows/s, 7,000 behind, 2 too late"
    assert json.loads(told().to_json()) == {
        "batch": 4,
        "started": "2026-01-02T03:04:05.678Z",
        "seconds": 1.5,
        "rows": 3000,
        "rows_per_second": 2000,
        "behind": 7000,
        "watermark": "2013-01-01T00:00:00.000Z",
        "late": 2,
    }


@pytest.mark.parametrize(
    "sources", [[], [{}], [{"latestOffset": None}], [{"latestOffset": "{}"}], [{"latestOffset": "5"}]]
)
def test_a_source_that_does_not_say_how_far_it_is(sources: list[dict[str, Any]]) -> None:
    assert told(sources=sources).behind is None
    assert "behind" not in str(told(sources=sources))


def test_that_there_is_nothing_to_do_is_no_batch() -> None:
    assert batch_progress({**DONE, "durationMs": {"latestOffset": 3}}) is None
