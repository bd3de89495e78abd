"""Seeds of a cluster whose records the members of a share group take: none breaks a promise.

docs/TESTING.md states how many seeds it takes to find each mutant.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.share.mutants import MUTANTS

ROOT = Path(__file__).parents[3]
SEEDS = "0-5,8"
SEEN = frozenset(
    {
        "acknowledgement: INVALID_RECORD_STATE",
        "acknowledgement: NONE",
        "archived at the limit",
        "fault: elections",
        "fault: kill",
        "fault: pause",
        "finished",
        "partitions forgotten",
        "redeliveries",
        "sessions closed",
        "written",
    }
)
"""Branches that the seeds must cover together."""


FOUND_FROM = {"session-ends-everywhere": 24, "session-ends-in-all-partitions": 0}
"""Seeds from which on a mutant is found soon that needs a coincidence."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.share.run", "--processes", "1", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)
def test_no_seed_breaks_a_promise(tmp_path: Path) -> None:
    totals = tmp_path / "totals.json"
    done = run("--seeds", SEEDS, "--totals", str(totals))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert not SEEN - {name for name, count in json.loads(totals.read_text()).items() if count}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FOUND_FROM)
def test_a_session_that_ends_for_too_many_records_is_found(name: str) -> None:
    first = FOUND_FROM[name]
    done = run("--mutant", name, "--until-found", "--seeds", f"{first}-{first + 30}")
    assert done.returncode == 1, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert "one member holds a record" in done.stdout


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_can_be_planted_and_tells_its_story(name: str) -> None:
    each = MUTANTS[name]
    assert each.where == "share"
    assert all([each.story, each.breaks, each.history, each.needs])
    with each.planted():
        pass
