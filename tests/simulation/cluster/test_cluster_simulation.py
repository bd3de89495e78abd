"""Seeds of the whole cluster under faults: none may break an invariant, and together they go through all branches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = 300
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
        "history: CommittedRead",
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
        "one-way cuts",
        "open transaction aborted",
        "preferred elected",
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
        "segments lost",
        "segments retained no longer",
        "torn writes",
        "transaction expired",
        "transactional write waited",
        "unclean election",
    }
)
"""What the seeds together have to go through."""


@pytest.mark.timeout(900)
def test_no_seed_breaks_an_invariant(tmp_path: Path) -> None:
    totals = tmp_path / "totals.json"
    played = subprocess.run(
        [
            *(sys.executable, "-m", "tests.simulation.cluster.run", "--processes", "1"),
            *("--seeds", f"0-{SEEDS}", "--totals", str(totals)),
        ],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stdout[-20_000:] + played.stderr[-2_000:]
    counted = json.loads(totals.read_text())
    assert not (missed := {branch for branch in BRANCHES if not counted.get(branch)}), missed
