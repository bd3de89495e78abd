"""The search for a cut that keeps a micro-batch, or a round of a lake table, small enough. Pure."""

from __future__ import annotations

ENOUGH = 0.8
"""Share of the allowance from which a cut is accepted without further search."""

AIM = 0.9
"""Share of the allowance that a guess aims at."""


class CutSearch:
    """A search for a cut that keeps the micro-batch small enough, among the commit indexes from `first` to `newest`.

    A cut's cost rises with its index; the cost of `first` is 0. Determine the cost of `next_index` and pass it to
    `tell`, until `next_index` is None. Then `found` is within the allowance, and either uses most of it or is the
    newest such cut. In a long log brokers look such cuts up in their files, so few requests matter more than the very
    last transaction.
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
        """Next commit index to determine the cost of; None when the search is over.

        Guesses alternate between interpolation of the known costs and bisection, as transactions differ in size.
        """
        if self._high - self._low <= 1 or self._low_cost >= self._allowance * ENOUGH:
            return None
        gap = self._high - self._low
        if self._probes % 2:
            guess = gap // 2
        else:
            # Aim a little below the allowance: the guess has to be within it, and need not be exact.
            wanted = int(self._allowance * AIM) - self._low_cost
            guess = gap * wanted // max(1, self._high_cost - self._low_cost)
        return self._low + min(max(guess, 1), gap - 1)

    def tell(self, index: int, cost: int) -> None:
        """Record the cost in offsets of the cut at commit index `index`, which `next_index` has named."""
        self._probes += 1
        if cost <= self._allowance:
            self._low, self._low_cost = index, cost
        else:
            self._high, self._high_cost = index, cost

    @property
    def found(self) -> int:
        """The commit index of the newest cut known to be within the allowance."""
        return self._low

    @property
    def behind(self) -> int:
        """The commit index of the oldest cut known to exceed the allowance: the next transaction, if `found` costs
        nothing."""
        return self._high
