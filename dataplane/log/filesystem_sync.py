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
_TRUSTED = {
    0xEF53: "ext2, ext3, ext4",
    0x58465342: "XFS",
    0x9123683E: "btrfs",
    0xF2F52010: "F2FS",
    0x01021994: "tmpfs",
}
"""File systems, by the number that `statfs` has of them, that flush to a disk of their own and tell of its failures.
FUSE says that all is well and does not ask its server to flush. Overlayfs does, although the disk below has refused
pages."""
_STATFS_BYTES = 512
"""More than any Linux writes."""


def is_supported(fd: int) -> bool:
    """Whether there is such a call here, and it can be trusted on the file system of an open file."""
    return _system_call() is not None and _file_system(fd) in _TRUSTED


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


def _file_system(fd: int) -> int | None:
    """The kind of the file system of an open file; None if it cannot be told."""
    import ctypes

    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).fstatfs(fd, status):
        return None
    return ctypes.c_ulong.from_buffer(status).value & 0xFFFFFFFF


def _is_recent(release: str) -> bool:
    major, minor, *_ = (*release.split("."), "", "")
    return major.isdecimal() and minor.isdecimal() and (int(major), int(minor)) >= _REPORTS_FAILURES
