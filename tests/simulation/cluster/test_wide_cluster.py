"""Several hundred partitions in the simulation, as the suite has time for; `wide` plays more."""

from __future__ import annotations

import json

from tests.simulation.cluster.test_determinism import printed_by

PLAY = """
import json, sys
from tests.simulation.cluster.playing import warm_up
from tests.simulation.cluster.wide import play
warm_up()
print(json.dumps(dict(play(1, int(sys.argv[1])).counts)))
"""
PARTITIONS = 300
LEADERS_MS = 1_000


def test_all_partitions_lead_on_after_a_kill_and_a_rolling_restart() -> None:
    took: dict[str, int] = json.loads(printed_by("-c", PLAY, str(PARTITIONS), hash_seed="0").splitlines()[-1])
    assert [step.split(": ")[-1] for step in took] == [
        "created, in sync",
        "all have leaders",
        "back in sync",
        "preferred leaders",
        *["stopped", "back in sync"] * 2,
    ]
    assert took["killed: all have leaders"] <= LEADERS_MS
