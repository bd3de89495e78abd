"""Files that others read while they are written, and files that one process holds."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final, TextIO

_PATIENCE_S: Final = 2.0
"""Who was killed a moment ago has its locks until the kernel has closed all files."""
_LOOK_AGAIN_S: Final = 0.05


class FileHeld(Exception):
    """Another process has the lock. `owner` is what the file says: its process id, as a rule."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def lock(file: TextIO) -> None:
    """Have the lock of an open file until it is closed. Raises FileHeld, and OSError."""
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
    """Have a file that this process has locked tell its process id, and nothing else. Raises OSError."""
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace `path` by `text`, so that a reader sees the old file or the whole new one, also after a loss of power."""
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
