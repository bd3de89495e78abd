"""What was fetched and not yet given to the program: taken in turns, a partition after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from ...protocol.errors import KafkaError
from ..failures import SerializationFailed
from .fetched import ConsumerRecord, TopicPartition
from .fetcher import Fetcher, PartitionState
from .unread import Unread


class Inbox:
    """The buffers of a fetcher's partitions, and records that were taken together but are given one by one."""

    def __init__(
        self, fetcher: Fetcher, deserialize: Callable[[ConsumerRecord], ConsumerRecord] | None = None
    ) -> None:
        """`deserialize` raises SerializationFailed."""
        self._fetcher = fetcher
        self._deserialize = deserialize
        self._turns: deque[TopicPartition] = deque()
        self.unread = Unread()

    def reassigned(self) -> None:
        """The fetcher has other partitions now."""
        self._turns = deque(self._fetcher.assigned)
        self.unread.keep(self._fetcher.assigned)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Give no more of these, which are about to go: their positions are behind what was given."""
        for one in partitions:
            state = self._fetcher.assigned[one]
            state.held = True
        first_unread = self.unread.drop(partitions)
        for one, offset in first_unread.items():
            self._fetcher.assigned[one].position = offset

    def give_back(self, partitions: Collection[TopicPartition]) -> None:
        """What was taken of these to be given one by one, and was not, is to be taken again."""
        for one, offset in self.unread.drop(partitions).items():
            self._fetcher.assigned[one].seek(offset)
            self._fetcher.changed()

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Their positions have changed."""
        self.unread.drop(partitions)

    def take(self, partitions: set[TopicPartition], limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `limit` buffered records, of these partitions or of all; another one is first each time.

        Raises KafkaError where nothing can be taken before a record that is damaged or cannot be deserialised; the
        position stays there."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        for _ in range(len(self._turns)):
            partition = self._turns[0]
            self._turns.rotate(-1)
            state = self._fetcher.assigned[partition]
            idle = state.paused or state.held or not state.buffer
            if idle or (partitions and partition not in partitions):
                continue
            try:
                records = self._take_from(state, limit)
                if self._deserialize is not None:
                    records = self._deserialized(state, records, self._deserialize)
            except KafkaError:
                if not taken:
                    raise
                break  # What others had comes first: that place is fetched again, and told of if it still fails.
            if records:
                taken[partition] = records
                limit -= len(records)
                if limit <= 0:
                    break
        return taken

    def _take_from(self, state: PartitionState, limit: int) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        while state.buffer and len(records) < limit:
            chunk = state.buffer[0]
            wanted = limit - len(records)
            try:
                some = chunk.take(wanted)
            except KafkaError:
                if records:
                    break
                # Not passed over: the next leader may have it whole.
                state.seek(chunk.next_offset)
                self._fetcher.changed()
                raise
            records += some
            state.position = chunk.next_offset
            if len(some) < wanted and chunk.damage is None:
                state.buffer.pop(0)
                self._fetcher.changed()
        return records

    def _deserialized(
        self,
        state: PartitionState,
        records: list[ConsumerRecord],
        deserialize: Callable[[ConsumerRecord], ConsumerRecord],
    ) -> list[ConsumerRecord]:
        """Those before the first that fails, or its failure if that is the first."""
        done: list[ConsumerRecord] = []
        for record in records:
            try:
                done.append(deserialize(record))
            except SerializationFailed:
                state.seek(record.offset)  # Not passed over: what to do about it is the program's to say.
                self._fetcher.changed()
                if done:
                    break
                raise
        return done
