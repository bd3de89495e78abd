"""The size of a micro-batch: a share of each partition for plain offsets. Pure.

`client.transactions.cut_search` finds as many whole transactions as fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def spread(allowance: int, room: Mapping[Key, int]) -> dict[Key, int]:
    """Divide `allowance` among the keys in proportion to their room; each gets at most its room.

    Units left over from rounding go to the largest fractions, so any positive allowance is used.
    """
    total = sum(room.values())
    if total <= allowance:
        return dict(room)
    shares = {key: size * allowance // total for key, size in room.items()}
    left = allowance - sum(shares.values())
    by_fraction = sorted(room, key=lambda key: room[key] * allowance % total, reverse=True)
    for key in by_fraction[:left]:
        shares[key] += 1
    return shares


def is_due(available: int, minimum: int | None, waited_ms: float, max_delay_ms: int) -> bool:
    """Return whether a micro-batch begins now: enough records are available, or they have waited long enough."""
    return available > 0 and (minimum is None or available >= minimum or waited_ms >= max_delay_ms)
