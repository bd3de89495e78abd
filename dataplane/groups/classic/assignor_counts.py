"""Counts how many members of a classic group know each assignor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from .membership import ClassicMember


class AssignorCounts:
    """The number of members that know each assignor.

    The counts are updated while members only join, since there may be thousands. They are counted again after a member
    has changed or left.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None

    def known_to_others(
        self, members: Mapping[str, ClassicMember], member_id: str, offered: Iterable[str]
    ) -> bool:
        """Return whether all members except `member_id` know one of the `offered` assignors. `member_id` need not be a
        member."""
        if self._counts is None:
            self._counts = _counted(members)
        counts, own = self._counts, members.get(member_id)
        others = len(members) - (own is not None)
        known = frozenset[str]() if own is None else own.assignors
        return not others or any(counts[name] - (name in known) == others for name in offered)

    def came(self, member: ClassicMember) -> None:
        """Count the assignors that a new member knows."""
        if self._counts is not None:
            self._counts.update(member.assignors)

    def changed(self) -> None:
        """Discard the counts of members by assignor, since a member has left or knows other assignors now."""
        self._counts = None

    def contradictions(self, members: Mapping[str, ClassicMember]) -> Iterator[str]:
        """Yield a text if the counts of members by assignor differ from those of `members`; for invariant checks."""
        if self._counts is not None and self._counts != _counted(members):
            yield f"{self._counts} is not how many members know an assignor"


def _counted(members: Mapping[str, ClassicMember]) -> Counter[str]:
    return Counter(name for member in members.values() for name in member.assignors)
