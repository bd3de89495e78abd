"""Moments of a program at which a child process is killed, and another process finishes its work.

The subclass of `Moments` decides where a moment passes. A program plays SPREAD moments, evenly spread over a run, or
`all`: from the first, until a run ends whole.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable
from itertools import count
from pathlib import Path
from typing import Any

NEVER = 0


class Moments:
    """The number of moments that have passed, and the moment at which the process is killed."""

    def __init__(self, killed_at: int) -> None:
        self.passed = 0
        self._killed_at = killed_at

    def pass_one(self) -> None:
        """Count a moment, and die if it is the chosen one."""
        self.passed += 1
        if self.passed == self._killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, owner: object, name: str) -> None:
        """Pass a moment at each suspension and each end of the coroutines that a method of `owner` returns."""
        method: Callable[..., Coroutine[Any, Any, Any]] = getattr(owner, name)
        setattr(owner, name, lambda *arguments: Driven(method(*arguments), self))


class Driven:
    """A coroutine that is driven step by step, with a moment after each step."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], moments: Moments) -> None:
        self._coroutine = coroutine
        self._moments = moments

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            try:
                waited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                self._moments.pass_one()
                return end.value
            self._moments.pass_one()
            error = None
            try:
                yield waited
            except BaseException as thrown:
                error = thrown


def forked(run: Callable[[], None]) -> int:
    """Run a function in a child process, and return its wait status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        run()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def play(kill: Callable[[int], bool], passed: Path, chosen: str) -> None:
    """Call `kill` with each of the chosen moments, until it returns that a run has ended whole.

    A whole run writes its number of moments to the file `passed`.
    """
    for moment in _moments(kill, passed, chosen):
        if kill(moment) and chosen == "all":
            return


def _moments(kill: Callable[[int], bool], passed: Path, chosen: str) -> Iterable[int]:
    if chosen == "all":
        return count(1)
    assert kill(NEVER)
    last, steps = int(passed.read_text()), int(chosen) - 1
    return sorted({1 + (last - 1) * step // steps for step in range(steps + 1)})
