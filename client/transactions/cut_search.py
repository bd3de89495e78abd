"""The choice of a cut that keeps a micro-batch, or a round of a lake table, small enough. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

ENOUGH = 0.8
"""Share of the allowance from which a cut is accepted without further search."""

AIM = 0.9
"""Share of the allowance that a guess aims at."""


Key = TypeVar("Key", bound=Hashable)


class CutPlace(Protocol):
    """The position of a cut in a partition; `admin.CutOffset` has these fields, and documents them."""

    @property
    def offset(self) -> int:
        """The offset of the cut."""

    @property
    def open_from(self) -> int:
        """First offset of the oldest transaction that is open there."""

    @property
    def least_offset(self) -> int:
        """Lowest equivalent offset."""


class ReadPlace(NamedTuple):
    """A place up to which a partition is read: its offset, and the beginning of the transactions open there."""

    offset: int
    open_from: int


@dataclass(frozen=True, slots=True)
class ChosenCut(Generic[Key]):
    """A cut that was found for a micro-batch or a round."""

    index: int
    """The commit index of the cut."""
    places: Mapping[Key, ReadPlace]
    """The places up to which partitions are read. Partitions without offsets to read are left out."""


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


async def largest_cut(
    first: int,
    newest: int,
    start: Mapping[Key, int],
    most: Mapping[Key, int],
    maximum: int,
    cut_at: Callable[[int], Awaitable[Mapping[Key, CutPlace]]],
) -> ChosenCut[Key]:
    """Return the newest cut within `maximum` offsets of `start`, plus further offsets before the end of the next
    transaction. A transaction larger than `maximum` is read alone.

    `first` and `newest` are commit indexes: of the cut at `start`, and of the newest cut, which is at `most`. `cut_at`
    returns the cut at a commit index, and is called once for each index.
    """
    asked: dict[int, Mapping[Key, CutPlace]] = {}

    async def at(index: int) -> Mapping[Key, CutPlace]:
        if index not in asked:
            asked[index] = await cut_at(index)
        return asked[index]

    search = CutSearch(first, newest, cost(start, await at(newest)), maximum)
    while (index := search.next_index) is not None:
        search.tell(index, cost(start, await at(index)))
    chosen = search.found
    places = within(start, most, await at(chosen), maximum)
    if not places and search.behind > chosen:
        chosen = search.behind
        places = within(start, most, await at(chosen), maximum)
    return ChosenCut(chosen, places)


def cost(start: Mapping[Key, int], cut: Mapping[Key, CutPlace]) -> int:
    """Return the number of offsets to read from `start`, at least, up to a cut. Partitions that `start` lacks begin at
    0."""
    return sum(max(0, place.least_offset - start.get(key, 0)) for key, place in cut.items())


def within(
    start: Mapping[Key, int], newest: Mapping[Key, int], cut: Mapping[Key, CutPlace], maximum: int
) -> dict[Key, ReadPlace]:
    """Return the places that are read after `start`: at the cut, moved on by the offsets that the rest of `maximum`
    allows, but not beyond `newest`. Partitions without offsets to read are left out.

    Between `least_offset` and `offset` no transaction ends. So the transactions open at `offset` include all that are
    open in between.
    """
    least = {key: max(place.least_offset, start.get(key, 0)) for key, place in cut.items()}
    most = {key: min(place.offset, newest[key]) for key, place in cut.items()}
    room = {key: max(0, most[key] - least[key]) for key in cut}
    shares = spread(max(0, maximum - cost(start, cut)), room)
    found = {}
    for key, place in cut.items():
        offset = least[key] + shares[key]
        if offset > start.get(key, 0):
            found[key] = ReadPlace(offset, min(offset, place.open_from))
    return found


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
