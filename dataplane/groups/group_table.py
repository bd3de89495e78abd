"""The groups of one shard, of either protocol, each with one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .classic.group import ClassicGroup
from .consumer.group import ConsumerGroup

AnyGroup = ClassicGroup | ConsumerGroup

_DEAD = "Dead"
"""The state's name in either protocol."""


class GroupTable:
    """Groups by id, and when each has something to do. Invariant: no group in it is dead."""

    def __init__(self, now_ms: Callable[[], int], due: Callable[[AnyGroup], None]) -> None:
        """`due` is called with a group whose next deadline has come."""
        self._now_ms, self._due = now_ms, due
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.groups: dict[str, AnyGroup] = {}

    def put(self, group: AnyGroup) -> None:
        """Add a group, or put it in the place of the one of its name."""
        self.groups[group.group_id] = group
        self._stop(group.group_id)

    def drop(self, group_id: str) -> None:
        """Forget a group."""
        del self.groups[group_id]
        self._stop(group_id)

    def close(self) -> None:
        """No timer fires from here on."""
        for group_id in list(self._timers):
            self._stop(group_id)

    def check(self) -> None:
        """AssertionError if a group contradicts itself, is dead, or waits for a time that nobody will tell it."""
        if not self._timers.keys() <= self.groups.keys():
            raise AssertionError(
                f"timers of {sorted(self._timers.keys() - self.groups.keys())}, which are not here"
            )
        for group_id, group in self.groups.items():
            group.check()
            if group.group_id != group_id or group.state.value == _DEAD:
                raise AssertionError(f"group {group.group_id}, {group.state.name}, is filed under {group_id}")
            if group.next_deadline_ms is not None and group_id not in self._timers:
                raise AssertionError(f"group {group_id} has a deadline, and no timer")

    def _stop(self, group_id: str) -> None:
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()

    def schedule(self, group: AnyGroup) -> None:
        """One timer per group, set no later than its next deadline. This looks at every member."""
        if self.groups.get(group.group_id) is not group:
            return
        deadline = group.next_deadline_ms
        if deadline is None:
            self._stop(group.group_id)
        else:
            self.no_later(group, deadline)

    def no_later(self, group: AnyGroup, deadline: int) -> None:
        """Nothing but one deadline may be sooner now (milliseconds): its timer fires by then."""
        group_id = group.group_id
        if self.groups.get(group_id) is not group:
            return
        loop = asyncio.get_running_loop()
        delay_s = max(0, deadline - self._now_ms()) / 1e3
        timer = self._timers.get(group_id)
        if timer is not None:
            if not timer.cancelled() and timer.when() <= loop.time() + delay_s:
                return
            timer.cancel()
        self._timers[group_id] = loop.call_later(delay_s, self._fire, group)

    def _fire(self, group: AnyGroup) -> None:
        self._timers.pop(group.group_id, None)
        if self.groups.get(group.group_id) is group:
            self._due(group)
