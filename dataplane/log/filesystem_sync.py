"""The system call `syncfs`, which flushes a whole file system.

If thousands of files have changed, this call is cheaper than a flush of each file. It also flushes the data of other
programs. A broker calls it only when it stops: nearly all data on its disk is its own then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache

_REPORTS_FAILURES = (5, 8)
"""The first Linux version whose call reports failures. Earlier versions report success even if the disk has refused
pages."""
_TRUSTED = {
    0xEF53: "ext2, ext3, ext4",
    0x58465342: "XFS",
    0x9123683E: "btrfs",
    0xF2F52010: "F2FS",
    0x01021994: "tmpfs",
}
"""File systems, by their number in `statfs`, that flush to their own disk and report its failures. FUSE reports success
and does not ask its server to flush. Overlayfs reports success although the disk below has refused pages."""
_STATFS_BYTES = 512
"""A size larger than any Linux version's `statfs` result."""


def is_supported(fd: int) -> bool:
    """Return whether this system has `syncfs`, and it can be trusted on the file system of an open file."""
    return _system_call() is not None and _file_system(fd) in _TRUSTED


def syncfs(fd: int) -> None:
    """Flush the file system of an open file, if that is supported. Raises OSError; also if the disk has refused any
    write to this file system since the file was opened."""
    call = _system_call()
    assert call is not None, "it is not supported"
    call(fd)


@cache
def _system_call() -> Callable[[int], None] | None:
    if sys.platform != "linux" or not _is_recent(os.uname().release):
        return None
    import ctypes  # Imported late, since a broker needs it only when it stops.

    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None

    def call(fd: int) -> None:
        if function(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return call


def _file_system(fd: int) -> int | None:
    """Return the number of an open file's file system type; None if unknown."""
    import ctypes

    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).fstatfs(fd, status):
        return None
    return ctypes.c_ulong.from_buffer(status).value & 0xFFFFFFFF


def _is_recent(release: str) -> bool:
    major, minor, *_ = (*release.split("."), "", "")
    return major.isdecimal() and minor.isdecimal() and (int(major), int(minor)) >= _REPORTS_FAILURES
