"""Who hears of the leaderships of this broker."""

from __future__ import annotations

from typing import Protocol

from ..replica.partition import Partition


class RoleListener(Protocol):
    """Told about leaderships of this broker, in the loop turn in which they change."""

    def elected(self, partition: Partition) -> None: ...
    def resigned(self, topic: str, index: int) -> None: ...


class RoleListeners:
    """All that hear of them, in the order in which they came."""

    def __init__(self) -> None:
        self._all: list[RoleListener] = []

    def add(self, listener: RoleListener) -> None:
        """It hears of what changes from now on."""
        self._all.append(listener)

    def elected(self, partition: Partition) -> None:
        """This broker leads it in a new epoch."""
        for listener in self._all:
            listener.elected(partition)

    def resigned(self, partition: Partition) -> None:
        """This broker does not lead it any more."""
        for listener in self._all:
            listener.resigned(partition.topic, partition.index)
