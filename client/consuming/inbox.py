"""What was fetched and not yet given to the program: taken in turns, a partition after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

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
        """Up to `limit` buffered records, of these partitions or of all; another one is first each time."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        for state in self.in_turn(partitions):
            try:
                records = self._take_from(state, limit)
            except KafkaError:
                if not taken:
                    raise
                break  # What others had comes first: that batch is fetched again, and told of if it still is damaged.
            if records:
                taken[state.partition] = records
                limit -= len(records)
                if limit <= 0:
                    break
        return taken

    def in_turn(self, partitions: set[TopicPartition]) -> Iterator[PartitionState]:
        """Those of these partitions, or of all, that have something to give; another one is first each time."""
        for _ in range(len(self._turns)):
            partition = self._turns[0]
            self._turns.rotate(-1)
            state = self._fetcher.assigned[partition]
            idle = state.paused or state.held or not state.buffer
            if not idle and (not partitions or partition in partitions):
                yield state

    def refused(self, state: PartitionState) -> None:
        """Its first chunk is damaged: it is fetched again from there, and not passed over, as the next leader may have
        it whole."""
        state.seek(state.buffer[0].next_offset)
        self._fetcher.changed()

    def emptied(self, state: PartitionState) -> None:
        """All of its first chunk was taken."""
        state.buffer.pop(0)
        self._fetcher.changed()

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
                self.refused(state)
                raise
            records += some
            state.position = chunk.next_offset
            if len(some) < wanted and chunk.damage is None:
                self.emptied(state)
        return records
