"""The first program of each section of docs/ECOSYSTEM.md, followed to the letter in an empty folder."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster import RunningCluster, wait_until
from tests.programs.first_pages import Newcomer
from tests.programs.jvm import needs_jdk

pytestmark = pytest.mark.timeout(800)
TOLD = {
    "Kafka Streams": {"cat:1", "dog:1", "the:2"},
    "Kafka Connect": {"one", "two"},
    "Flink": {"the cat", "the dog"},
    "Spark": {"cat:0 1", "dog:0 1", "the:0 2"},
    "FastStream": {"paid tea"},
}
"""Output of each section's last command."""


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(name, marks=() if name == "FastStream" else (pytest.mark.java, needs_jdk))
        for name in TOLD
    ],
)
def test_the_first_program(cluster: RunningCluster, tmp_path: Path, section: str) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with ExitStack() as running:
        Newcomer(folder, cluster.bootstrap, "First pages").follow(running).wait(60)
        newcomer = Newcomer(folder, cluster.bootstrap, section)
        program = newcomer.follow(running)

        def complete() -> bool:
            newcomer.check()
            return TOLD[section] <= set(program.said.splitlines()) or not program.alive

        wait_until(complete, f"{TOLD[section]}", 120)
        assert TOLD[section] <= set(program.said.splitlines()), program.said[-3000:]
