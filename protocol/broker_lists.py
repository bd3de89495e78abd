"""Lists of brokers that are equal are one object: in a large cluster thousands of partitions have the same replicas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

KNOWN_MAX: Final = 4096

_known: dict[tuple[int, ...], tuple[int, ...]] = {}


def broker_list(broker_ids: Iterable[int]) -> tuple[int, ...]:
    """These brokers, in their order."""
    wanted = tuple(broker_ids)
    found = _known.get(wanted)
    if found is not None:
        return found
    if len(_known) >= KNOWN_MAX:
        _known.clear()
    _known[wanted] = wanted
    return wanted
