"""Interfaces of a replica: its watchers and readers, and the services of its broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from ...runtime.change_set import ChangeSet
from ..roles.leader import KnownBroker

_Replica = TypeVar("_Replica")


class Watcher(Protocol):
    """A follower's fetch session, which is notified about one partition."""

    def records_arrived(self) -> None: ...
    def high_watermark_moved(self) -> None: ...
    def log_start_moved(self) -> None: ...
    def role_changed(self) -> None: ...


class Reader(Protocol):
    """A reader on behalf of a consumer. `wake` is called once per registration and must not raise."""

    def wake(self) -> None: ...


class HostBroker(Protocol[_Replica]):
    """The broker of a replica, as far as the replica uses it."""

    @property
    def broker_id(self) -> int: ...
    @property
    def brokers(self) -> Mapping[int, KnownBroker]: ...
    @property
    def moved(self) -> ChangeSet[_Replica]:
        """Replicas whose log, high watermark or role has changed."""

    def monotonic_ms(self) -> int: ...
    def wall_ms(self) -> int: ...
    def flush(self, partition: _Replica, /) -> None:
        """Flush the log in a thread, then call `partition.flushed(offset)`."""

    def flush_later(self, partition: _Replica, delay_ms: int, /) -> None:
        """Call `partition.flush_time_over()` after the delay."""
