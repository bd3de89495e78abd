"""Seeds of the whole cluster under faults: none violates an invariant, and together they cover all branches.

Nearly all mutants are found within these seeds (docs/TESTING.md); each of the others has a separate scene.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = ("1,3,13,24,29,48,53,144", "71,110,211,213,214,215,216,220,222")
"""Seeds that cover all branches, most of them twice: parts that are played beside each other."""
FURTHER = ("4,6,133,142,219", *(f"{first}-{first + 10}" for first in range(0, 300, 10)))
"""Further seeds, played one after the other while branches are missing, e.g. after the product's behaviour changed. The
first ones cover the rare branches once more."""
BRANCHES = frozenset(
    {
        "ISR change refused: FENCED_LEADER_EPOCH",
        "ISR change refused: INELIGIBLE_REPLICA",
        "ISR change refused: INVALID_UPDATE_VERSION",
        "ISR expansion proposed",
        "ISR shrink proposed",
        "classic group upgraded",
        "classic group: Dead",
        "classic group: Stable",
        "classic member removed",
        "commit refused: ILLEGAL_GENERATION",
        "commit refused: STALE_MEMBER_EPOCH",
        "commit refused: UNKNOWN_MEMBER_ID",
        "consumer group: member expired",
        "coordinator elected",
        "coordinator resigned",
        "datagrams duplicated",
        "datagrams lost",
        "datagrams reordered",
        "deaf broker fenced",
        "divergence found by a leader",
        "divergence told to a follower",
        "duplicate answered",
        "failed syncs",
        "fault: ambush",
        "fault: blackout",
        "fault: elections",
        "flipped bits",
        "full",
        "full broker gave way",
        "history: CommittedRead",
        "history: Poll in a transaction",
        "history: WholeRead",
        "leadership begins",
        "leadership begins uncleanly",
        "log begun anew",
        "log start moved",
        "lost names",
        "lost writes",
        "marker owed by a new leader",
        "marker written",
        "move begun",
        "move called off",
        "move completed",
        "offsets committed in a transaction",
        "aborted by the cluster",
        "one-way cuts",
        "open transaction aborted",
        "preferred elected",
        "producer id of a former writer",
        "quorum node leads",
        "refused: CONCURRENT_TRANSACTIONS",
        "refused: COORDINATOR_LOAD_IN_PROGRESS",
        "refused: FENCED_LEADER_EPOCH",
        "refused: ILLEGAL_GENERATION",
        "refused: INVALID_PRODUCER_EPOCH",
        "refused: INVALID_TXN_STATE",
        "refused: KAFKA_STORAGE_ERROR",
        "refused: NOT_COORDINATOR",
        "refused: NOT_ENOUGH_REPLICAS",
        "refused: NOT_LEADER_OR_FOLLOWER",
        "refused: OFFSET_OUT_OF_RANGE",
        "refused: OUT_OF_ORDER_SEQUENCE_NUMBER",
        "refused: PRODUCER_FENCED",
        "refused: STALE_BROKER_EPOCH",
        "refused: UNKNOWN_LEADER_EPOCH",
        "refused: UNKNOWN_MEMBER_ID",
        "refused: a request of an older connection",
        "reordered writes",
        "replica offline",
        "segment cut",
        "recovered by headers",
        "recovered by all bytes",
        "segments compacted",
        "segments lost",
        "segments retained no longer",
        "torn writes",
        "transaction expired",
        "transaction of a begun job: COMMITTED_BEFORE",
        "transaction of a begun job: None",
        "transaction of a job: COMMITTED_BEFORE",
        "transaction of a job: None",
        "transaction of a job: PRODUCER_FENCED",
        "transaction of a job: killed",
        "transactional write waited",
        "unclean election",
    }
)
"""Branches that the seeds must cover together."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", SEEDS)
def test_no_seed_breaks_an_invariant(seeds: str, tmp_path: Path, shared_folder: Path) -> None:
    totals = played(seeds, tmp_path)
    totals.rename(shared_folder / totals.name)
    found = list(shared_folder.glob("*.json"))
    if len(found) == len(SEEDS):  # the last part to end looks at all of them
        missed = BRANCHES.difference(*map(branches, found))
        for more in FURTHER:
            if missed:
                missed -= branches(played(more, tmp_path))
        assert not missed


def played(seeds: str, folder: Path) -> Path:
    """Play these seeds without a violation, and return the file of their counts."""
    totals = folder / f"{seeds}.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.simulation.cluster.run", "--processes", "1"),
            *("--seeds", seeds, "--totals", str(totals)),
        ],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    return totals


def branches(totals: Path) -> set[str]:
    """Return the branches that the seeds took."""
    return {branch for branch, count in json.loads(totals.read_text()).items() if count}


@pytest.fixture
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder shared by all processes of this test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "simulated-seeds"
    folder.mkdir(exist_ok=True)
    return folder
