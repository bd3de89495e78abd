"""Positions of a consumer: seeking, pausing, committable positions and lag."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ..arguments import topic_partition, whole_number
from ..backoff import Backoff
from ..lifecycle import Lifecycle
from ..records import Committable, OffsetAndMetadata, TopicPartition
from .assigned import AssignedPartition
from .fetcher import Fetcher
from .inbox import Inbox


class Positions:
    """The methods of a consumer that read and change its positions."""

    _fetcher: Fetcher
    _inbox: Inbox
    _life: Lifecycle

    def seek(self, partition: TopicPartition, offset: Committable) -> None:
        """Continue at `offset`, or at a place that `committable` returned.

        The offset of a large message is that of its last segment. The consumer knows the beginnings of the messages
        that it has read before; a message across `offset` whose beginning is unknown is skipped. Raises ValueError if
        the partition is not assigned to this consumer.
        """
        state = self._state(partition)
        if not isinstance(offset, OffsetAndMetadata):
            topic, number = state.partition
            given = whole_number(f"the offset to go on at in {topic}-{number}", offset)
            offset = self.committable(state.partition, given)
        self._inbox.resume(state, offset)
        self._moved(state.partition)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue reading at the log start of these partitions, or of all assigned partitions."""
        self._look_up(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue reading at the end of these partitions, or of all assigned partitions."""
        self._look_up(partitions, LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue at the first record not older than `timestamp_ms`; at the end if there is none."""
        self._look_up(partitions, whole_number("timestamp_ms", timestamp_ms))

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop fetching and handing out records of these partitions until `resume`."""
        for state in [self._state(partition) for partition in partitions]:
            state.paused = True
            self._inbox.give_back([state.partition])

    def resume(self, *partitions: TopicPartition) -> None:
        """Fetch and hand out records of these partitions again, after `pause`. A read that waits gets them, too."""
        for state in [self._state(partition) for partition in partitions]:
            state.paused = False
        self._fetcher.changed()
        self._fetcher.wake_waiter()

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record, waiting until it is known.

        Raises ValueError if the partition is not, or no longer, assigned to this consumer. To continue there with
        another consumer, commit the result of `committable`.
        """
        self._life.check_here(or_stopping=True)
        backoff = Backoff(100)
        while (state := self._state(partition)).position is None:
            self._raise_failures()
            await asyncio.sleep(backoff.next_s())
        return self._inbox.positions()[state.partition]

    def committable(self, partition: TopicPartition, offset: int | None = None) -> OffsetAndMetadata:
        """Return the value to commit for a partition so that a reader who resumes there gets every record from `offset`
        on, and none before.

        The value is the offset itself, or the offset of the first segment of a large message across it, with a note of
        the records to skip. Without `offset` it is the value for the next record.

        `commit` and `Producer.send_offsets_to_transaction` call it themselves. It knows the incomplete messages, and
        the last 1,000 complete messages of each partition. Without `offset` it raises ValueError if the partition is
        not assigned to this consumer, or if its position is not known yet.
        """
        checked = topic_partition(partition)
        if offset is None:
            self._state(checked)
            offset = self._inbox.positions().get(checked)
        if offset is None:
            raise ValueError(
                f"it is not known yet where {checked.topic}-{checked.partition} begins; await position()"
            )
        return self._inbox.committable(checked, offset)

    async def lag(self, partition: TopicPartition) -> int:
        """Return the number of offsets between the position and the end that this consumer can read to.

        For this end see `end_offsets`. Markers and compacted records count. Raises ValueError if the partition is not
        assigned to this consumer.
        """
        checked = self._state(partition).partition
        self._life.check_here(or_stopping=True)
        end, _ = (await self._fetcher.list_offsets({checked: LATEST}))[checked]
        return max(0, end - await self.position(checked))

    def _raise_failures(self) -> None:
        raise NotImplementedError

    # inside

    def _state(self, partition: TopicPartition) -> AssignedPartition:
        self._life.check_loop()
        checked = topic_partition(partition)
        state = self._fetcher.assigned.get(checked)
        if state is None:
            raise ValueError(f"{checked.topic}-{checked.partition} is not assigned to this consumer")
        return state

    def _look_up(self, partitions: Sequence[TopicPartition], timestamp: int) -> None:
        for state in [self._state(partition) for partition in partitions or list(self._fetcher.assigned)]:
            state.look_up(timestamp)
            self._moved(state.partition)

    def _moved(self, partition: TopicPartition) -> None:
        self._inbox.forget([partition])
        self._fetcher.changed()
