"""A topic with few keys that is compacted all the time, in some runs with transactions.

Most faults hit this topic, the first by name.
"""

from __future__ import annotations

from random import Random

from tests.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.cluster.workload import Workload

TOPIC = "account-balances"
SHARE = 0.3
"""Share of the runs with transactions."""
BACKOFF_MS = "80"
SEGMENTS_MS = ("50", "150")
"""Values of segment.ms; only closed segments are compacted."""
MARKERS_STAY_MS = ("0", "86400000")
"""Values of delete.retention.ms: a transaction's marker is dropped this long after its records are gone."""


def is_compacted(seed: int) -> bool:
    """Return whether a seed's run, which has transactions, has such a topic."""
    return Random(f"compaction {seed}").random() < SHARE


def add_topic(workload: Workload, cluster: SimulatedCluster, seed: int) -> None:
    """Add the topic to the workload."""
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
