"""The metadata feed: the recent part of the record stream, and snapshots for brokers that are further behind.

Pure: no socket and no clock. `server` sends the output of this module.

A metadata offset counts records: the record at offset o took the image from o to o + 1. It is equal on every node, so a
broker may move between nodes unnoticed.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ..protocol.cluster.partition_change import PartitionChange

#: With its entry a record takes about three hundred bytes, so this is about thirty megabytes at most.
DEFAULT_CAPACITY_RECORDS = 100_000
DEFAULT_CAPACITY_BYTES = 32 * 1024 * 1024
SNAPSHOT_CHUNK_BYTES = 64 * 1024

CHANGE_BYTES: Final = 64
"""Assumed size of a partition change before it is encoded: the usual size with three or four replicas."""

Scope = frozenset[int] | None
"""Brokers that a record is for; None stands for all."""


@dataclass(slots=True)
class FeedEntry:
    """One metadata record in the feed's ring, and the brokers that receive it.

    The state of a partition is encoded when a broker reads it. A broker that dies changes tens of thousands at once,
    and brokers follow the quorum's leader alone.
    """

    scope: Scope
    record: bytes | PartitionChange
    history: int = 0
    """History mark after the command of this record; 0 if unknown."""
    continues: bool = False
    """True if no broker may have the preceding record without this one. This holds for new partitions: a client that
    saw only some of a topic's partitions would place records by their number."""

    @property
    def size(self) -> int:
        """Size of the encoded record in bytes; an estimate for a partition change that is not encoded yet."""
        return len(self.record) if isinstance(self.record, bytes) else CHANGE_BYTES


@dataclass(frozen=True, slots=True)
class FeedSlice:
    """A slice of the metadata feed for one broker: the records from `first_offset` on. A broker that has folded them
    has its image at `end_offset`.

    `end_offset - first_offset` exceeds `len(records)` by the number of records for other brokers.
    """

    first_offset: int
    end_offset: int
    records: list[bytes]
    #: true if another broker would have received other records
    scoped: bool
    #: history marks at the two offsets; 0 if unknown
    first_history: int = 0
    end_history: int = 0


class MetadataFeed:
    """A ring buffer of the latest metadata records, addressed by metadata offset, from which each broker's next records
    are read.

    Invariant: start_offset <= end_offset, and the ring holds exactly the records in between.
    """

    def __init__(
        self,
        start_offset: int = 0,
        *,
        capacity_records: int = DEFAULT_CAPACITY_RECORDS,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
    ) -> None:
        self._entries: deque[FeedEntry] = deque()
        self._bytes = 0
        self._capacity_records = capacity_records
        self._capacity_bytes = capacity_bytes
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._start_history = 0

    def append(self, entries: Iterable[FeedEntry]) -> None:
        """Add the records of one applied command, and drop the oldest beyond the capacity."""
        for entry in entries:
            self._entries.append(entry)
            self._bytes += entry.size
            self.end_offset += 1
        while self._entries and (
            len(self._entries) > self._capacity_records or self._bytes > self._capacity_bytes
        ):
            oldest = self._entries.popleft()
            self._bytes -= oldest.size
            self._start_history = oldest.history
            self.start_offset += 1

    def restart_at(self, offset: int, history: int = 0) -> None:
        """Empty the ring, because this node restored a Raft snapshot, which moved its image to `offset`. `history` is
        the history mark at that offset; 0 if unknown."""
        self._entries.clear()
        self._bytes = 0
        self.start_offset = self.end_offset = offset
        self._start_history = history

    def history_at(self, offset: int) -> int:
        """Return the history mark at this metadata offset, which identifies the commands up to there; 0 if it is
        unknown or outside the ring."""
        if offset == self.start_offset:
            return self._start_history
        if self.start_offset < offset <= self.end_offset:
            return self._entries[offset - self.end_offset - 1].history
        return 0

    def lacks(self, offset: int, history: int) -> bool:
        """Return whether a broker's image at `offset` with this history mark includes metadata records that this node
        does not have."""
        if offset > self.end_offset:
            return True
        own = self.history_at(offset)
        return history > 0 and own > 0 and own != history

    def covers(self, offset: int) -> bool:
        """Return whether a broker with an image at `offset` can continue from here without a snapshot.

        An offset beyond the end is covered too: the broker is ahead of this node, and waits.
        """
        return offset >= self.start_offset

    def read(self, offset: int, broker_id: int, *, max_records: int, max_bytes: int) -> FeedSlice:
        """Return the records after `offset` for this broker, at least one if any exists. Only records that no broker
        may have without their successors (`FeedEntry.continues`) may exceed the limits.

        Raises ValueError if the ring no longer covers the offset.
        """
        if not self.covers(offset):
            raise ValueError(
                f"metadata offset {offset} is older than the feed, which starts at {self.start_offset}"
            )
        records: list[bytes] = []
        size = 0
        position = offset
        scoped = False
        for entry in self._entries_from(offset):
            if len(records) >= max_records and not entry.continues:
                break
            record = entry.record if isinstance(entry.record, bytes) else self._encode(entry, entry.record)
            if records and size + len(record) > max_bytes and not entry.continues:
                break
            scoped = scoped or entry.scope is not None
            if entry.scope is None or broker_id in entry.scope:
                records.append(record)
                size += len(record)
            position += 1
        return FeedSlice(
            offset, position, records, scoped, self.history_at(offset), self.history_at(position)
        )

    def _encode(self, entry: FeedEntry, change: PartitionChange) -> bytes:
        """Encode a change and keep the bytes for later readers."""
        encoded = entry.record = change.encoded()
        self._bytes += len(encoded) - CHANGE_BYTES
        return encoded

    def _entries_from(self, offset: int) -> Iterator[FeedEntry]:
        """Iterate from the nearer end: subscribers are nearly always at the last few records."""
        count = self.end_offset - offset
        if count <= 0:
            return iter(())
        if count < 1024:
            return (self._entries[index] for index in range(-count, 0))
        return islice(self._entries, offset - self.start_offset, None)


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    """A snapshot of the cluster image at `end_offset` as metadata records, in chunks ready to be sent to any number of
    brokers."""

    end_offset: int
    chunks: Sequence[Sequence[bytes]]
    history: int = 0
    """History mark at the end offset; 0 if unknown."""


class SnapshotBuilder:
    """A builder that packs encoded records into chunks in slices of work, so that the caller can yield in between."""

    def __init__(
        self,
        end_offset: int,
        records: Iterator[bytes],
        *,
        chunk_bytes: int = SNAPSHOT_CHUNK_BYTES,
        history: int = 0,
    ) -> None:
        self.end_offset = end_offset
        self._history = history
        self._records = records
        self._chunk_bytes = chunk_bytes
        self._chunks: list[list[bytes]] = []
        self._chunk: list[bytes] = []
        self._chunk_size = 0
        self.finished: FeedSnapshot | None = None

    def work(self, records: int) -> FeedSnapshot | None:
        """Process up to this many records, and return the snapshot once all are processed."""
        for _ in range(records):
            record = next(self._records, None)
            if record is None:
                self._chunks.append(self._chunk)
                self.finished = FeedSnapshot(self.end_offset, self._chunks, self._history)
                break
            if self._chunk and self._chunk_size + len(record) > self._chunk_bytes:
                self._chunks.append(self._chunk)
                self._chunk, self._chunk_size = [], 0
            self._chunk.append(record)
            self._chunk_size += len(record)
        return self.finished
