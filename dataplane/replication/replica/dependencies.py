"""What stands around a replica: who watches it, what its topic asks of it, and what it needs of its broker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.protocol.config_key import LONG_MAX

from ..roles.leader import KnownBroker
from ..throttle import NOT_THROTTLED, ThrottledPartitions

if TYPE_CHECKING:
    from ...log.config import LogConfig, StoredCompression

_Replica = TypeVar("_Replica", contravariant=True)


class Watcher(Protocol):
    """A follower's fetch session, told about one partition it asked for."""

    def records_arrived(self) -> None: ...
    def high_watermark_moved(self) -> None: ...
    def log_start_moved(self) -> None: ...
    def role_changed(self) -> None: ...


class Reader(Protocol):
    """Who reads for a consumer. `wake` is called once per registration and must not raise."""

    def wake(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """What the topic's configuration says about replication and flushing."""

    min_in_sync: int = 1
    lag_time_max_ms: int = 30_000
    durable_before_acknowledged: bool = False
    """flush.messages=1: records count as acknowledged only once this replica has flushed them."""
    leader_throttled: ThrottledPartitions = NOT_THROTTLED
    follower_throttled: ThrottledPartitions = NOT_THROTTLED
    flush_messages: int = LONG_MAX
    """Records that may be unflushed; acknowledgements do not wait for it unless it is 1."""
    flush_ms: int = LONG_MAX
    """How long a record may be unflushed."""
    stored: StoredCompression | None = None
    """What producers' batches are compressed by before they are appended; None: as they come."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's configuration, resolved against the broker's defaults."""

    log: LogConfig
    replication: ReplicationSettings


class Surroundings(Protocol[_Replica]):
    """What a replica needs of the broker around it."""

    @property
    def broker_id(self) -> int: ...
    @property
    def brokers(self) -> Mapping[int, KnownBroker]: ...
    def monotonic_ms(self) -> int: ...
    def wall_ms(self) -> int: ...
    def flush(self, partition: _Replica, /) -> None:
        """Flush the log off the loop, then call `partition.flushed(offset)`."""

    def flush_later(self, partition: _Replica, delay_ms: int, /) -> None:
        """Call `partition.flush_time_over()` then."""


def monotonic_ms() -> int:
    """Milliseconds on a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
