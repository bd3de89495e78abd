"""A topic in some runs with transactions that is compacted all the time, with few keys: the first by name, which faults
befall most."""

from __future__ import annotations

from random import Random

from tests.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.cluster.workload import Workload

TOPIC = "account-balances"
SHARE = 0.3
"""Of the runs with transactions."""
BACKOFF_MS = "80"
SEGMENTS_MS = ("50", "150")
"""Only what is in closed segments is compacted."""
MARKERS_STAY_MS = ("0", "86400000")
"""So long after everything that it was about is gone, the marker of a transaction goes, too."""


def is_compacted(seed: int) -> bool:
    """Whether there is such a topic in the run of a seed that has transactions."""
    return Random(f"compaction {seed}").random() < SHARE


def add_topic(workload: Workload, cluster: SimulatedCluster, seed: int) -> None:
    """To those that clients use."""
    chance = Random(f"compaction settings {seed}")
    workload.topics[TOPIC] = 1
    workload.compacted.add(TOPIC)
    workload.configs[TOPIC] = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": chance.choice(SEGMENTS_MS),
        "delete.retention.ms": chance.choice(MARKERS_STAY_MS),
    }
    for node in cluster.brokers.values():
        node.settings["log.cleaner.backoff.ms"] = BACKOFF_MS
