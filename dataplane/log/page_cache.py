"""The identity of the page cache behind a folder: the kernel's memory, which has all that processes wrote to its files.

It survives the death of a process, and not that of the machine. It belongs to a mounted file system. A file system that
is mounted again begins with an empty page cache, and the disk may have refused pages of the earlier one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_DEVICES: Final = Path("/sys/dev/block")
_MOUNTED: Final = Path("/sys/fs")
_KNOWN: Final = {"ext4": "ext4", "xfs": "XFS"}
"""Local file systems, by the folder in `/sys/fs` in which the kernel has a folder for each mounted one."""
_ERRORS: Final = "errors_count"
"""The file in an ext4 folder of `/sys/fs` with the number of errors that the file system has met. XFS has no such file:
it refuses everything after an error until it is mounted again."""
_WAIT_BEFORE: Final = 1
"""The flag of `sync_file_range` that waits for pages on their way to the disk, and begins no others."""
_FIRST_PAGE: Final = 0, 1
"""The position and size of the range in which it waits. The call reports refused pages of the whole file. A page that
is on its way now and refused later is reported to the next flush."""


class UnknownPageCache(Exception):
    """The error for a folder whose page cache cannot be told from another one; the message has the reason."""


class PageCache(NamedTuple):
    """The identity of a page cache. Two are equal only if no page of the folder's files was lost in between."""

    boot: str
    """The kernel's boot id, which differs after each start of the machine."""
    device: int
    """The device of the file system (`st_dev`)."""
    superblock: int
    """The inode of the folder that the kernel made in `/sys/fs` when the file system was mounted. The kernel does not
    use the number again, and all containers see the same number."""
    errors: int
    """The file system's count of its errors. After an error it may be read-only, and no broker can remove its note."""
    folder: int
    """The inode of the folder itself, which differs in a copy."""


def page_cache_of(folder: Path) -> PageCache:
    """Return the identity of the page cache behind a folder. Raises UnknownPageCache if the system does not tell it, or
    is not known to keep written pages."""
    if sys.platform != "linux" or _wait_for_writes() is None:
        raise UnknownPageCache("the system does not tell whether the machine has restarted since")
    try:
        boot = _BOOT_ID.read_text().strip()
        status = os.stat(folder)
    except (OSError, ValueError) as error:
        raise UnknownPageCache(f"the kernel's boot id cannot be read ({error})") from None
    if not boot:
        raise UnknownPageCache(f"{_BOOT_ID} is empty")
    return PageCache(boot, status.st_dev, *_file_system(folder, status.st_dev), status.st_ino)


def _file_system(folder: Path, device: int) -> tuple[int, int]:
    """Return the number of a mounted file system, and the number of its errors. Raises UnknownPageCache."""
    try:
        link = os.readlink(_DEVICES / f"{os.major(device)}:{os.minor(device)}")
    except OSError:
        link = ""  # A file system without a disk of its own, such as NFS and overlay.
    name = os.path.basename(link)
    for kind in _KNOWN if name else ():
        mounted = _MOUNTED / kind / name
        try:
            return os.stat(mounted).st_ino, _errors(mounted)
        except (OSError, ValueError):
            continue
    known = " or ".join(_KNOWN.values())
    raise UnknownPageCache(f"the file system of {folder} is not known to be {known}")


def _errors(mounted: Path) -> int:
    try:
        return int((mounted / _ERRORS).read_text())
    except FileNotFoundError:
        return 0


def check_writes(fd: int) -> None:
    """Raise OSError if the disk has refused pages of an open file, and no flush of the file has reported that."""
    wait = _wait_for_writes()
    assert wait is not None, "it is not supported"
    wait(fd)


@cache
def _wait_for_writes() -> Callable[[int], None] | None:
    import ctypes  # Imported late, since a command that only reads logs does not need it.

    function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if function is None:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def wait(fd: int) -> None:
        if function(fd, *_FIRST_PAGE, _WAIT_BEFORE):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return wait
