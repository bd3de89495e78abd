"""What an invariant is, and how breaking one is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar

from ..operations import History
from .facts import Facts

EXAMPLES_MAX = 5


class InvariantBroken(AssertionError):
    """A history that must not be: `name` of the invariant, `message` with the operations that break it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.message = name, message


class HistoryBroken(AssertionError):
    """All invariants that one history breaks."""

    def __init__(self, broken: Sequence[InvariantBroken], counts: dict[str, int]) -> None:
        self.broken = tuple(broken)
        self.names = tuple(one.name for one in broken)
        told = ", ".join(f"{kind} {number}" for kind, number in counts.items())
        super().__init__("\n".join([f"{len(broken)} invariants broken in {told}", *map(str, broken)]))


class Invariant:
    """One promise to users; the docstring of each subclass says which. `scenarios`: the situations that threaten it, by
    their number in the list of scenarios."""

    scenarios: ClassVar[tuple[int, ...]] = ()

    @property
    def name(self) -> str:
        return type(self).__name__

    def violations(self, facts: Facts) -> Iterator[str]:
        """What breaks it, one text for each finding."""
        raise NotImplementedError

    def check(self, history: History) -> None:
        """Raise InvariantBroken if this history breaks it."""
        self.check_facts(Facts(history))

    def check_facts(self, facts: Facts) -> None:
        """The same, for several invariants that look at one history."""
        found = self.violations(facts)
        examples = list(islice(found, EXAMPLES_MAX))
        if examples:
            more = sum(1 for _ in found)
            raise InvariantBroken(self.name, "; ".join([*examples, *([f"and {more} more"] if more else [])]))
