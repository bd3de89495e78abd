"""One call that flushes a file system: less than a flush of each file, where thousands have changed.

What others have written there is flushed, too. So it is for a broker that stops, and has as much to flush anyway.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache

_REPORTS_FAILURES = (5, 8)
"""Linux before that says that all is well, also where the disk has refused pages."""


def is_supported() -> bool:
    """Whether there is such a call here, and it can be trusted."""
    return _system_call() is not None


def syncfs(fd: int) -> None:
    """Flush the file system of an open file, where that is supported. Raises OSError; also if the disk has refused
    anything that was written there since the file was opened."""
    call = _system_call()
    assert call is not None, "it is not supported"
    call(fd)


@cache
def _system_call() -> Callable[[int], None] | None:
    if sys.platform != "linux" or not _is_recent(os.uname().release):
        return None
    import ctypes  # loaded late: a broker needs it as it stops

    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None

    def call(fd: int) -> None:
        if function(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return call


def _is_recent(release: str) -> bool:
    major, minor, *_ = (*release.split("."), "", "")
    return major.isdecimal() and minor.isdecimal() and (int(major), int(minor)) >= _REPORTS_FAILURES
