"""What is read: records that no batch has yet, and where to go back to when a batch does not count."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ..consumer import Consumer
from ..consuming.group_metadata import NO_GENERATION, ConsumerGroupMetadata
from ..consuming.membership.listener import RebalanceListener
from ..records import ConsumerRecord, OffsetAndMetadata, TopicPartition


class Source(RebalanceListener):
    """A consumer whose positions count only as far as they were committed in a transaction.

    Partitions that leave are forgotten here before anybody else can have them: neither their records nor what a batch
    made of them may count afterwards, even if they come back. Those of a batch that is at work leave when it has ended.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.assigned = False
        """Whether the group has told which partitions are ours, and is not about to tell anew."""
        self._consumer = consumer
        self._ahead: deque[ConsumerRecord] = deque()
        self._undo: dict[TopicPartition, int] = {}
        """The first offset of what was taken, and does not count yet."""
        self._leaving: set[TopicPartition] = set()
        self._at_work = False
        self._ended = asyncio.Event()

    @property
    def releasing(self) -> bool:
        """Whether the group waits for the end of the batch that is at work."""
        return bool(self._leaving)

    @property
    def ahead(self) -> int:
        """How many records are there to be taken."""
        return len(self._ahead)

    async def read(self, limit: int, timeout_ms: float | None) -> bool:
        """Read up to `limit` more, waiting up to `timeout_ms` for some; whether any came. Raises KafkaError."""
        # Without a step of the loop between the two: what is not in `_ahead` cannot be forgotten.
        read = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=limit)
        for records in read.values():
            self._ahead.extend(records)
        return bool(read)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """The next records, for a batch: gone back to unless `counted` follows."""
        taken = [self._ahead.popleft() for _ in range(min(limit, len(self._ahead)))]
        for record in taken:
            self._undo.setdefault(_place(record), record.offset)
        return taken

    def put_back(self, records: Sequence[ConsumerRecord], kept: Iterable[ConsumerRecord]) -> None:
        """Let the next batch have these, that a batch had taken after those `kept`."""
        back = self._undo.keys() - self._leaving
        self._ahead.extendleft(one for one in reversed(records) if _place(one) in back)
        for place in set(map(_place, records)).difference(map(_place, kept)):
            self._undo.pop(place, None)

    def begin_work(self) -> None:
        """From now on partitions of the batch leave when it has ended."""
        self._at_work = True
        self._ended.clear()

    def end_work(self) -> None:
        """The batch has ended, whether it counts or not."""
        self._at_work = False
        self._ended.set()

    def member(self, partitions: Iterable[TopicPartition]) -> ConsumerGroupMetadata:
        """In whose name offsets are committed now for what was taken of `partitions`: the generation of now will do, as
        they have been ours all the time. Raises KafkaError REBALANCE_IN_PROGRESS if not."""
        member = self._consumer.group_metadata()
        gone = [one for one in partitions if one not in self._undo]
        if gone or member.generation == NO_GENERATION:
            what = f"{gone[0].topic}-{gone[0].partition}" if gone else "everything"
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"group {member.group_id!r} has taken {what} away from this member while it worked on it",
            )
        return member

    def committable(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit for these, so that large messages that lie across them are read from their beginning."""
        return {one: self._consumer.committable(one, offset) for one, offset in offsets.items()}

    def counted(self) -> None:
        """What was taken is committed."""
        self._undo.clear()

    async def rewind(self) -> None:
        """Go back to what is committed. Raises KafkaError; then it is still to be done."""
        if not self._undo:
            return
        self._ahead = deque(one for one in self._ahead if _place(one) not in self._undo)
        commits = self._consumer.commits
        assert commits is not None  # It is a member of a group.
        committed = await commits.committed(list(self._undo))
        for place in self._consumer.assignment().intersection(self._undo):
            self._consumer.seek(place, committed.get(place, self._undo[place]))
        self._undo.clear()

    # the group

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        """They are read from now on."""
        self.assigned = True

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Let the batch end that is made of some of them: so its work is not done again."""
        self._drop_ahead(partitions)
        self._leaving = partitions.intersection(self._undo)
        try:
            while self._at_work and not self._leaving.isdisjoint(self._undo):
                await self._ended.wait()
        finally:
            self._leaving = set()
            self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        """Nothing made of them may count."""
        self.assigned = False
        self._drop_ahead(partitions)
        for one in partitions:
            self._undo.pop(one, None)

    def _drop_ahead(self, partitions: Collection[TopicPartition]) -> None:
        self._ahead = deque(one for one in self._ahead if _place(one) not in partitions)


def _place(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
