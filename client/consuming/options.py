"""Values of a consumer's options that contradict each other, or are none of those there are."""

from __future__ import annotations

from collections.abc import Sequence

from ..arguments import topic_name
from .fetcher import EARLIEST, LATEST

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
"""The values of `auto_offset_reset`."""
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


def check_topics(topics: Sequence[object]) -> None:
    """What stands before the options. Raises TypeError and ValueError."""
    for one in topics:
        if isinstance(one, list | tuple | set | frozenset):
            right = ", ".join(map(repr, one))
            raise TypeError(f"topics are given one by one: Consumer({right}), not Consumer({one!r})")
        topic_name(one)


def check_choices(
    *,
    auto_offset_reset: str,
    isolation_level: str,
) -> None:
    """Raises ValueError."""
    if auto_offset_reset not in RESETS:
        raise ValueError(f"auto_offset_reset is earliest, latest or none, not {auto_offset_reset!r}")
    if isolation_level not in ISOLATION_LEVELS:
        raise ValueError(f"isolation_level is read_uncommitted or read_committed, not {isolation_level!r}")
