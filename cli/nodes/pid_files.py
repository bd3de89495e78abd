"""The file in which a node keeps its process id, for supervisors."""

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
    """Keep the process id in `path` meanwhile, and a lock on it: a second start, which fails, takes no file away that
    tells of the first one. Raises CommandFailed where another process has it, and OSError."""
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
    """The file of that name, locked by this process."""
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
    """Whether nobody has taken it away since it was opened."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
