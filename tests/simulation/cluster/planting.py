"""What a mutant is: a fault that replicated logs have had, and the way to put it into ours while a test runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

Where = Literal["raft", "cluster", "mirror"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault. While `planted()` is entered every broker and quorum node of this process has it."""

    name: str
    breaks: str
    """What is left out, in one line."""
    history: str
    """Where it comes from."""
    needs: str
    """Faults, settings and load that bring it out."""
    planted: Callable[[], AbstractContextManager[None]]
    where: Where = "cluster"
    """The simulation that has to find it."""

    @property
    def story(self) -> str:
        """The shortest sequence of events in which a user loses a record or sees a wrong one."""
        return inspect.getdoc(self.planted) or ""


def mutant(
    name: str, breaks: str, *, history: str, needs: str, where: Where = "cluster"
) -> Callable[[Callable[[], Iterator[None]]], Mutant]:
    """A mutant, from a generator that patches, yields once, and has the story as its docstring."""

    def make(plant: Callable[[], Iterator[None]]) -> Mutant:
        return Mutant(name, breaks, history, needs, contextmanager(plant), where)

    return make
