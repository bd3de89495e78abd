"""Notification of code that follows the leaderships of this broker."""

from __future__ import annotations

from typing import Protocol

from ..replica.partition import Partition


class RoleListener(Protocol):
    """A listener that is notified of elections and resignations in the loop iteration in which they happen."""

    def elected(self, partition: Partition) -> None: ...
    def resigned(self, topic: str, index: int) -> None: ...


class RoleListeners:
    """The listeners to elections and resignations of this broker, in the order in which they were added."""

    def __init__(self) -> None:
        self._all: list[RoleListener] = []

    def add(self, listener: RoleListener) -> None:
        """Add a listener to elections and resignations, which is notified of later changes."""
        self._all.append(listener)

    def elected(self, partition: Partition) -> None:
        """Notify all listeners that this broker leads the partition in a new epoch."""
        for listener in self._all:
            listener.elected(partition)

    def resigned(self, partition: Partition) -> None:
        """Notify all listeners that this broker no longer leads the partition."""
        for listener in self._all:
            listener.resigned(partition.topic, partition.index)
