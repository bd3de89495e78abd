"""Shared tuples of broker ids: equal tuples are one object, since thousands of partitions of a large cluster have the
same replicas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

KNOWN_MAX: Final = 4096

_known: dict[tuple[int, ...], tuple[int, ...]] = {}


def broker_list(broker_ids: Iterable[int]) -> tuple[int, ...]:
    """Return these broker ids, in their order, as a tuple that is shared by all callers with equal lists."""
    wanted = tuple(broker_ids)
    found = _known.get(wanted)
    if found is not None:
        return found
    if len(_known) >= KNOWN_MAX:
        _known.clear()
    _known[wanted] = wanted
    return wanted
