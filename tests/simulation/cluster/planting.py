"""The definition of a mutant: a historical fault of replicated logs, and the patch that plants it during a test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

Where = Literal["raft", "cluster", "mirror", "share"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault. While `planted()` is entered, every broker and quorum node of this process has it."""

    name: str
    breaks: str
    """Missing safeguard, in one line."""
    history: str
    """Origin of the fault."""
    needs: str
    """Faults, settings and load with which the fault shows."""
    planted: Callable[[], AbstractContextManager[None]]
    where: Where = "cluster"
    """The simulation in which the mutant must be found."""

    @property
    def story(self) -> str:
        """Shortest sequence of events in which a user loses a record or sees a wrong one."""
        return inspect.getdoc(self.planted) or ""


def mutant(
    name: str, breaks: str, *, history: str, needs: str, where: Where = "cluster"
) -> Callable[[Callable[[], Iterator[None]]], Mutant]:
    """Make a mutant of a generator that patches, yields once, and has the story as its docstring."""

    def make(plant: Callable[[], Iterator[None]]) -> Mutant:
        return Mutant(name, breaks, history, needs, contextmanager(plant), where)

    return make
