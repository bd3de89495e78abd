"""Partitions that are assigned to a consumer, and how it fetches them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..records import TopicPartition
from .fetched import FetchedRecords

EARLIEST, LATEST = -2, -1
"""Timestamps that ListOffsets takes for the log start and for the end."""
CHUNKS_AHEAD = 2


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """See Consumer for the meaning of each."""

    read_committed: bool
    reset_timestamp: int | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    check_crcs: bool
    rack: str = ""


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """An assigned partition. `position`: offset of the next record for the caller, None until it is known."""

    partition: TopicPartition
    topic_id: bytes | None = None
    """The id of the topic to read; None: of any topic with this name. A broker without topic ids goes by the name."""
    position: int | None = None
    reset_to: int | None = None
    """The timestamp to look the position up with, while it is not known."""
    look_up_at_s: float = 0.0
    """When the leader may be asked for that again."""
    fetch_offset: int = 0
    paused: bool = False
    held: bool = False
    """It is changing hands: nothing is fetched or given of it meanwhile."""
    high_watermark: int = -1
    buffer: list[FetchedRecords] = field(default_factory=list)
    ended: bool = False
    """Nothing can be fetched behind the buffer: that is out of range, or how far the buffer reaches cannot be told. It
    is asked for once the caller has taken what is there."""
    failed_leader: tuple[int, int] | None = None
    refused: bool = False
    """Whether that leader, when it was asked last, refused the partition for good."""
    retry_at_s: float = 0.0
    replica: int | None = None
    """The follower to read from instead of the leader, until `replica_until_s`."""
    replica_until_s: float = 0.0
    leader_until_s: float = 0.0
    """Until then the leader is not asked for a nearer replica."""
    give_from: int = 0
    """What lies before was given to the caller, and is read again for large messages that lie across it."""
    moved: bool = False
    """Whether it was sent elsewhere since records were taken."""

    @property
    def has_room(self) -> bool:
        """Whether more is fetched before something is taken."""
        return len(self.buffer) < CHUNKS_AHEAD

    def seek(self, offset: int, give_from: int = 0) -> None:
        """Go on at `offset`; what was fetched is dropped."""
        self.position, self.fetch_offset, self.reset_to = offset, offset, None
        self._leave(give_from)

    def look_up(self, timestamp: int, give_from: int = 0) -> None:
        """Go on where `timestamp` (ms, or EARLIEST or LATEST) points."""
        self.position, self.reset_to, self.look_up_at_s = None, timestamp, 0.0
        self._leave(give_from)

    def _leave(self, give_from: int) -> None:
        self.ended = False
        self.give_from, self.moved = give_from, True
        self.buffer.clear()
        if self.refused:  # Perhaps for the place where it was: that no record is there.
            self.refused, self.failed_leader = False, None
