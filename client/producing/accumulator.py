"""Queues of batches to send, one for each partition: their order and their sequence numbers. Pure.

A queue decides which batch may be sent next, so that a partition's records keep their order through every retry:
    new batches     Up to the limit are in flight at once (one, without idempotence), all to the same leader, which must
                    have accepted a batch of this identity. A leader that does not know the producer accepts any
                    sequence (KIP-360): if its first batch were lost or refused, the next would be accepted instead.
    a retried batch is sent alone, oldest first, and the next batch waits for its answer: it may have been appended
                    already, and a leader recognizes duplicates only of the producer's last five batches.
    a split batch   keeps its position, its time and its sequence numbers, which its parts share (KIP-126).
    a new identity  (producer id and epoch) begins when no batch is in flight, with sequence 0. Batches that may have
                    been appended under the old identity keep their numbers until a leader has refused them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from ...protocol.records.record import EncodedRecords, Record, RecordCursor, SealedBatch
from .appending import RecordBuffer
from .batch_limit import BatchLimit
from .pending import BATCH_OVERHEAD, PendingRecord, estimated_bytes

ResultT = TypeVar("ResultT")
SEQUENCES = 1 << 31


@dataclass(frozen=True, slots=True, order=True)
class ProducerIdentity:
    """A producer id and epoch, assigned by the cluster."""

    id: int
    epoch: int


class ProducerBatch(RecordBuffer[ResultT]):
    """Records of a partition that are sent together, and their common result."""

    __slots__ = (
        "abandoned",
        "alone",
        "attempts",
        "base_sequence",
        "body",
        "created_s",
        "doubtful",
        "encoded",
        "first",
        "identity",
        "order",
        "torn",
    )

    def __init__(self, order: int, created_s: float, result: ResultT, bytes_max: int) -> None:
        super().__init__(result, bytes_max)
        self.order = order
        self.first = 0
        """Index of this batch's first record in the batch that was split; 0 if none was."""
        self.created_s = created_s
        self.attempts = 0
        self.alone = True
        """True if no other batch of the partition was in flight when this one was sent."""
        self.doubtful = False
        """True if an attempt may have been appended though it was not acknowledged."""
        self.torn = False
        """True if this is a part of a batch that may have been appended as a whole. A leader that has appended it
        refuses the part's sequence numbers, as it would after a gap."""
        self.abandoned = False
        """True if the batch was given up: its answer is ignored."""
        self.identity: ProducerIdentity | None = None
        self.base_sequence = -1
        self.encoded: SealedBatch | None = None
        """Encoded form that the last attempt sent, valid for the batch's current identity and sequence."""
        self.body: EncodedRecords | None = None
        """Records of a batch that was encoded before it was queued; then `records` is empty."""

    @property
    def count(self) -> int:
        """The number of records in the batch."""
        return len(self.records) if self.body is None else self.body.record_count

    @property
    def record_bytes(self) -> int:
        """The sum of the estimated sizes in bytes of the batch's records."""
        return self.size - BATCH_OVERHEAD

    @property
    def numbered(self) -> bool:
        """True if the batch has a sequence number that a broker may have seen."""
        return self.base_sequence >= 0

    def all_records(self) -> Sequence[PendingRecord]:
        """Return the records, decoding them if the batch was encoded before it was queued."""
        if (body := self.body) is None:
            return self.records
        cursor = RecordCursor(body.body, body.record_count, 0, body.first_ms, Record)
        return [
            (record.key, record.value, record.timestamp_ms, record.headers)
            for record in cursor.take(body.record_count)
        ]

    @property
    def place(self) -> tuple[int, int]:
        """The batch's position among the batches of its partition."""
        return self.order, self.first

    def release(self) -> None:
        """Drop the records, as deliveries and the appender may keep the batch for longer."""
        self.records, self.body, self.encoded = [], None, None

    def number(self, identity: ProducerIdentity, base_sequence: int) -> None:
        """Set the producer id and epoch of the batch, and the sequence number of its first record."""
        self.identity, self.base_sequence, self.encoded = identity, base_sequence, None

    def forget_number(self) -> None:
        """Remove the batch's producer id, epoch and sequence number; it will be numbered again."""
        self.identity, self.base_sequence, self.encoded = None, -1, None


