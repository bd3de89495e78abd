"""Partitions that are assigned to a consumer, and the state of their fetches. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ..records import ConsumerRecord, TopicPartition
from .fetched import FetchedRecords

CHUNKS_AHEAD = 2


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Options of a fetcher; `Consumer` documents the meaning of each."""

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


class KeptRecords(NamedTuple):
    """Records that were taken from the fetched ones, and wait for a value that is an object of a store."""

    read: list[ConsumerRecord]
    """The records as they are in the log."""
    given: list[ConsumerRecord]
    """The records to hand out, at least one, with large messages assembled."""
    end: int
    """The offset after the records."""


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """A partition assigned to a consumer, with its position and its fetched records. `position`: the offset of the next
    record for the caller; None while unknown."""

    partition: TopicPartition
    topic_id: bytes | None = None
    """The id of the topic to read; None: any topic with this name. Brokers without topic ids use the name."""
    position: int | None = None
    reset_to: int | None = None
    """The timestamp with which to look up the position, while the position is unknown."""
    look_up_at_s: float = 0.0
    """The loop time of the next lookup."""
    fetch_offset: int = 0
    paused: bool = False
    held: bool = False
    """True while the partition changes hands: it is neither fetched nor handed out."""
    high_watermark: int = -1
    buffer: list[FetchedRecords] = field(default_factory=list)
    kept: KeptRecords | None = None
    """Records before those of the buffer, the first of which is at `position`."""
    ended: bool = False
    """True if nothing can be fetched after the buffer, since that place is out of range, or the end of the buffer is
    unknown.

    The next fetch waits until the caller has taken the buffered records.
    """
    failed_leader: tuple[int, int] | None = None
    refused: bool = False
    """True if the failed leader refused the partition for good at the last request."""
    retry_at_s: float = 0.0
    replica: int | None = None
    """The follower to read from instead of the leader, until `replica_until_s`."""
    replica_until_s: float = 0.0
    leader_until_s: float = 0.0
    """The loop time until which the leader is not asked for a nearer replica."""
    give_from: int = 0
    """The offset before which records were already handed out.

    Earlier records are read again only for large messages that lie across this offset.
    """
    moved: bool = False
    """True if the position was changed since records were last taken."""

    @property
    def has_records(self) -> bool:
        """True if fetched records are here, so that the caller may take some."""
        return bool(self.buffer) or self.kept is not None

    @property
    def read_to(self) -> int | None:
        """The offset after the last record taken from the buffer; None while the position is unknown."""
        return self.position if self.kept is None else self.kept.end

    @property
    def has_room(self) -> bool:
        """True while fewer than CHUNKS_AHEAD fetched chunks are buffered, so that more is fetched in advance."""
        return len(self.buffer) < CHUNKS_AHEAD

    def seek(self, offset: int, give_from: int = 0) -> None:
        """Continue reading at `offset`, and drop the buffered records. Records before `give_from` are read, but not
        handed out."""
        self.position, self.fetch_offset, self.reset_to = offset, offset, None
        self._leave(give_from)

    def look_up(self, timestamp: int, give_from: int = 0) -> None:
        """Continue reading at the offset that a lookup will find for `timestamp` (ms, or EARLIEST or LATEST), and drop
        the buffered records. Records before `give_from` are read, but not handed out."""
        self.position, self.reset_to, self.look_up_at_s = None, timestamp, 0.0
        self._leave(give_from)

    def _leave(self, give_from: int) -> None:
        self.ended = False
        self.give_from, self.moved = give_from, True
        self.buffer.clear()
        self.kept = None
        if self.refused:  # The refusal may have been about the old position only, where no record exists.
            self.refused, self.failed_leader = False, None
