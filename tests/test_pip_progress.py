"""The progress of `make venv`: pip's state by its output, a few lines in a log of CI, and the reason if pip fails."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "pip_progress.py"
OUTPUT = """\
Looking in links: /wheels
Obtaining file:///home/ann/ottla
  Preparing editable metadata (pyproject.toml): started
Collecting uvloop>=0.21 (from ottla==0.1.0)
  Obtaining dependency information for uvloop>=0.21 from https://host/uvloop-0.23.0-cp311-cp311-manylinux.whl.metadata
  Downloading uvloop-0.23.0-cp311-cp311-manylinux.whl.metadata (4.9 kB)
  Downloading uvloop-0.23.0-cp311-cp311-manylinux.whl (4.0 MB)
Collecting pysyncobj==0.3.17 (from ottla==0.1.0)
  Using cached pysyncobj-0.3.17-py3-none-any.whl
Collecting pyspark==4.3.0
  Downloading https://host/packages/pyspark-4.3.0.tar.gz (434.2 MB)
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pip_progress", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_state_follows_pips_output(script: ModuleType) -> None:
    state = script.PipState()
    for line in OUTPUT.splitlines(keepends=True):
        state.read(line)
    fetching = "step 2 of 4: fetching packages: pyspark, 3 so far, 438 MB downloaded, 1:05"
    assert state.text(65.9, 0) == fetching
    state.read("  Building wheel for pyspark (pyproject.toml): started\n")
    assert state.text(70, 0) == "step 2 of 4: building: pyspark, 3 so far, 438 MB downloaded, 1:10"
    state.read("Installing collected packages: pysyncobj, uvloop, pyspark, ottla\n")
    assert state.text(3600, 2) == "step 3 of 4: installing: 2 of 4 packages, 60:00"


def test_a_log_gets_a_line_for_each_step_and_half_minute(script: ModuleType) -> None:
    log = io.StringIO()
    shown = script.Shown(log)
    for second in range(1, 66):
        step = "fetching" if second < 40 else "installing"
        shown.show(step, f"{step} {second}", float(second))
    shown.end()
    assert log.getvalue().splitlines() == ["fetching 1", "fetching 31", "installing 40"]


def test_a_terminal_has_one_line(script: ModuleType) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    shown = script.Shown(terminal)
    for second in (1, 2):
        shown.show("fetching", f"fetching {second}", float(second))
    shown.end()
    assert terminal.getvalue() == "\r\x1b[Kfetching 1\r\x1b[Kfetching 2\n"


def test_the_end_of_pips_output_says_why_it_failed(tmp_path: Path) -> None:
    words = [sys.executable, str(SCRIPT), str(tmp_path / "log"), "--no-index", "there-is-no-such-package"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No matching distribution found for there-is-no-such-package" in done.stderr
    assert f"pip failed; {tmp_path / 'log'} has all of its output" in done.stderr
