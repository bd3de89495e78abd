"""Replicas in the form that the upkeep of logs sees, without a broker, and the holds of tables on their logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TypeVar

from ottla.dataplane.runtime.change_set import ChangeSet
from ottla.dataplane.storage.replica import StoredReplica
from ottla.dataplane.storage.table_holds import TableHolds

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


def holds_of(
    committed: Mapping[str, Mapping[int, int] | None] | None = None,
    asked: list[tuple[str, str]] | None = None,
    followers: Collection[object] = (),
) -> TableHolds[_Replica]:
    """Return holds of tables, whose groups have these committed offsets by topic; None for a topic whose coordinator
    does not answer. Questions are added to `asked`, each a group and a topic."""

    async def read(group: str, topic: str) -> Mapping[int, int] | None:
        if asked is not None:
            asked.append((group, topic))
        return (committed or {}).get(topic)

    return TableHolds(read, lambda replica: replica not in followers)
