"""Bins of small files: neighbours that are worth being rewritten as one file. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BinLimits:
    """The bins that are worth rewriting. Sizes are in bytes."""

    bytes_max: int
    """The size of a bin, which becomes one file."""
    bytes_worth: int
    """The size from which also a bin of two files is rewritten."""
    files_worth: int
    """The number of files from which also a smaller bin is rewritten."""


def bins(sizes: Sequence[int], limits: BinLimits) -> Iterator[range]:
    """Yield the places of neighbouring files that become one file each. `sizes`: of files in their order, in bytes."""
    begin, total = 0, 0
    for end, size in enumerate(sizes):
        if total + size > limits.bytes_max and end > begin:
            if _is_worth(end - begin, total, limits):
                yield range(begin, end)
            begin, total = end, 0
        total += size
    if _is_worth(len(sizes) - begin, total, limits):
        yield range(begin, len(sizes))


def _is_worth(files: int, total: int, limits: BinLimits) -> bool:
    return files >= 2 and (files >= limits.files_worth or total >= limits.bytes_worth)
