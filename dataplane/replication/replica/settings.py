"""What a topic's configuration asks of each of its replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....protocol.settings.config_key import LONG_MAX
from ..throttle import NOT_THROTTLED, ThrottledPartitions

if TYPE_CHECKING:
    from ...log.config import LogConfig, StoredCompression


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
