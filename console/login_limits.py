"""How often somebody may try to sign in. Pure: the time is given.

Failures are counted by user and network together, so a stranger elsewhere keeps nobody out. From some failures on each
next attempt waits, twice as long as the one before, up to a bound. An attempt counts from its beginning, so that many
at a time are no way around the pause. An attempt that succeeds, or that nobody could judge, is taken back.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from math import ceil
from typing import Final

from .addresses import network_of
from .bounds import ATTEMPTS_S, ATTEMPTS_WITHOUT_PAUSE, NAMES_REMEMBERED_MAX, PAUSE_MAX_S

_COUNTED_MAX: Final = ATTEMPTS_WITHOUT_PAUSE + 16
"""Failures beyond make no pause longer."""
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CountedLogin:
    """An attempt that was let through, of a user from a network."""

    at_s: float
    name: Name


class LoginLimits:
    """Failed attempts. They are forgotten ATTEMPTS_S after the last, and the oldest beyond NAMES_REMEMBERED_MAX."""

    def __init__(self) -> None:
        self._failed: OrderedDict[Name, deque[float]] = OrderedDict()

    def begin(self, user: str, address: str, now_s: float) -> CountedLogin | int:
        """Count an attempt, or return the number of seconds after which there may be one."""
        self._forget_old(now_s)
        name = (user, network_of(address))
        times = self._failed.get(name, deque(maxlen=_COUNTED_MAX))
        if times and (wait_s := times[-1] + pause_s(len(times)) - now_s) > 0:
            return ceil(wait_s)
        times.append(now_s)
        self._failed[name] = times
        self._failed.move_to_end(name)
        if len(self._failed) > NAMES_REMEMBERED_MAX:
            self._failed.popitem(last=False)
        return CountedLogin(now_s, name)

    def take_back(self, attempt: CountedLogin) -> None:
        """Count an attempt no more: it was no failure."""
        if (times := self._failed.get(attempt.name)) is not None and attempt.at_s in times:
            times.remove(attempt.at_s)
            if not times:
                del self._failed[attempt.name]

    def _forget_old(self, now_s: float) -> None:
        while self._failed:
            name, times = next(iter(self._failed.items()))
            if times[-1] + ATTEMPTS_S > now_s:
                return
            del self._failed[name]


def pause_s(failures: int) -> float:
    """Return the pause after so many failures: none, then 1, 2, 4 seconds and so on, up to PAUSE_MAX_S."""
    over = failures - ATTEMPTS_WITHOUT_PAUSE
    return 0.0 if over < 0 else min(2.0**over, PAUSE_MAX_S)
