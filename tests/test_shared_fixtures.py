"""A group's shared fixtures last for the whole group, and are gone when other tests run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = """
import pytest

def note(what):
    with open("{notes}", "a") as notes:
        print(what, file=notes)

@pytest.fixture(scope="session")
def cluster():
    note("{name} starts")
    yield
    note("{name} ends")

@pytest.fixture(scope="session")
def client(cluster):
    note("{name}'s client starts")
    yield
    note("{name}'s client ends")

@pytest.fixture(autouse=True)
def noted(request):
    yield
    note(request.node.name)
"""
TESTS = """
import pytest

@pytest.mark.xdist_group("{group}")
def test_{group}_takes(client): pass

@pytest.mark.xdist_group("{group}")
def test_{group}_does_not(): pass

@pytest.mark.xdist_group("{group}")
def test_{group}_takes_again(client): pass
"""


@pytest.mark.parametrize("distribution", [[], ["-p", "xdist", "-n", "1", "--dist", "loadgroup"]])
def test_a_fixture_of_the_session_ends_with_its_group(distribution: list[str], tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (tmp_path / "conftest.py").write_text(
        "from tests.shared_fixtures import SharedFixtures\n"
        "def pytest_configure(config): config.pluginmanager.register(SharedFixtures())\n"
    )
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "conftest.py").write_text(FOLDER.format(notes=notes, name=folder))
    (tmp_path / "a" / "test_1.py").write_text(TESTS.format(group="one"))
    (tmp_path / "a" / "test_2.py").write_text(TESTS.format(group="two"))
    (tmp_path / "b" / "test_3.py").write_text(TESTS.format(group="three"))
    (tmp_path / "b" / "test_4.py").write_text("def test_alone(): pass\n")
    (tmp_path / "b" / "test_5.py").write_text("def test_takes_it_alone(cluster): pass\n")
    (tmp_path / "pytest.ini").touch()
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", *distribution],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert [line.partition("@")[0] for line in notes.read_text().splitlines()] == [
        "a starts",
        "a's client starts",
        "test_one_takes",
        "test_one_does_not",
        "test_one_takes_again",
        # the next group takes it, too
        "test_two_takes",
        "test_two_does_not",
        "test_two_takes_again",
        # the next group has one of that name, but its own
        "a's client ends",
        "a ends",
        "b starts",
        "b's client starts",
        "test_three_takes",
        "test_three_does_not",
        "test_three_takes_again",
        "b's client ends",
        "b ends",
        "test_alone",
        "b starts",
        "test_takes_it_alone",
        "b ends",
    ]
