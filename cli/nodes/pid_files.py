"""The file in which a node keeps its process id, for supervisors."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from ..failures import CommandFailed

_PATIENCE_S: Final = 2.0
"""Who was killed a moment ago has the lock until the kernel has closed all files."""
_LOOK_AGAIN_S: Final = 0.05


@contextmanager
def pid_file(path: Path | None) -> Iterator[None]:
    """Keep the process id in `path` meanwhile, and a lock on it: a second start, which fails, takes no file away that
    tells of the first one. Raises CommandFailed where another process has it, and OSError."""
    if path is None:
        yield
        return
    with _locked(path) as file:
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _locked(path: Path) -> TextIO:
    """The file of that name, locked by this process."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(file, path):
                return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                with file:
                    file.seek(0)
                    owner = file.read().strip()
                raise CommandFailed(f"--pid-file {path}: process {owner} has it, and runs") from None
        except BaseException:
            file.close()
            raise
        file.close()
        time.sleep(_LOOK_AGAIN_S)


def _is_named(file: TextIO, path: Path) -> bool:
    """Whether nobody has taken it away since it was opened."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
