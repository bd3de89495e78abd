"""Interfaces of a replica: its watchers and readers, and the services of its broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from ...runtime.change_set import ChangeSet
from ..roles.leader import KnownBroker

_Replica = TypeVar("_Replica")


class Watcher(Protocol):
    """A follower's fetch session that the replica notifies of new records, a new high watermark or log start, and a
    changed role.
    """

    def records_arrived(self) -> None: ...
    def high_watermark_moved(self) -> None: ...
    def log_start_moved(self) -> None: ...
    def role_changed(self) -> None: ...


class Reader(Protocol):
    """A waiting consumer's fetch. `wake` is called once per registration, when a change of the replica may let it be
    answered, and must not raise.
    """

    def wake(self) -> None: ...


class HostBroker(Protocol[_Replica]):
    """The broker that holds a replica: its id, its clocks, the known brokers, and flushes of logs."""

    @property
    def broker_id(self) -> int: ...
    @property
    def brokers(self) -> Mapping[int, KnownBroker]: ...
    @property
    def moved(self) -> ChangeSet[_Replica]:
        """Set of the broker's replicas whose log, high watermark or role has changed."""

    def monotonic_ms(self) -> int: ...
    def wall_ms(self) -> int: ...
    def flush(self, partition: _Replica, /) -> None:
        """Flush the replica's log in a thread, then call `partition.flushed` with the offset up to which it is
        flushed.
        """

    def flush_later(self, partition: _Replica, delay_ms: int, /) -> None:
        """Call `partition.flush_time_over()` after `delay_ms`."""
