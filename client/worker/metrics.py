"""The metrics of a worker for Prometheus, made from its stats. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ...protocol.exposition import Family, counter, exposition, gauge
from .stats import WorkerStats

PARTITIONS = gauge("ottla_worker_partitions", "Partitions that are assigned to a worker.", "group")
IN_FLIGHT = gauge("ottla_worker_records_in_flight", "Records that are in the handler.", "group")
HELD = gauge(
    "ottla_worker_records_held", "Unfinished records that were read, also those in the handler.", "group"
)
HELD_BYTES = gauge(
    "ottla_worker_held_bytes", "Keys, values and headers of the held records, in bytes.", "group"
)
WAITING = gauge("ottla_worker_records_waiting", "Records that wait for a retry, or for a rate.", "group")
UNCOMMITTED = gauge(
    "ottla_worker_records_uncommitted", "Finished records that no commit covers yet.", "group"
)
OLDEST = gauge(
    "ottla_worker_oldest_record_age_seconds",
    "Seconds since the oldest unfinished record was read; 0 if there is none.",
    "group",
)
LANES = gauge("ottla_worker_lanes", "Keys, or other lanes, with held records.", "group")
LANE_RECORDS = gauge(
    "ottla_worker_lane_records",
    "Held records of a key, or of another lane: the ten longest lanes, without lanes of a single record.",
    "group",
    "lane",
)
SUCCEEDED = counter("ottla_worker_records_succeeded_total", "Records that the handler has finished.", "group")
FAILED = counter("ottla_worker_attempts_failed_total", "Attempts that have failed.", "group")
RETRIED = counter(
    "ottla_worker_retries_total", "Failed attempts after which another attempt follows.", "group"
)
LETTERS = counter("ottla_worker_dead_letters_total", "Records that became dead letters.", "group")
LEAST_SHOWN: Final = 2
"""The length from which a lane is reported: a lane of one record holds nothing up."""


def metrics_text(group_id: str, stats: WorkerStats) -> str:
    """Return a worker's metrics in Prometheus' text format."""
    return "".join(exposition(_families(group_id, stats)))


def _families(group_id: str, stats: WorkerStats) -> Iterator[Family]:
    for metric, value in (
        (PARTITIONS, stats.partitions),
        (IN_FLIGHT, stats.in_flight),
        (HELD, stats.held),
        (HELD_BYTES, stats.held_bytes),
        (WAITING, stats.waiting),
        (UNCOMMITTED, stats.uncommitted),
        (OLDEST, stats.oldest_s),
        (LANES, stats.lanes),
        (SUCCEEDED, stats.succeeded),
        (FAILED, stats.failed),
        (RETRIED, stats.retried),
        (LETTERS, stats.letters),
    ):
        yield Family(metric, [((group_id,), value)])
    # Long keys may have equal names, as they are shortened, and a page has each series once.
    lengths: Counter[str] = Counter()
    for lane, length in stats.longest_lanes:
        if length >= LEAST_SHOWN:
            lengths[lane] += length
    yield Family(LANE_RECORDS, [((group_id, lane), length) for lane, length in lengths.items()])
