"""The process id of a node in a file: present while the node runs, and never another node's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import files
from ottla.cli.failures import CommandFailed
from ottla.cli.nodes.pid_files import pid_file

HOLDER = """
import sys; from pathlib import Path; from ottla.cli.nodes.pid_files import pid_file
with pid_file(Path(sys.argv[1])):
    print("held", flush=True); sys.stdin.read()
"""


def test_it_is_there_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text("4711000\nleft over from one that was killed\n")
    with pid_file(path):
        assert path.read_text() == f"{os.getpid()}\n"
    assert list(tmp_path.iterdir()) == []
    with pid_file(None):
        assert list(tmp_path.iterdir()) == []


def test_a_second_start_leaves_it_to_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second start used to write its own id, fail, and remove the file."""
    monkeypatch.setattr(files, "_PATIENCE_S", 0.0)
    path = tmp_path / "pid"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(CommandFailed, match=f"process {first.pid} has it, and runs"), pid_file(path):
            pass
        assert path.read_text() == f"{first.pid}\n"
        first.stdin.close()
    assert first.returncode == 0
    assert not path.exists()


def test_one_that_was_killed_has_it_no_more(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        first.kill()
        with pid_file(path):
            assert path.read_text() == f"{os.getpid()}\n"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none/pid"), pid_file(tmp_path / "none" / "pid"):
        pass