class PartitionQueue(Generic[ResultT]):
    """The batches of a partition, oldest first. `result` creates the result object of a new batch."""

    def __init__(
        self, topic: str, partition: int, limit: BatchLimit, result: Callable[[str, int], ResultT]
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.limit = limit
        """The size limit of the topic's batches."""
        self.identity: ProducerIdentity | None = None
        self.used_s = 0.0
        """Loop time in seconds at which the youngest batch was begun."""
        self.retry_at_s = 0.0
        """Loop time before which there is no retry, unless the leader is another than `failed_leader`."""
        self.failed_leader: tuple[int, int] | None = None
        """Pair (broker id, leader epoch) of the last failed attempt."""
        self.sent_to: tuple[int, int] | None = None
        """Pair (broker id, leader epoch) of the last attempt."""
        self._result = result
        self._waiting: deque[ProducerBatch[ResultT]] = deque()  # Invariant: ordered by `order`
        self._under_way: list[ProducerBatch[ResultT]] = []
        self._leader: Hashable = None  # leader of all batches in flight, always the same
        self._known_to: tuple[Hashable, ProducerIdentity | None] | None = None
        self._next_sequence = 0
        self._next_order = 0

    @property
    def empty(self) -> bool:
        """True if no batch of the partition is waiting or in flight."""
        return not self._waiting and not self._under_way

    @property
    def waiting(self) -> bool:
        """True if a batch of the partition waits to be sent."""
        return bool(self._waiting)

    @property
    def next_order(self) -> int:
        """The number in the partition's order of batches that the next new batch gets."""
        return self._next_order

    @property
    def oldest_s(self) -> float:
        """The creation time of the oldest waiting batch; infinity if no batch waits."""
        return self._waiting[0].created_s if self._waiting else inf

    def resolved_below(self, order: int) -> bool:
        """Return whether no batch with a smaller order number is waiting or in flight."""
        return all(batch.order >= order for batch in (*self._under_way, *self._waiting))

    def append(
        self, record: PendingRecord, size: int, now_s: float
    ) -> tuple[ProducerBatch[ResultT], int, bool]:
        """Add a record of `size` estimated bytes to the youngest batch.

        Returns that batch, the record's index in it, and whether an older batch was full.
        """
        batch = self._waiting[-1] if self._waiting else None
        is_open = batch is not None and batch.is_open
        if batch is not None:
            batch.is_open = False  # Other threads must not append while this decides.
        filled = is_open and batch is not None and batch.size + size > batch.bytes_max
        if batch is None or filled or not is_open:
            batch = self._begin(now_s)
        place = batch.add(record, size)
        batch.is_open = True
        return batch, place, filled

    def append_encoded(self, records: EncodedRecords, size: int, now_s: float) -> ProducerBatch[ResultT]:
        """Queue a complete, encoded batch whose records have `size` estimated bytes."""
        batch = self._begin(now_s)
        batch.is_open = False
        batch.body = records
        batch.size += size
        return batch

    def due_s(self, linger_s: float) -> float | None:
        """Return the time at which the oldest waiting batch may be sent, without regard to retries; None if no batch
        waits."""
        if not self._waiting:
            return None
        head = self._waiting[0]
        if len(self._waiting) > 1 or not head.is_open or head.size >= head.bytes_max:
            return head.created_s
        return head.created_s + linger_s

    def take(
        self, identity: ProducerIdentity | None, limit: int, leader: Hashable
    ) -> ProducerBatch[ResultT] | None:
        """Return the batch that may be sent to `leader` now, numbered under `identity` (None without idempotence); None
        if it must wait.

        A `leader` is one connection to one broker in one leader epoch.
        """
        if not self._waiting:
            return None
        head = self._waiting[0]
        if identity is None or head.numbered:
            if self._under_way:
                return None
            head.is_open = False
        else:
            if len(self._under_way) >= limit or any(batch.attempts > 1 for batch in self._under_way):
                return None
            if self._under_way and self._known_to != (leader, identity):
                return None
            if self.identity != identity:
                self.identity, self._next_sequence = identity, 0
            head.is_open = False  # before its records are counted
            head.number(identity, self._next_sequence)
            self._next_sequence = (self._next_sequence + head.count) % SEQUENCES
        self._waiting.popleft()
        head.attempts += 1
        head.alone = not self._under_way
        self._leader = leader
        self._under_way.append(head)
        return head

    def acknowledged(self, batch: ProducerBatch[ResultT]) -> None:
        """Remove a batch from the queue, since the leader has appended it."""
        self._under_way.remove(batch)
        self._known_to = (self._leader, batch.identity)

    def given_up(self, batch: ProducerBatch[ResultT]) -> None:
        """Remove a failed batch from the queue, since it will not be sent again."""
        self._under_way.remove(batch)

    def give_back(self, batch: ProducerBatch[ResultT]) -> None:
        """Queue a failed batch again at its old position.

        The batch keeps its sequence number while that is still valid, or the batch may have been appended.
        """
        self._under_way.remove(batch)
        if batch.identity != self.identity and not batch.doubtful:
            batch.forget_number()
        position = sum(1 for other in self._waiting if other.place < batch.place)
        self._waiting.insert(position, batch)

    def is_first(self, batch: ProducerBatch[ResultT]) -> bool:
        """Return whether no older batch of this partition is unresolved."""
        older = (*self._under_way, *self._waiting)
        return batch.identity == self.identity and all(other.place >= batch.place for other in older)

    def oversized(self) -> list[ProducerBatch[ResultT]]:
        """Return the waiting batches that are larger than the limit and may be split.

        A batch that may have been appended is not split: its leader would not recognize the parts as duplicates.
        """
        limit = self.limit.bytes_max
        return [
            batch for batch in self._waiting if batch.size > limit and batch.count > 1 and not batch.doubtful
        ]

    def split(self, batch: ProducerBatch[ResultT]) -> list[ProducerBatch[ResultT]]:
        """Replace a waiting batch of several records by several batches, each up to the limit, with at least one
        record.

        The parts keep its order, time and sequence numbers.
        """
        batch.is_open = False  # No records may be added while they are counted.
        parts: list[ProducerBatch[ResultT]] = []
        limit = self.limit.bytes_max
        for number, record in enumerate(batch.all_records()):
            size = estimated_bytes(record)
            if not parts or parts[-1].size + size > limit:
                parts.append(self._part(batch, number))
            parts[-1].add(record, size)
        position = self._waiting.index(batch)
        del self._waiting[position]
        for part in reversed(parts):
            self._waiting.insert(position, part)
        return parts

    def _part(self, batch: ProducerBatch[ResultT], first: int) -> ProducerBatch[ResultT]:
        """Return a part of `batch` that begins with record number `first`."""
        part = ProducerBatch(
            batch.order, batch.created_s, self._result(self.topic, self.partition), batch.bytes_max
        )
        part.is_open = False
        part.first = batch.first + first
        part.attempts = batch.attempts
        part.doubtful = batch.doubtful
        part.torn = batch.doubtful or batch.torn
        if batch.identity is not None:
            part.number(batch.identity, (batch.base_sequence + first) % SEQUENCES)
        return part

    def restart_numbering(self) -> None:
        """Number the waiting batches again under a new identity, since a gap in the sequence is certain or likely.

        Batches that may have been appended try their old numbers first.
        """
        self.identity = None
        for batch in self._waiting:
            if batch.numbered and not batch.doubtful:
                batch.forget_number()

    def expired(self, before_s: float) -> list[ProducerBatch[ResultT]]:
        """Remove and return the waiting batches created before `before_s`; numbering restarts if one had a number."""
        gone: list[ProducerBatch[ResultT]] = []
        while self._waiting and self._waiting[0].created_s < before_s:
            gone.append(self._waiting.popleft())
            gone[-1].is_open = False
        if any(batch.numbered for batch in gone):
            self.restart_numbering()
        return gone

    def _begin(self, now_s: float) -> ProducerBatch[ResultT]:
        if self._waiting:
            self._waiting[-1].is_open = False
        self.used_s = now_s
        bytes_max = self.limit.for_new_batch(now_s)
        batch = ProducerBatch(self._next_order, now_s, self._result(self.topic, self.partition), bytes_max)
        self._next_order += 1
        self._waiting.append(batch)
        return batch

    def drain(self) -> Iterable[ProducerBatch[ResultT]]:
        """Remove and return all batches, waiting or in flight, and mark them as abandoned."""
        batches = [*self._under_way, *self._waiting]
        for batch in batches:
            batch.abandoned = True
            batch.is_open = False
        self._under_way.clear()
        self._waiting.clear()
        return batches
