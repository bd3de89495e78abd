"""How far the program is in each partition: what it was handed, and what of that it has finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..records import TopicPartition
from .inbox import Inbox


class ConsumerProgress:
    """Of one consumer.

    The offsets are the next to read, of all assigned partitions of which that is known. What is automatic commits what
    is `finished`, `commit` commits what was `handed_out`.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def handed_out(self) -> dict[TopicPartition, int]:
        """Behind what the program was given."""
        return self._inbox.positions()

    def finished(self) -> dict[TopicPartition, int]:
        """Before what the program has in hand. Asked in this order: other threads take records meanwhile, and each of
        them has to be seen at one of the two places."""
        handed_out = self.handed_out()
        return held_back(handed_out, self._inbox.unread.in_hand())


def held_back(
    offsets: Mapping[TopicPartition, int], by: Iterable[tuple[TopicPartition, int]]
) -> dict[TopicPartition, int]:
    """The offsets, none of them behind what holds its partition back."""
    lowered = dict(offsets)
    for one, offset in by:
        if lowered.get(one, offset) > offset:
            lowered[one] = offset
    return lowered
