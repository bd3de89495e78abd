"""Atomic replacement of files, and locks on files."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final, TextIO

_PATIENCE_S: Final = 2.0
"""Seconds to wait for a lock: the kernel releases a killed process's locks only once it has closed all files."""
_LOOK_AGAIN_S: Final = 0.05


class FileHeld(Exception):
    """The lock of a file is held by another process; `owner` is the content of the file, usually a process id."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def lock(file: TextIO) -> None:
    """Lock an open file exclusively until it is closed. Raises FileHeld after a wait of two seconds, and OSError."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.seek(0)
                raise FileHeld(file.read().strip()) from None
        time.sleep(_LOOK_AGAIN_S)


def sign(file: TextIO) -> None:
    """Replace the content of a locked file by this process's id. Raises OSError."""
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace the content of the file `path` by `text`.

    A reader sees either the whole old or the whole new text, even after a power loss.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
