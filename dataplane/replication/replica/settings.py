"""Settings of a topic for each of its replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....protocol.settings.config_fields import setting
from ..throttle import NOT_THROTTLED, ThrottledPartitions

if TYPE_CHECKING:
    from ...log.config import LogConfig, StoredCompression


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """The topic settings that a replica uses for its ISR, throttling, flushes and compression."""

    min_in_sync: int = setting("min.insync.replicas")
    lag_time_max_ms: int = setting("replica.lag.time.max.ms")
    durable_before_acknowledged: bool = False
    """True for flush.messages=1: a record counts as acknowledged only once this replica has flushed it."""
    leader_throttled: ThrottledPartitions = NOT_THROTTLED
    follower_throttled: ThrottledPartitions = NOT_THROTTLED
    flush_messages: int = setting("flush.messages")
    """Number of records that may be unflushed. Acknowledgements do not wait for the flush unless it is 1."""
    flush_ms: int = setting("flush.ms")
    """Milliseconds for which a record may be unflushed."""
    stored: StoredCompression | None = None
    """Compression of producers' batches before they are appended; None stores them unchanged."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The effective settings of a topic, for its logs and for its replication: the broker's defaults fill the gaps."""

    log: LogConfig
    replication: ReplicationSettings
