"""Values of one fetch: the follower's request and the leader's answer, independent of their encoding (Fetch with topic
ids, KIP-227)."""

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
"""Session epoch of a full request, which opens a session and closes the session that it names. The following requests
count from 1."""
LAST_EPOCH = 0x7FFFFFFF


def next_epoch(epoch: int) -> int:
    """Return the next epoch of a fetch session after `epoch` (KIP-227). The largest int32 is followed by 1, since 0
    stands for a new session.
    """
    return 1 if epoch == LAST_EPOCH else epoch + 1


class FetchPosition(NamedTuple):
    """Position of a follower in one partition. It acknowledges all records below `fetch_offset`."""

    key: PartitionKey
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FollowerFetch(NamedTuple):
    """One fetch of a follower. In an established session it contains only the changes since the previous fetch."""

    broker_id: int
    broker_epoch: int
    session_id: int
    session_epoch: int
    positions: Sequence[FetchPosition]
    forgotten: Sequence[PartitionKey]
    max_bytes: int


@dataclass(slots=True)
class PartitionAnswer:
    """The answer for one partition.

    `records` is a slice of the log on the leader, and received bytes on the follower. Offsets are -1 if the leader does
    not know them.
    """

    key: PartitionKey
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    records: LogSlice | memoryview | None = None
    goes_on_at: int = -1
    """Next offset of the leader's log if it has no records between the follower's end and there, since a copy may leave
    offsets out; otherwise -1."""

    @property
    def is_usual(self) -> bool:
        """True if this answer has only the fields that the fast layout (`fetch_layout`) can encode: no diverging epoch,
        and no gap in the leader's log.
        """
        return self.diverging is None and self.goes_on_at < 0


@dataclass(slots=True)
class SessionAnswer:
    """The leader's answer to one fetch. Its `error` concerns the fetch session: the follower then opens a new
    session.
    """

    session_id: int
    partitions: Sequence[PartitionAnswer] = ()
    error: ErrorCode = ErrorCode.NONE
