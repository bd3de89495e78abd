"""The metrics of a worker as Prometheus reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

import ottla.sync
from ottla import Worker, WorkerStats
from ottla.client.worker.metrics import metrics_text
from ottla.protocol.exposition import CONTENT_TYPE

PAGE = Path(__file__).parents[3] / "docs/WORKER.md"


def stats(*longest: tuple[str, int]) -> WorkerStats:
    return WorkerStats(
        partitions=4,
        in_flight=3,
        held=20,
        held_bytes=900,
        uncommitted=5,
        waiting=2,
        oldest_s=1.5,
        lanes=7,
        longest_lanes=longest,
        succeeded=100,
        failed=9,
        retried=8,
        letters=1,
    )


def samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name.removeprefix("ottla_worker_"), sample.labels.get("lane", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_all_numbers() -> None:
    text = metrics_text("billing", stats())
    assert samples(text) == {
        ("partitions", ""): 4,
        ("records_in_flight", ""): 3,
        ("records_held", ""): 20,
        ("held_bytes", ""): 900,
        ("records_waiting", ""): 2,
        ("records_uncommitted", ""): 5,
        ("oldest_record_age_seconds", ""): 1.5,
        ("lanes", ""): 7,
        ("records_succeeded_total", ""): 100,
        ("attempts_failed_total", ""): 9,
        ("retries_total", ""): 8,
        ("dead_letters_total", ""): 1,
    }
    groups = {
        sample.labels["group"] for family in text_string_to_metric_families(text) for sample in family.samples
    }
    assert groups == {"billing"}


def test_long_lanes_are_series_of_their_own() -> None:
    """A key may have any text; a lane of a single record is left out, and lanes of one name are one series."""
    key = 'orders, key "x"\\n'
    found = samples(metrics_text("billing", stats((key, 9), ("long...", 3), ("long...", 2), ("single", 1))))
    lanes = {lane: value for (name, lane), value in found.items() if name == "lane_records"}
    assert lanes == {key: 9, "long...": 5}


def test_a_worker_that_does_not_run_has_metrics() -> None:
    for worker in (Worker("orders", group_id="billing"), ottla.sync.Worker("orders", group_id="billing")):
        assert samples(worker.metrics_text())["records_in_flight", ""] == 0


def test_the_server_of_the_page_serves_them() -> None:
    (example,) = re.findall(r"^```python\n(from http.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"worker": Worker("orders", group_id="billing")}
    exec(example.replace("9400", "0"), names)
    try:
        with urlopen(f"http://127.0.0.1:{names['server'].server_port}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert answer.read().decode() == names["worker"].metrics_text()
    finally:
        names["server"].shutdown()
        names["server"].server_close()
