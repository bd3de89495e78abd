"""The base class of invariants, and the errors that report a violation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar

from ..operations import History
from .facts import Facts

EXAMPLES_MAX = 5


class InvariantBroken(AssertionError):
    """A history that violates an invariant: its `name`, and a `message` with the violating operations."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.message = name, message


class HistoryBroken(AssertionError):
    """An error that lists all invariants that a history violates."""

    def __init__(self, broken: Sequence[InvariantBroken], counts: dict[str, int]) -> None:
        self.broken = tuple(broken)
        self.names = tuple(violation.name for violation in broken)
        summary = ", ".join(f"{kind} {number}" for kind, number in counts.items())
        super().__init__("\n".join([f"{len(broken)} invariants broken in {summary}", *map(str, broken)]))


class Invariant:
    """A promise to users, which the docstring of each subclass states.

    `scenarios`: the situations that threaten the promise, by their number in the list of scenarios.
    """

    scenarios: ClassVar[tuple[int, ...]] = ()

    @property
    def name(self) -> str:
        return type(self).__name__

    def violations(self, facts: Facts) -> Iterator[str]:
        """Yield a text for each violation."""
        raise NotImplementedError

    def check(self, history: History) -> None:
        """Raise InvariantBroken if this history breaks it."""
        self.check_facts(Facts(history))

    def check_facts(self, facts: Facts) -> None:
        """Raise InvariantBroken if the history of these facts violates the invariant; several invariants can share the
        facts.
        """
        found = self.violations(facts)
        examples = list(islice(found, EXAMPLES_MAX))
        if examples:
            more = sum(1 for _ in found)
            raise InvariantBroken(self.name, "; ".join([*examples, *([f"and {more} more"] if more else [])]))
