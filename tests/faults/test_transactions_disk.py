"""Transactions over several partitions, and a pipeline that copies exactly once, while a broker's disk is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import RunningCluster, wait_until
from tests.faults.disks import unavailable
from tests.faults.faults import Faults
from tests.faults.test_disk_full import FULL, cluster_with_small_disk, led_by
from tests.faults.transactions import Moves

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(unavailable()), reason=unavailable()),
    pytest.mark.timeout(500),
]

FULL_S = 3.0
LEADERS = {"leader": (FULL, 2, FULL), "follower": (2, 3, 2)}
"""Leaders of three partitions; the full broker leads two or none."""


@pytest.mark.parametrize("role", LEADERS)
def test_nothing_is_torn_by_a_disk_that_is_full(tmp_path: Path, role: str) -> None:
    source, target = "moves", "copies"
    with cluster_with_small_disk(tmp_path, f"broker-{FULL}", quorum=1) as (cluster, disk):
        for topic in (source, target):
            led_by(cluster, topic, *LEADERS[role])
        with (
            Faults(cluster, (source, target)) as faults,
            Moves(cluster, source, target, looks=False) as moves,
        ):
            for _ in range(3):
                moves.wait_committed(10)
                moves.wait_copied(3)
                before = refusals(cluster)
                faults.note("fill", f"disk of broker {FULL}")
                disk.fill()
                wait_until(lambda before=before: refusals(cluster) > before, "a full disk")  # type: ignore[misc]
                if role == "follower":
                    moves.wait_committed(5)
                faults.let_pass(FULL_S)
                moves.pipeline.kill()
                disk.make_room()
                faults.heal()
            moves.wait_committed(10)
            moves.wait_copied(3)
        moves.check(faults)
        assert cluster.broker(FULL).alive


def refusals(cluster: RunningCluster) -> int:
    """Return how often the small disk had no room."""
    return cluster.broker(FULL).log().count("No space left on device")
