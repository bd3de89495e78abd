"""The groups of one shard, of each protocol, each with one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .classic.group import ClassicGroup
from .consumer.group import ConsumerGroup
from .share.group import ShareGroup

AnyGroup = ClassicGroup | ConsumerGroup | ShareGroup

_DEAD = "Dead"
"""The state's name in each protocol."""


class GroupTable:
    """Groups by id, each with a timer for its next deadline. Invariant: no group in the table is dead."""

    def __init__(self, now_ms: Callable[[], int], due: Callable[[AnyGroup], None]) -> None:
        """Create an empty table. `due` is called with a group whose next deadline has come."""
        self._now_ms, self._due = now_ms, due
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.groups: dict[str, AnyGroup] = {}

    def put(self, group: AnyGroup) -> None:
        """Add a group, or replace the group of this id."""
        self.groups[group.group_id] = group
        self._stop(group.group_id)

    def drop(self, group_id: str) -> None:
        """Remove a group."""
        del self.groups[group_id]
        self._stop(group_id)

    def close(self) -> None:
        """Stop all timers."""
        for group_id in list(self._timers):
            self._stop(group_id)

    def check(self) -> None:
        """Verify the table. Raises AssertionError if a group contradicts itself, is dead, or has a deadline and no
        timer."""
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
        """Set the group's timer no later than its next deadline. This call examines every member."""
        if self.groups.get(group.group_id) is not group:
            return
        deadline = group.next_deadline_ms
        if deadline is None:
            self._stop(group.group_id)
        else:
            self.no_later(group, deadline)

    def no_later(self, group: AnyGroup, deadline: int) -> None:
        """Make the group's timer fire by this deadline (milliseconds): the only deadline that may have become
        earlier."""
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
