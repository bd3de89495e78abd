"""How often somebody may try to sign in. Pure: the time is given.

An attempt counts from its beginning, so that many at a time are no way around the bound. One that succeeds, or that
nobody could judge, is taken back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil
from typing import Final

from .bounds import ATTEMPTS_OF_ADDRESS_MAX, ATTEMPTS_OF_USER_MAX, ATTEMPTS_S, NAMES_REMEMBERED_MAX

_MAXIMA: Final = {"user": ATTEMPTS_OF_USER_MAX, "address": ATTEMPTS_OF_ADDRESS_MAX}
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One that was let through."""

    at_s: float
    names: tuple[Name, ...]


class Attempts:
    """The failed attempts of the last ATTEMPTS_S seconds, by user and by address."""

    def __init__(self) -> None:
        self._failed: dict[Name, deque[float]] = {}

    def begin(self, user: str, address: str, now_s: float) -> Attempt | int:
        """Count an attempt, or say after how many seconds there may be one."""
        self._forget_old(now_s)
        names = (("user", user), ("address", address))
        waits = [self._wait_s(name, now_s) for name in names]
        if any(waits):
            return ceil(max(waits))
        for name in names:
            self._failed.setdefault(name, deque()).append(now_s)
        return Attempt(now_s, names)

    def take_back(self, attempt: Attempt) -> None:
        """It was no failure."""
        for name in attempt.names:
            if (times := self._failed.get(name)) is not None and attempt.at_s in times:
                times.remove(attempt.at_s)

    def _wait_s(self, name: Name, now_s: float) -> float:
        times = self._failed.get(name)
        if times is None:
            return ATTEMPTS_S if len(self._failed) >= NAMES_REMEMBERED_MAX else 0.0
        return times[0] + ATTEMPTS_S - now_s if len(times) >= _MAXIMA[name[0]] else 0.0

    def _forget_old(self, now_s: float) -> None:
        for name, times in list(self._failed.items()):
            while times and times[0] + ATTEMPTS_S <= now_s:
                times.popleft()
            if not times:
                del self._failed[name]
