"""How many members of a classic group know each assignor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from .membership import ClassicMember


class AssignorCounts:
    """Kept while members only come, since there may be thousands; counted anew once one has changed or gone."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None

    def known_to_others(
        self, members: Mapping[str, ClassicMember], member_id: str, offered: Iterable[str]
    ) -> bool:
        """Whether one of the `offered` assignors is known to all members but `member_id`, which may be none."""
        if self._counts is None:
            self._counts = _counted(members)
        counts, own = self._counts, members.get(member_id)
        others = len(members) - (own is not None)
        known = frozenset[str]() if own is None else own.assignors
        return not others or any(counts[name] - (name in known) == others for name in offered)

    def came(self, member: ClassicMember) -> None:
        """One member more."""
        if self._counts is not None:
            self._counts.update(member.assignors)

    def changed(self) -> None:
        """A member knows others now, or is gone."""
        self._counts = None

    def contradictions(self, members: Mapping[str, ClassicMember]) -> Iterator[str]:
        """What does not fit together."""
        if self._counts is not None and self._counts != _counted(members):
            yield f"{self._counts} is not how many members know an assignor"


def _counted(members: Mapping[str, ClassicMember]) -> Counter[str]:
    return Counter(name for member in members.values() for name in member.assignors)
