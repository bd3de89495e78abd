"""Every mutant is planted where it takes effect: a scene that is safe with our code goes wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.cluster.mutants import MUTANTS
from tests.simulation.cluster.scenes import Scene
from tests.simulation.cluster.scenes_of_disks import SCENES
from tests.simulation.raft import mutants as raft

PLAYED_BY_THE_RAFT_SIMULATION = {*raft.MUTANTS.values(), raft.replies_of_any_term}
CASES = [
    pytest.param(name, scene, id=f"{name}: {scene.__name__}")
    for name, scenes in SCENES.items()
    for scene in scenes
]


@pytest.mark.parametrize(("name", "scene"), CASES)
def test_a_mutant_breaks_what_ours_keeps(name: str, scene: Scene, tmp_path: Path) -> None:
    before = [tmp_path / "ours", tmp_path / "mutant", tmp_path / "ours again"]
    for folder in before:
        folder.mkdir()
    assert not scene(before[0])
    with MUTANTS[name].planted():
        assert scene(before[1])
    assert not scene(before[2]), "the mutant is gone with its context"


def test_every_mutant_is_shown_by_something() -> None:
    played = {name for name, each in MUTANTS.items() if each.planted in PLAYED_BY_THE_RAFT_SIMULATION}
    assert {name for name, each in MUTANTS.items() if each.where == "raft"} == played
    assert MUTANTS.keys() - played == SCENES.keys()


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_tells_its_story(name: str) -> None:
    each = MUTANTS[name]
    assert all([each.story, each.breaks, each.history, each.needs])
