"""The reading side of a processor: records that are in no batch yet, and the offsets to return to after a failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import NO_GENERATION
from ..consumer import Consumer
from ..consuming.group_metadata import ConsumerGroupMetadata
from ..consuming.membership.listener import RebalanceListener
from ..records import ConsumerRecord, OffsetAndMetadata, TopicPartition


class Source(RebalanceListener):
    """A consumer whose positions count only as far as they were committed in a transaction.

    Revoked partitions are forgotten here before another member can get them: neither their records nor the results of a
    batch may count afterwards, even if the partitions come back. Partitions of the current batch are given up when it
    has ended.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.assigned = False
        """True if the group has assigned partitions and is not in a rebalance."""
        self._consumer = consumer
        self._ahead: deque[ConsumerRecord] = deque()
        self._undo: dict[TopicPartition, int] = {}
        """The first offset of each partition that a batch has taken and not committed."""
        self._leaving: set[TopicPartition] = set()
        self._at_work = False
        self._ended = asyncio.Event()

    @property
    def releasing(self) -> bool:
        """True while the group waits for the end of the current batch, whose partitions it has revoked."""
        return bool(self._leaving)

    @property
    def ahead(self) -> int:
        """The number of records that were read and are ready to be taken for the next batch."""
        return len(self._ahead)

    async def read(self, limit: int, timeout_ms: float | None) -> bool:
        """Read up to `limit` more records, waiting up to `timeout_ms` for them. Returns whether any came. Raises
        KafkaError."""
        # There is no await between the two: records that are not in `_ahead` could not be forgotten on revocation.
        read = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=limit)
        for records in read.values():
            self._ahead.extend(records)
        return bool(read)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Take the next records, for a batch; `rewind` returns to them unless `counted` is called."""
        taken = [self._ahead.popleft() for _ in range(min(limit, len(self._ahead)))]
        for record in taken:
            self._undo.setdefault(_place(record), record.offset)
        return taken

    def put_back(self, records: Sequence[ConsumerRecord], kept: Iterable[ConsumerRecord]) -> None:
        """Put records back for the next batch. A batch had taken them after the records `kept`."""
        back = self._undo.keys() - self._leaving
        self._ahead.extendleft(record for record in reversed(records) if _place(record) in back)
        for place in set(map(_place, records)).difference(map(_place, kept)):
            self._undo.pop(place, None)

    def begin_work(self) -> None:
        """Mark the start of a batch's work: from now on, revoked partitions of the batch are given up when it has
        ended."""
        self._at_work = True
        self._ended.clear()

    def end_work(self) -> None:
        """Mark the end of a batch's work, whether it was committed or not."""
        self._at_work = False
        self._ended.set()

    def member(self, partitions: Iterable[TopicPartition]) -> ConsumerGroupMetadata:
        """Return the group member in whose name the offsets of `partitions` are committed now.

        The current generation is correct, as the partitions have been assigned to this member all the time. Raises
        KafkaError REBALANCE_IN_PROGRESS if they have not.
        """
        member = self._consumer.group_metadata()
        gone = [partition for partition in partitions if partition not in self._undo]
        if gone or member.generation == NO_GENERATION:
            what = f"{gone[0].topic}-{gone[0].partition}" if gone else "everything"
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"group {member.group_id!r} has taken {what} away from this member while it worked on it",
            )
        return member

    def committable(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit. Large messages that span an offset are read from their beginning again."""
        return {
            partition: self._consumer.committable(partition, offset) for partition, offset in offsets.items()
        }

    def counted(self) -> None:
        """Mark all taken records as committed in a transaction, so that `rewind` does not return to them."""
        self._undo.clear()

    async def rewind(self) -> None:
        """Return to the committed offsets. Raises KafkaError; then the rewind must be repeated."""
        if not self._undo:
            return
        self._ahead = deque(record for record in self._ahead if _place(record) not in self._undo)
        commits = self._consumer.commits
        assert commits is not None  # It is a member of a group.
        committed = await commits.committed(list(self._undo))
        for place in self._consumer.assignment().intersection(self._undo):
            self._consumer.seek(place, committed.get(place, self._undo[place]))
        self._undo.clear()

    # the group

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        """Note that the group has assigned partitions."""
        self.assigned = True

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Wait for the end of a batch that has records of these partitions, so that its work is not repeated."""
        self._drop_ahead(partitions)
        self._leaving = partitions.intersection(self._undo)
        try:
            while self._at_work and not self._leaving.isdisjoint(self._undo):
                await self._ended.wait()
        finally:
            self._leaving = set()
            self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        """Forget the records of these partitions, so that nothing made of them is committed."""
        self.assigned = False
        self._drop_ahead(partitions)
        for partition in partitions:
            self._undo.pop(partition, None)

    def _drop_ahead(self, partitions: Collection[TopicPartition]) -> None:
        self._ahead = deque(record for record in self._ahead if _place(record) not in partitions)


def _place(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
