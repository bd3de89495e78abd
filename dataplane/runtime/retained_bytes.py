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
    """The memory budget of one kind of state that clients can make a broker keep. Invariant: `total` is the sum of the
    sizes of all live claims.
    """

    __slots__ = ("_whole", "bytes_max", "holders", "share_max", "total")

    def __init__(self, bytes_max: int, whole: RetainedBytes | None = None) -> None:
        """Create a budget of `bytes_max` bytes. If `whole` is given, this budget is a part of it, and claims must fit
        into the bounds of `whole`.
        """
        self._whole = whole
        self.bytes_max = bytes_max
        self.share_max = int(bytes_max * SHARE)
        self.total = 0
        self.holders: dict[str, int] = {}
        """Claimed bytes by holder; a holder without claims is not in it."""

    def claim(
        self, size: int, *holders: str, in_place_of: RetainedClaim | None = None
    ) -> RetainedClaim | None:
        """Return a claim of `size` bytes for these holders, or None if the bytes do not fit.

        If a piece of state replaces another, `in_place_of` is the claim of the replaced one. Then only the difference
        has to fit.
        """
        more = size if in_place_of is None else size - in_place_of.size
        if more > 0 and not self.fits(more, holders):
            return None
        return self.claim_anyway(size, *holders)

    def claim_anyway(self, size: int, *holders: str) -> RetainedClaim:
        """Return a claim of `size` bytes that is granted even beyond the budget, for state that is in a log already."""
        claim = RetainedClaim(self, holders)
        claim.count(size)
        return claim

    def part(self) -> RetainedBytes:
        """Return a budget whose claims also count in this budget, until `end` is called on it."""
        return RetainedBytes(self.bytes_max, self)

    def end(self) -> None:
        """Give all bytes of this partial budget back to the whole budget at once. Claims that end afterwards count in
        the part alone.
        """
        whole, self._whole = self._whole, None
        if whole is not None:
            whole.total -= self.total
            for holder, size in self.holders.items():
                whole.add_for(holder, -size)

    def add(self, more: int, holders: tuple[str, ...]) -> None:
        """Add `more` bytes, which may be negative, to the claims of these holders and to `total`."""
        self.total += more
        for holder in holders:
            self.add_for(holder, more)
        if self._whole is not None:
            self._whole.add(more, holders)

    def add_for(self, holder: str, more: int) -> None:
        """Add `more` bytes to the claims of a single holder, but not to `total`."""
        left = self.holders.get(holder, 0) + more
        if left:
            self.holders[holder] = left
        else:
            self.holders.pop(holder, None)

    def fits(self, more: int, holders: tuple[str, ...]) -> bool:
        """Return whether these holders may claim `more` bytes: the budget has room, and each holder's share does."""
        if self._whole is not None:
            return self._whole.fits(more, holders)
        if self.total + more > self.bytes_max:
            return False
        return all(self.holders.get(holder, 0) + more <= self.share_max for holder in holders)

    def check(self) -> None:
        """Raise AssertionError if the total is negative, or a holder's claimed bytes are not positive."""
        if self.total < 0 or min(self.holders.values(), default=1) <= 0:
            raise AssertionError(f"{self.total} bytes are claimed, by holder {self.holders}")


class RetainedClaim:
    """A number of bytes of a budget, claimed for one piece of retained state. The piece of state refers to its claim.
    The bytes are given back when the last reference to the claim is dropped, in whatever manner the piece is dropped.
    """

    __slots__ = ("_budget", "_holders", "size")

    def __init__(self, budget: RetainedBytes, holders: tuple[str, ...]) -> None:
        self._budget = budget
        self._holders = holders
        self.size = 0

    def resize(self, size: int) -> bool:
        """Change the size of the claim to `size` bytes. Returns False, and changes nothing, if the additional bytes do
        not fit into the budget.
        """
        if size > self.size and not self._budget.fits(size - self.size, self._holders):
            return False
        self.count(size)
        return True

    def count(self, size: int) -> None:
        """Change the size of the claim to `size` bytes, even beyond the budget."""
        more, self.size = size - self.size, size
        if more:
            self._budget.add(more, self._holders)

    def __del__(self) -> None:
        self.count(0)
