"""Lanes: in each lane one task at a time, in the order in which they came. Pure.

A task that waits for a retry stays at the head of its lane. A lane exists only while it has tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from typing import Generic, Protocol, TypeVar


class Laned(Protocol):
    """The attributes of a task that its lane needs."""

    lane: Hashable
    dropped: bool


TaskT = TypeVar("TaskT", bound=Laned)


class Lanes(Generic[TaskT]):
    """The lanes of one worker, and the order in which their heads start."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, TaskT | deque[TaskT]] = {}
        """The tasks of each lane. Most lanes have a single task, and no queue."""
        self._ready: deque[TaskT] = deque()
        """The heads that may start. The head of any other lane was taken, and is not back yet."""

    @property
    def names(self) -> Collection[Hashable]:
        """The lanes that have tasks."""
        return self._lanes.keys()

    @property
    def has_ready(self) -> bool:
        """True if a head may start."""
        return bool(self._ready)

    def add(self, task: TaskT) -> None:
        """Add a task behind the others of its lane."""
        lane = self._lanes.setdefault(task.lane, task)
        if lane is task:
            self._ready.append(task)
        elif isinstance(lane, deque):
            lane.append(task)
        else:
            self._lanes[task.lane] = deque((lane, task))

    def take(self) -> TaskT | None:
        """Take the next head that may start, None if there is none. It blocks its lane until `put_back` or `leave`."""
        return self._ready.popleft() if self._ready else None

    def put_back(self, task: TaskT) -> None:
        """Let a taken head start again, before the heads of other lanes."""
        self._ready.appendleft(task)

    def leave(self, task: TaskT) -> None:
        """Remove a taken head, so that the next task of its lane may start."""
        lane = self._lanes[task.lane]
        if lane is task:
            del self._lanes[task.lane]
            return
        assert isinstance(lane, deque), "a task left the lane of another task"
        head = lane.popleft()
        assert head is task, "a task left the lane whose head is another task"
        while lane and lane[0].dropped:
            lane.popleft()
        if lane:
            self._ready.append(lane[0])
        else:
            del self._lanes[task.lane]

    def drop(self, tasks: Collection[TaskT]) -> None:
        """Remove tasks that do not run: heads, taken or not, and tasks behind them."""
        for task in tasks:
            task.dropped = True
        heads = [task for task in tasks if self._head(task.lane) is task]
        self._ready = deque(head for head in self._ready if not head.dropped)
        for head in heads:
            self.leave(head)

    def _head(self, name: Hashable) -> TaskT:
        lane = self._lanes[name]
        return lane[0] if isinstance(lane, deque) else lane

    def lengths(self) -> list[tuple[Hashable, int]]:
        """Return the lanes, and their numbers of tasks."""
        # A copy, as other threads may ask while the loop changes the lanes.
        lanes = list(self._lanes.items())
        return [(lane, len(tasks) if isinstance(tasks, deque) else 1) for lane, tasks in lanes]
