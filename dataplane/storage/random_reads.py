"""The time that a disk takes for a read at a random place.

A disk with a moving head takes milliseconds, and is slowed by readers that send the head to and fro. Other disks take a
fraction of a millisecond, and serve many readers at once. The system does not know which disk has a head: those of
virtual machines often claim to have one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

_QUICK_S: Final = 0.002
_PLACES_MAX: Final = 64
_TIMED: Final = 7
"""Reads of the disk after which the time is known."""


def are_quick(folders: Sequence[Path]) -> bool:
    """Return whether the disk reads quickly at random places of the segments in these folders; also if the page cache
    has most of them. Blocking.

    An error counts as a slow read.
    """
    times = []
    for fd, position in _places(folders):
        taken = _disk_time_s(fd, position)
        if taken is not None:
            times.append(taken)
        if len(times) == _TIMED:
            break
    return len(times) < _TIMED or median(times) < _QUICK_S


def _places(folders: Sequence[Path]) -> Iterator[tuple[int, int]]:
    """Yield descriptors and positions, one of each folder, and of no more than 64 folders."""
    step = max(1, len(folders) // _PLACES_MAX)
    for number, path in enumerate(_segments(folders[::step][:_PLACES_MAX])):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            yield fd, os.fstat(fd).st_size * number // _PLACES_MAX
        finally:
            os.close(fd)


def _segments(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        try:
            paths = [path for path in folder.iterdir() if path.suffix == ".log"]
        except OSError:
            continue
        yield from paths[:1]


def _disk_time_s(fd: int, position: int) -> float | None:
    """Return the seconds that a disk takes for a byte; None if the page cache has the byte."""
    space = bytearray(1)
    try:
        os.preadv(fd, [space], position, os.RWF_NOWAIT)
    except BlockingIOError:
        began_s = time.monotonic()
        try:
            os.preadv(fd, [space], position)
        except OSError:
            return _QUICK_S
        return time.monotonic() - began_s
    except OSError:
        return _QUICK_S
    return None
