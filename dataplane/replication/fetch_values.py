"""What a follower asks and a leader answers in one fetch, apart from its encoding (Fetch with topic ids,
KIP-227)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...protocol.errors import ErrorCode
from .roles.follower import EpochEnd

if TYPE_CHECKING:
    from ..log import LogSlice

PartitionKey: TypeAlias = tuple[bytes, int]
"""Topic id (16 bytes) and partition index."""

NO_SESSION = 0
FIRST_EPOCH = 0
"""Session epoch of a full request, which opens a session; the ones after it count from 1."""
LAST_EPOCH = 0x7FFFFFFF


def next_epoch(epoch: int) -> int:
    """The session epoch after `epoch`; it wraps to 1, for 0 means a new session."""
    return 1 if epoch == LAST_EPOCH else epoch + 1


class FetchPosition(NamedTuple):
    """Where a follower is in one partition. Everything below `fetch_offset` is acknowledged."""

    key: PartitionKey
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FollowerFetch(NamedTuple):
    """One fetch of a follower: in an established session only what changed since the one before."""

    broker_id: int
    broker_epoch: int
    session_id: int
    session_epoch: int
    positions: Sequence[FetchPosition]
    forgotten: Sequence[PartitionKey]
    max_bytes: int


@dataclass(slots=True)
class PartitionAnswer:
    """One partition in the leader's answer. `records` is a slice of the log on the leader, received bytes on
    the follower; offsets are -1 where the leader cannot say."""

    key: PartitionKey
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    records: LogSlice | memoryview | None = None
    goes_on_at: int = -1
    """Where the log ends, if it has nothing from the follower's place up to there: a copy leaves offsets out."""

    @property
    def is_usual(self) -> bool:
        """Whether the usual form of an answer has room for all of it."""
        return self.diverging is None and self.goes_on_at < 0


@dataclass(slots=True)
class SessionAnswer:
    """The leader's answer. An error here is about the session: the follower opens a new one."""

    session_id: int
    partitions: Sequence[PartitionAnswer] = ()
    error: ErrorCode = ErrorCode.NONE
