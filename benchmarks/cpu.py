"""The processor time of processes, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _OWN, _OF_CHILDREN = 1, slice(11, 13), slice(13, 15)
"""Fields after the name in /proc/PID/stat: the parent, user and system time, and those of children."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, without its children."""
    return _ticks(_fields(pid)[_OWN])


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of a process and its descendants, including those that have ended."""
    spent: dict[int, float] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = _fields(int(folder.name))
            except OSError:  # the process has ended
                continue
            parents[int(folder.name)] = int(fields[_PARENT])
            spent[int(folder.name)] = _ticks(fields[_OWN]) + _ticks(fields[_OF_CHILDREN])
    return sum(seconds for pid, seconds in spent.items() if _descends(pid, root, parents))


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _ticks(fields: list[str]) -> float:
    return sum(map(int, fields)) / TICKS_PER_S


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid and pid != root:
        pid = parents.get(pid, 0)
    return pid == root
