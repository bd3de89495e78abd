"""A seed gives the same run, byte for byte, for any memory layout and with any observer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SEEDS = (3, 4)

PLAY_COLD = """
import sys
from tests.simulation.cluster.playing import in_child
from tests.simulation.cluster.scenario import Report, play

scattered = [object() for _ in range(int(sys.argv[1]))]
del scattered[::3]
for seed in sys.argv[2:]:
    outcome = in_child(lambda: play(int(seed)))
    print(outcome.digest if isinstance(outcome, Report) else repr(outcome))
"""
"""Script that plays seeds in a fresh process, with objects scattered over its memory and no codec prepared."""


def printed_by(*arguments: str, hash_seed: str) -> str:
    """Return Python's output with these arguments."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.stdout, ended.stderr
    return ended.stdout


def cold(objects: int, seeds: tuple[int, ...]) -> list[str]:
    """Return the digest of each seed."""
    return printed_by("-c", PLAY_COLD, str(objects), *map(str, seeds), hash_seed="0").splitlines()


@pytest.mark.timeout(300)
def test_a_run_does_not_depend_on_addresses_in_memory_on_being_traced_nor_on_the_environment(
    tmp_path: Path,
) -> None:
    digests = cold(0, SEEDS)
    assert len(set(digests)) == len(SEEDS)
    assert cold(123_457, SEEDS) == digests
    printed = printed_by(
        *("-m", "tests.simulation.cluster.run", "--seeds", str(SEEDS[0])),
        *("--trace", str(tmp_path / "trace.txt")),
        hash_seed="7",  # The command itself fixes the hash seed.
    )
    match = re.search(r"digest='(\w+)'", printed)
    assert match is not None, printed
    assert match[1] == digests[0]
    assert (tmp_path / "trace.txt").stat().st_size > 100_000
