"""How much a micro-batch takes: of plain offsets a share of each partition, of transactions as many as fit. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def spread(allowance: int, room: Mapping[Key, int]) -> dict[Key, int]:
    """How much of its room each gets, in proportion to the room, and `allowance` together if there is so much. What
    rounding leaves over goes to the largest fractions, so that every allowance gets somebody on.
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
    """Whether a micro-batch begins now: there is enough for one, or what there is has waited long enough."""
    return available > 0 and (minimum is None or available >= minimum or waited_ms >= max_delay_ms)


ENOUGH = 0.8
"""A cut that uses so much of the allowance is not improved upon."""

AIM = 0.9
"""What is tried first is expected to use so much."""


class CutSearch:
    """For a cut that leaves the micro-batch small enough, among the commit indexes from `first` to `newest`.

    What a cut costs rises with its index; that of `first` costs nothing. Ask for the cost of `next_index` and tell it,
    until that is None; then `found` is within the allowance, and either uses most of it or is the newest that is. In a
    long log brokers look such cuts up in their files, so a few questions are better than the very last transaction.
    """

    def __init__(self, first: int, newest: int, newest_cost: int, allowance: int) -> None:
        self._allowance = allowance
        self._low, self._low_cost = first, 0
        self._high, self._high_cost = newest, newest_cost
        self._probes = 0
        if newest_cost <= allowance:
            self._low = newest

    @property
    def next_index(self) -> int | None:
        """The commit index to ask about: where the costs so far let one expect it, or, every other time, in the middle,
        as transactions differ in size."""
        if self._high - self._low <= 1 or self._low_cost >= self._allowance * ENOUGH:
            return None
        gap = self._high - self._low
        if self._probes % 2:
            guess = gap // 2
        else:
            # A little less than expected: it is to be within, and need not be exact.
            wanted = int(self._allowance * AIM) - self._low_cost
            guess = gap * wanted // max(1, self._high_cost - self._low_cost)
        return self._low + min(max(guess, 1), gap - 1)

    def tell(self, index: int, cost: int) -> None:
        """What the cut at `next_index` costs."""
        self._probes += 1
        if cost <= self._allowance:
            self._low, self._low_cost = index, cost
        else:
            self._high, self._high_cost = index, cost

    @property
    def found(self) -> int:
        """A cut within the allowance."""
        return self._low

    @property
    def behind(self) -> int:
        """The oldest that is known not to be: the next transaction, where `found` costs nothing."""
        return self._high
