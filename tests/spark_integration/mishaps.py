"""Faults of streams: Spark forgets a completed batch, tasks fail after their work, drivers die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from tests.cluster import wait_until

ROOT = Path(__file__).resolve().parents[2]
STARTS_S = 100
"""Seconds for a start on two busy cores."""


def forget_last_commit(checkpoint: Path) -> int:
    """Make Spark forget the last completed batch, like a driver's crash before its note, and return the number of that
    batch, which comes again.
    """
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / f"{last}").unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


def first_attempt_fails_late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows through mapInArrow; each task's first attempt fails after the last row."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails")


@contextmanager
def process_group(
    argv: Sequence[str], log: Path, environ: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that is killed at the end of the block, with all its children."""
    with log.open("ab") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, env=environ, start_new_session=True)
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


@contextmanager
def doomed_driver(
    script: str, folder: Path, *arguments: str
) -> Iterator[Callable[[Callable[[], object], str], None]]:
    """Run a driver that is killed with all its processes at the end of the block.

    The yielded function waits until a condition holds, while the driver lives. Its log is in `folder`.
    """
    log = folder / "driver.log"
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    argv = [sys.executable, "-c", script, *arguments]
    with process_group(argv, log, {**os.environ, "PYTHONPATH": path}) as driver:

        def reaches(condition: Callable[[], object], what: str) -> None:
            def reached() -> object:
                assert driver.poll() is None, f"the driver has ended by itself:\n{log.read_text()[-2000:]}"
                return condition()

            wait_until(reached, what, STARTS_S)

        yield reaches
