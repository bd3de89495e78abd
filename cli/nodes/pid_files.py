"""The file with a node's process id, for supervisors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ..failures import CommandFailed
from ..files import FileHeld, lock, sign


@contextmanager
def pid_file(path: Path | None) -> Iterator[None]:
    """Keep this process's id in the file `path`, locked, while the block runs.

    Because of the lock a second start fails without removing the file of the first. Raises CommandFailed if another
    process holds the lock, and OSError.
    """
    if path is None:
        yield
        return
    with _locked(path) as file:
        sign(file)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _locked(path: Path) -> TextIO:
    """Open the pid file at `path`, creating it if necessary, and lock it."""
    while True:
        file = path.open("a+")
        try:
            lock(file)
            if _is_named(file, path):
                return file
        except FileHeld as held:
            file.close()
            raise CommandFailed(f"--pid-file {path}: process {held.owner} has it, and runs") from None
        except BaseException:
            file.close()
            raise
        file.close()


def _is_named(file: TextIO, path: Path) -> bool:
    """Return whether the path still names the opened file, which another process may have removed."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
