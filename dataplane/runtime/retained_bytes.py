"""Budgets of memory that clients' requests make a broker keep beyond their connections.

Each kind of state has its own budget. A claim counts for its holders, which are the principal and the address of the
client, and no holder gets more than its share of the budget. So a client that asks for too much is refused, and leaves
room for others. Pure.
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 0.5
"""The part of a budget that one principal, or one address, may claim."""


class RetainedBytes:
    """The budget of one kind of state. Invariant: `total` is the sum of the sizes of all live claims."""

    __slots__ = ("bytes_max", "holders", "refused", "share_max", "total")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.share_max = int(bytes_max * SHARE)
        self.total = 0
        self.holders: dict[str, int] = {}
        """Claimed bytes by holder; a holder without claims is not in it."""
        self.refused = 0
        """How many claims did not fit."""

    def claim(self, size: int, *holders: str) -> RetainedClaim | None:
        """Return a claim of `size` bytes for these holders, or None if it does not fit."""
        claim = RetainedClaim(self, holders)
        return claim if claim.resize(size) else None

    def claim_anyway(self, size: int, *holders: str) -> RetainedClaim:
        """Return a claim that is granted even beyond the budget, for state that is in a log already."""
        claim = RetainedClaim(self, holders)
        claim.count(size)
        return claim

    def fits(self, more: int, holders: tuple[str, ...]) -> bool:
        """Return whether these holders may claim `more` bytes."""
        if self.total + more > self.bytes_max:
            return False
        return all(self.holders.get(holder, 0) + more <= self.share_max for holder in holders)

    def check(self) -> None:
        """Raise AssertionError if the sums contradict each other."""
        if self.total < 0 or min(self.holders.values(), default=1) <= 0:
            raise AssertionError(f"{self.total} bytes are claimed, by holder {self.holders}")


class RetainedClaim:
    """Bytes that are claimed for one piece of state. The piece refers to its claim: the bytes are given back when the
    last reference goes, on whichever way the piece is dropped."""

    __slots__ = ("_budget", "_holders", "size")

    def __init__(self, budget: RetainedBytes, holders: tuple[str, ...]) -> None:
        self._budget = budget
        self._holders = holders
        self.size = 0

    def resize(self, size: int) -> bool:
        """Claim `size` bytes in place of the present ones. Returns False, and changes nothing, if they do not fit."""
        if size > self.size and not self._budget.fits(size - self.size, self._holders):
            self._budget.refused += 1
            return False
        self.count(size)
        return True

    def count(self, size: int) -> None:
        """Claim `size` bytes in place of the present ones, even beyond the budget."""
        budget, more = self._budget, size - self.size
        self.size = size
        budget.total += more
        for holder in self._holders:
            left = budget.holders.get(holder, 0) + more
            if left:
                budget.holders[holder] = left
            else:
                budget.holders.pop(holder, None)

    def __del__(self) -> None:
        self.count(0)
