"""Seeds of two clusters, one of which copies the other: none breaks a promise, and together they cover all of it.

docs/TESTING.md states how many seeds it takes to find each mutant.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mirror.mutants import MUTANTS

ROOT = Path(__file__).parents[3]
SEEDS = "0,13,17,25,31,79"
"""Seeds that cover all branches, most of them twice. In seed 79 a failback is done, and its answer is lost."""
FURTHER = tuple(f"{first}-{first + 12}" for first in range(0, 96, 12))
"""Further seeds, played one after the other while a branch is missing, e.g. after the product's behaviour changed."""
SEEN = frozenset(
    {
        "acknowledged here",
        "batches compared",
        "cuts reached",
        "promoted at a cut",
        "failed back",
        "failed back, discarding",
        "fault: DIVERGED",
        "fault: GAP",
        "fault: MADE_ANEW",
        "accepted: DIVERGED",
        "accepted: GAP",
        "group offsets looked at",
        "keys renewed behind the cut",
        "link: cut",
        "link: reordering",
        "link: slow",
        "operator: mirror paused",
        "operator: records deleted",
        "promotion: after the end",
        "promotion: never",
        "promotion: source alive",
        "promotion: source cut off",
    }
)
"""Branches that the seeds must cover together."""

PLAY_COLD = """
import sys
from tests.simulation.cluster.playing import in_child
from tests.simulation.mirror.scenario import play

scattered = [object() for _ in range(int(sys.argv[1]))]
del scattered[::3]
outcome = in_child(lambda: play(int(sys.argv[2])))
print(outcome if isinstance(outcome, str) else outcome.digest)
"""
"""Script that plays seeds in a fresh process, with objects scattered over its memory and no codec prepared."""


def _printed(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    return done.stdout


def _seen(seeds: str, folder: Path) -> set[str]:
    """Play these seeds without a violation, and return the names of their counts."""
    totals = folder / f"{seeds}.json"
    _printed(
        *("-m", "tests.simulation.mirror.run", "--processes", "1"),
        *("--seeds", seeds, "--totals", str(totals)),
    )
    return {name for name, count in json.loads(totals.read_text()).items() if count}


@pytest.mark.timeout(600)
def test_no_seed_breaks_a_promise(tmp_path: Path) -> None:
    missed = SEEN - _seen(SEEDS, tmp_path)
    for seeds in FURTHER:
        if missed:
            missed -= _seen(seeds, tmp_path)
    assert not missed


def test_a_run_does_not_depend_on_addresses_in_memory() -> None:
    digests = {_printed("-c", PLAY_COLD, str(objects), "3").strip() for objects in (0, 123_457)}
    assert len(digests) == 1
    assert len(digests.pop()) == 32


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_can_be_planted_and_tells_its_story(name: str) -> None:
    each = MUTANTS[name]
    assert each.where == "mirror"
    assert all([each.story, each.breaks, each.history, each.needs])
    with each.planted():
        pass
