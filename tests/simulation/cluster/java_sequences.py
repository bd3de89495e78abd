"""The sequence numbers of the Java client's idempotent producer, by its rules; no requests, no clock.

A batch gets its sequence when it is first sent. At most five batches are in flight to a partition. Of the batches to
resend only the first one is sent. A permanently refused batch leaves a gap: the producer raises its epoch itself
(KIP-360). It then renumbers from 0 all batches of the partition without a success, also those in flight. A batch that
was given up, and may have been sent, holds new batches back until the batches after it are answered.

Transactions are not modelled: they abort after an error, and their coordinator raises the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode
from tests.histories.operations import Send

UNDER_WAY_MAX = 5
NONE_ACKNOWLEDGED = -1
NO_BROKER = -1
NOT_APPENDED = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""Errors of an attempt that has not appended the batch. After any other error the batch may be in the log."""


class Number(NamedTuple):
    """The identification of a batch at the broker."""

    epoch: int
    base_sequence: int


@dataclass(eq=False, slots=True)
class Batch:
    """A batch for one partition, with all attempts."""

    sends: list[Send]
    created_s: float
    timestamp_ms: int
    number: Number | None = None
    under_way: bool = False
    broker: int = NO_BROKER
    """The broker to which the batch was last sent."""
    retried: bool = False
    renumbered: bool = False
    """True if the batch was renumbered since it was last sent."""
    is_over: bool = False
    in_doubt: set[Number] = field(default_factory=set)
    """Numbers under which the batch was sent and may be in the log."""

    @property
    def end(self) -> int:
        """Sequence after the last one of the batch."""
        assert self.number is not None
        return self.number.base_sequence + len(self.sends)


@dataclass(eq=False, slots=True)
class PartitionSequences:
    """The sequences of one partition. Invariant: `numbered` is sorted by sequence, and ends before `next_sequence`."""

    epoch: int
    next_sequence: int = 0
    last_acknowledged: int = NONE_ACKNOWLEDGED
    numbered: list[Batch] = field(default_factory=list)
    """Unfinished batches with a sequence."""
    queue: list[Batch] = field(default_factory=list)
    """Batches without a sequence."""
    unresolved: int | None = None
    """Sequence after the last batch that was given up and may have been sent."""

    def begin_anew(self, epoch: int) -> None:
        """Renumber every batch without a success from 0, under the new epoch."""
        self.epoch, self.last_acknowledged, sequence = epoch, NONE_ACKNOWLEDGED, 0
        for batch in self.numbered:
            batch.number, batch.renumbered = Number(epoch, sequence), True
            sequence = batch.end
        self.next_sequence = sequence


class JavaSequences:
    """The sequences of one producer."""

    def __init__(self, places: list[TopicPartition]) -> None:
        self.epoch = 0
        self.partitions = {place: PartitionSequences(0) for place in places}
        self._anew: set[TopicPartition] = set()

    def tend(self) -> None:
        """Resolve finished partitions, and raise the epoch if necessary; called before each send."""
        for place, partition in self.partitions.items():
            if partition.unresolved is not None and not partition.numbered:
                if partition.next_sequence != partition.last_acknowledged + 1:
                    self._anew.add(place)
                partition.unresolved = None
        if self._anew:
            self.epoch += 1
            for place in self._anew:
                self.partitions[place].begin_anew(self.epoch)
                self.partitions[place].unresolved = None
            self._anew.clear()

    def next_batch(self, place: TopicPartition) -> Batch | None:
        """Return the batch to send now, with its sequence, or None."""
        partition = self.partitions[place]
        if sum(batch.under_way for batch in partition.numbered) >= UNDER_WAY_MAX:
            return None
        waiting = [batch for batch in partition.numbered if not batch.under_way]
        if waiting:
            return waiting[0] if waiting[0] is partition.numbered[0] else None
        if not partition.queue or partition.unresolved is not None:
            return None
        if partition.epoch != self.epoch:
            if partition.numbered:
                return None
            partition.begin_anew(self.epoch)
        batch = partition.queue.pop(0)
        batch.number = Number(self.epoch, partition.next_sequence)
        partition.next_sequence = batch.end
        partition.numbered.append(batch)
        return batch

    def sent(self, place: TopicPartition, batch: Batch, broker: int) -> None:
        """Note an attempt.

        Under a new number Java may append a batch again that it appended under an old one; the cluster makes no promise
        about that. Nor does it about the order of first batches that Java sends to different brokers at once. A leader
        that does not know the producer takes any sequence first (KIP-360).
        """
        assert batch.number is not None
        partition = self.partitions[place]
        if partition.last_acknowledged == NONE_ACKNOWLEDGED:
            for earlier in partition.numbered[: partition.numbered.index(batch)]:
                if earlier.under_way and earlier.broker != broker:
                    for send in earlier.sends:
                        send.keeps_order = False
        batch.under_way, batch.renumbered, batch.broker = True, False, broker
        if batch.in_doubt - {batch.number}:
            for send in batch.sends:
                send.idempotent = False
        batch.in_doubt.add(batch.number)

    def acknowledged(self, place: TopicPartition, batch: Batch) -> None:
        """Note that the batch is in the log."""
        partition = self.partitions[place]
        partition.last_acknowledged = max(partition.last_acknowledged, batch.end - 1)
        self._over(partition, batch)

    def is_tried_again(
        self, place: TopicPartition, batch: Batch, sent_as: Number, code: ErrorCode, *, expired: bool
    ) -> bool:
        """Handle an error, and return whether the batch is sent again; otherwise it is finished."""
        partition = self.partitions[place]
        assert batch.number is not None
        batch.under_way = False
        if code in NOT_APPENDED:
            batch.in_doubt.discard(sent_as)
        if expired or not self._may_help(place, partition, batch, code):
            self._over(partition, batch)
            self._anew.add(place)
            return False
        batch.retried = True
        return True

    def _may_help(
        self, place: TopicPartition, partition: PartitionSequences, batch: Batch, code: ErrorCode
    ) -> bool:
        assert batch.number is not None
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            if not batch.renumbered:
                self._anew.add(place)
            return True
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return code.retriable
        base = batch.number.base_sequence
        is_next = base == partition.last_acknowledged + 1
        if partition.unresolved is None:
            if is_next and not batch.renumbered:
                self._anew.add(place)
        elif base == partition.unresolved:
            self._anew.add(place)
        return True

    def given_up(self, place: TopicPartition, batch: Batch) -> None:
        """Give up a batch after its timeout; its outcome is unknown."""
        partition = self.partitions[place]
        if batch.number is None:
            partition.queue.remove(batch)
            batch.is_over = True
            return
        self._over(partition, batch)
        if batch.retried:
            partition.unresolved = max(partition.unresolved or 0, batch.end)

    @staticmethod
    def _over(partition: PartitionSequences, batch: Batch) -> None:
        batch.is_over, batch.under_way = True, False
        partition.numbered.remove(batch)
