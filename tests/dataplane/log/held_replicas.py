"""Replicas in the form that the upkeep of logs sees, without a broker."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from ottla.dataplane.runtime.change_set import ChangeSet
from ottla.dataplane.storage.replica import StoredReplica

_Replica = TypeVar("_Replica", bound=StoredReplica)


class Held(list[_Replica]):
    """The replicas that are present. Their logs note themselves like those of a broker."""

    def __init__(self, *replicas: _Replica) -> None:
        super().__init__()
        self.moved: ChangeSet[_Replica] = ChangeSet()
        for replica in replicas:
            self.add(replica)

    def add(self, replica: _Replica) -> None:
        """Add a replica."""
        self.append(replica)
        replica.log.on_move = partial(self.moved.note, replica)
        self.moved.note(replica)

    def drop(self, replica: _Replica) -> None:
        """Remove a replica."""
        self.remove(replica)
        self.moved.note(replica)

    def holds(self, replica: _Replica, /) -> bool:
        """Return whether the replica is present."""
        return replica in self
