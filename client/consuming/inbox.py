"""What was fetched and not yet given to the program: taken in turns, a partition after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from ...protocol.errors import KafkaError
from .fetched import ConsumerRecord, TopicPartition
from .fetcher import Fetcher, PartitionState
from .unread import Unread


class Inbox:
    """The buffers of a fetcher's partitions, and records that were taken together but are given one by one."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
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

    def set_aside(self, partitions: Collection[TopicPartition]) -> None:
        """Give no more of these for now: what was taken of them together is fetched again later."""
        for one, offset in self.unread.drop(partitions).items():
            self._fetcher.assigned[one].seek(offset)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Their positions have changed."""
        self.unread.drop(partitions)

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record to give, of all partitions of which it is known."""
        known = {
            one: state.position for one, state in self._fetcher.assigned.items() if state.position is not None
        }
        return known | self.unread.positions()

    def take(self, partitions: set[TopicPartition], limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `limit` records, of these partitions or of all; another one is first each time."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        if self.unread:  # of the same partitions these come before what is buffered
            taken = self.unread.take_some(lambda one: self._wanted(one, partitions), limit)
            limit -= sum(map(len, taken.values()))
        for _ in range(len(self._turns) if limit > 0 else 0):
            partition = self._turns[0]
            self._turns.rotate(-1)
            state = self._fetcher.assigned[partition]
            if not state.buffer or not self._wanted(partition, partitions):
                continue
            try:
                records = self._take_from(state, limit)
            except KafkaError:
                if not taken:
                    raise
                break  # What others had comes first: that batch is fetched again, and told of if it still is damaged.
            if records:
                taken.setdefault(partition, []).extend(records)
                limit -= len(records)
                if limit <= 0:
                    break
        return taken

    def _wanted(self, partition: TopicPartition, partitions: set[TopicPartition]) -> bool:
        state = self._fetcher.assigned[partition]
        return not (state.paused or state.held) and (not partitions or partition in partitions)

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
