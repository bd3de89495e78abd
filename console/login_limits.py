"""Limits on login attempts. Pure: the time is an argument.

Failures are counted by user and network together, so a client elsewhere cannot lock a user out. After some failures
each next attempt must wait, twice as long as the one before, up to a limit. An attempt counts from its beginning, so
that concurrent attempts cannot avoid the pause. An attempt that succeeds, or that the cluster could not judge, is taken
back.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from math import ceil
from typing import Final

from .addresses import network_of
from .bounds import ATTEMPTS_S, ATTEMPTS_WITHOUT_PAUSE, NAMES_REMEMBERED_MAX, PAUSE_MAX_S

_COUNTED_MAX: Final = ATTEMPTS_WITHOUT_PAUSE + 16
"""The most failures that are counted; more would make no pause longer."""
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CountedLogin:
    """A login attempt that was allowed and counted; `name` is the pair of user and network."""

    at_s: float
    name: Name


class LoginLimits:
    """The times of failed login attempts, by user and network.

    They are forgotten ATTEMPTS_S seconds after the last failure. Beyond NAMES_REMEMBERED_MAX pairs the oldest are
    forgotten.
    """

    def __init__(self) -> None:
        self._failed: OrderedDict[Name, deque[float]] = OrderedDict()

    def begin(self, user: str, address: str, now_s: float) -> CountedLogin | int:
        """Count a login attempt as failed until `take_back`, or refuse it and return the seconds until the next attempt
        is allowed."""
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
        """Remove a login attempt from the count, because it did not fail."""
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
    """Return the seconds that a user must wait after this number of failed logins.

    There is no pause at first, then 1, 2, 4 seconds and so on, up to PAUSE_MAX_S.
    """
    over = failures - ATTEMPTS_WITHOUT_PAUSE
    return 0.0 if over < 0 else min(2.0**over, PAUSE_MAX_S)
