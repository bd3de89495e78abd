"""The metadata feed: what a quorum node keeps of the record stream, and snapshots for those who are further
behind.

Pure: no socket and no clock. `server` pushes what this module hands out.

A metadata offset counts records: the record at offset o is the one that took the image from o to o + 1, and
it is the same on every node, so a broker may move from one node to another without noticing.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ..protocol.cluster.partition_change import PartitionChange

#: With its entry a record takes some three hundred bytes, so this is some thirty megabytes at most.
DEFAULT_CAPACITY_RECORDS = 100_000
DEFAULT_CAPACITY_BYTES = 32 * 1024 * 1024
SNAPSHOT_CHUNK_BYTES = 64 * 1024

CHANGE_BYTES: Final = 64
"""What a partition counts that has not been encoded, as it takes so much with three replicas or four."""

Scope = frozenset[int] | None
"""Which brokers a record is for; None is all of them."""


@dataclass(slots=True)
class FeedEntry:
    """One metadata record, and the brokers it is for. What became of a partition is encoded when somebody reads it:
    a broker that dies changes tens of thousands at once, and brokers follow the leader of the quorum alone."""

    scope: Scope
    record: bytes | PartitionChange
    history: int = 0
    """Mark of the history that ends with the command of this record; 0 unknown."""
    continues: bool = False
    """Whether nobody may have the record before without this one. So it is with a new partition: a client that heard of
    some of a topic's would place records by how many those are."""

    @property
    def size(self) -> int:
        """Bytes, as far as they are known."""
        return len(self.record) if isinstance(self.record, bytes) else CHANGE_BYTES


@dataclass(frozen=True, slots=True)
class FeedSlice:
    """Records from `first_offset` on for one broker; after folding them its image stands at `end_offset`.

    `end_offset - first_offset` exceeds `len(records)` by the records that were for other brokers.
    """

    first_offset: int
    end_offset: int
    records: list[bytes]
    #: whether another broker would have been given other records
    scoped: bool
    #: marks of the history up to the two offsets; 0 unknown
    first_history: int = 0
    end_history: int = 0


class MetadataFeed:
    """A ring of the last records, addressed by metadata offset.

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
        """Adds the records of one applied command and forgets the oldest beyond the capacity."""
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
        """Empties the ring: the image jumped to `offset` by a snapshot (of this node's own Raft log). `history`: its
        mark there, if it is known."""
        self._entries.clear()
        self._bytes = 0
        self.start_offset = self.end_offset = offset
        self._start_history = history

    def history_at(self, offset: int) -> int:
        """The mark of the history up to this offset; 0 if it is not known, or not here."""
        if offset == self.start_offset:
            return self._start_history
        if self.start_offset < offset <= self.end_offset:
            return self._entries[offset - self.end_offset - 1].history
        return 0

    def lacks(self, offset: int, history: int) -> bool:
        """Whether an image at `offset` of that history has what is not in this one, now."""
        if offset > self.end_offset:
            return True
        own = self.history_at(offset)
        return history > 0 and own > 0 and own != history

    def covers(self, offset: int) -> bool:
        """Whether a broker whose image stands at `offset` can go on from here without a snapshot.

        An offset beyond the end is covered too: the broker has seen more than this node has applied, and
        waits.
        """
        return offset >= self.start_offset

    def read(self, offset: int, broker_id: int, *, max_records: int, max_bytes: int) -> FeedSlice:
        """What follows `offset` for this broker, at least one record if there is any, and more than so many only where
        they continue each other.

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
        """For this reader and those who follow."""
        encoded = entry.record = change.encoded()
        self._bytes += len(encoded) - CHANGE_BYTES
        return encoded

    def _entries_from(self, offset: int) -> Iterator[FeedEntry]:
        """Walks from the nearer end: subscribers are nearly always at the last few records."""
        count = self.end_offset - offset
        if count <= 0:
            return iter(())
        if count < 1024:
            return (self._entries[index] for index in range(-count, 0))
        return islice(self._entries, offset - self.start_offset, None)


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    """Records that rebuild the image as it was at `end_offset`, in chunks ready to be sent to any number of
    brokers.
    """

    end_offset: int
    chunks: Sequence[Sequence[bytes]]
    history: int = 0
    """Mark of the history up to the end offset; 0 unknown."""


class SnapshotBuilder:
    """Packs encoded records into chunks, a slice of work at a time, so that the caller can yield in
    between.
    """

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
        """Takes up to this many records; the snapshot once there are no more."""
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
