"""Replicas as the upkeep of logs sees them, without a broker."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from ottla.dataplane.runtime.change_set import ChangeSet
from ottla.dataplane.storage.replica import StoredReplica

_Replica = TypeVar("_Replica", bound=StoredReplica)


class Held(list[_Replica]):
    """Those that are here. Their logs note themselves as those of a broker do."""

    def __init__(self, *replicas: _Replica) -> None:
        super().__init__()
        self.moved: ChangeSet[_Replica] = ChangeSet()
        for replica in replicas:
            self.add(replica)

    def add(self, replica: _Replica) -> None:
        """It has come."""
        self.append(replica)
        replica.log.on_move = partial(self.moved.note, replica)
        self.moved.note(replica)

    def drop(self, replica: _Replica) -> None:
        """It is gone."""
        self.remove(replica)
        self.moved.note(replica)

    def holds(self, replica: _Replica, /) -> bool:
        """Whether it is here."""
        return replica in self
