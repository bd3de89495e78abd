"""The program's progress in each partition: the records handed out, and the records that it has finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..records import TopicPartition
from .inbox import Inbox


class ConsumerProgress:
    """The progress of one consumer's program, as offsets by partition.

    The offsets are the next to read, of all assigned partitions with a known position. Auto-commit uses `finished`;
    `commit()` uses `handed_out`.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def handed_out(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset after the last record handed out to the program."""
        return self._inbox.positions()

    def finished(self) -> dict[TopicPartition, int]:
        """Return the offsets before the records that the program is still processing.

        The order of the two reads matters: other threads take records meanwhile, and one of the reads must see each of
        them.
        """
        handed_out = self.handed_out()
        return held_back(handed_out, self._inbox.unread.in_hand())


def held_back(
    offsets: Mapping[TopicPartition, int], by: Iterable[tuple[TopicPartition, int]]
) -> dict[TopicPartition, int]:
    """Return `offsets`, each lowered to the partition's offset in `by` if that is smaller."""
    lowered = dict(offsets)
    for partition, offset in by:
        if lowered.get(partition, offset) > offset:
            lowered[partition] = offset
    return lowered
