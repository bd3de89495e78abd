"""A process that serves a lake's catalog over HTTP."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def served_catalog(folder: Path) -> Iterator[str]:
    """Serve the catalog of the lake in a folder, and yield its address. The process has to end well."""
    words = ("lake", "catalog", "--lake", str(folder), "--listen", "127.0.0.1:0")
    serving = subprocess.Popen(
        [sys.executable, "-m", "ottla", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None
        yield serving.stdout.readline().strip()
    finally:
        serving.send_signal(signal.SIGTERM)
        _, logged = serving.communicate(timeout=30)
    assert serving.returncode == 0, logged
    assert "the lake's catalog runs" in logged
