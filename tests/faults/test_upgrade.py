"""The nodes of a cluster change to this version one after the other, quorum nodes first, under all that clients do.

They begin with code out of the repository's history. docs/COMPATIBILITY.md promises that order and no other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.conftest import SETTINGS
from tests.faults.faults import Faults
from tests.faults.node_cluster import ROOT, node_cluster
from tests.faults.older_versions import BEFORE_SECURITY, BEFORE_TOKENS, code_of
from tests.faults.transactions import Moves
from tests.faults.workload import Workload, make_topic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

RECORDS, MOVED, COPIED = "records", "moved", "copied"
PER_SECOND = 60


@pytest.mark.parametrize("older", [BEFORE_SECURITY, BEFORE_TOKENS])
def test_nodes_change_to_this_version_one_after_the_other(tmp_path: Path, older: str) -> None:
    """No send and no transaction fails, both kinds of groups go on, and every acknowledged record is there once."""
    code = code_of(older, tmp_path / "older")
    with node_cluster(tmp_path / "cluster", settings=SETTINGS, code=code) as cluster:
        for topic in (RECORDS, MOVED, COPIED):
            make_topic(cluster.bootstrap, topic)
        with (
            Faults(cluster, (RECORDS, MOVED, COPIED)) as faults,
            Workload(cluster.bootstrap, RECORDS, per_second=PER_SECOND) as workload,
            Moves(cluster, MOVED, COPIED) as moves,
        ):
            for node in faults.nodes:
                work(workload, moves)
                faults.stop(node)
                cluster.configure(node, {}, ROOT)
                workload.wait_acknowledged(30)
                faults.heal()
            work(workload, moves)
        workload.check(faults)
        moves.check(faults)


def work(workload: Workload, moves: Moves) -> None:
    """Return once all clients have got on."""
    workload.wait_acknowledged(30)
    workload.wait_read(30)
    moves.wait_committed(3)
    moves.wait_copied(2)
