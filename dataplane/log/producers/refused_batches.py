"""Batches of producers that a replica refused for now, and the answers to batches that were sent after them.

A client sends several batches before it has the answer to the first. If the first is refused for a reason that passes,
the batches after it leave a gap. They get the error of the first, not OUT_OF_ORDER_SEQUENCE_NUMBER. After that error
librdkafka begins a new epoch, and sends the unanswered batches of all partitions again under it. A batch of which a
leader had appended the first attempt is then in the log twice (librdkafka's issue 4953).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ....protocol.errors import ErrorCode
from ....protocol.records.record_batch import BatchHeader

SEQUENCE_MAX: Final = 2**31 - 1
REFUSED_MAX: Final = 1000
"""The most producers of one partition of which refused batches are remembered."""


def is_behind(sequence: int, other: int) -> bool:
    """Return whether a producer uses `sequence` after `other`, perhaps after sequences wrapped to 0."""
    return 0 < (sequence - other) & SEQUENCE_MAX <= SEQUENCE_MAX // 2


class RefusedBatch(NamedTuple):
    """The earliest batch of a producer that was refused for now, and the latest batch that got the same error."""

    epoch: int
    first_sequence: int
    latest: int
    """First sequence of the latest refused batch."""
    code: ErrorCode


class RefusedBatches:
    """The batches that were refused for now, by producer. Producers beyond `REFUSED_MAX` are forgotten, the longest
    silent first."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, RefusedBatch] = {}

    def note(self, header: BatchHeader, code: ErrorCode) -> None:
        """Note a batch that was refused with this error, and will be sent again."""
        by_producer, producer_id = self.by_producer, header.producer_id
        first = header.base_sequence
        refused = RefusedBatch(header.producer_epoch, first, first, code)
        known = by_producer.pop(producer_id, refused)
        if known.epoch > refused.epoch:
            refused = known
        elif known.epoch == refused.epoch and is_behind(first, known.first_sequence):
            refused = known._replace(latest=first) if is_behind(first, known.latest) else known
        if len(by_producer) >= REFUSED_MAX:
            del by_producer[next(iter(by_producer))]
        by_producer[producer_id] = refused

    def earliest_before(self, header: BatchHeader) -> int | None:
        """Return the first sequence of the earliest refused batch, if `header` comes after that batch; None
        otherwise."""
        refused = self.by_producer.get(header.producer_id)
        if (
            refused is None
            or refused.epoch != header.producer_epoch
            or not is_behind(header.base_sequence, refused.first_sequence)
        ):
            return None
        return refused.first_sequence

    def error_behind(self, header: BatchHeader, expected: int) -> ErrorCode | None:
        """Return the error for a batch after a gap that begins at the sequence `expected`: the error of the batch that
        was refused there. Return None if there is no such batch.

        A batch gets this error once. If it comes again before the refused batch, its client has left that batch out.
        """
        refused = self.by_producer.get(header.producer_id)
        first = header.base_sequence
        if (
            refused is None
            or refused.epoch != header.producer_epoch
            or is_behind(refused.first_sequence, expected)
            or is_behind(expected, refused.latest)
            or not is_behind(first, refused.latest)
        ):
            return None
        self.by_producer[header.producer_id] = refused._replace(latest=first)
        return refused.code

    def appended(self, header: BatchHeader) -> None:
        """Forget the refused batches of a producer if the log has the earliest of them, or a later batch."""
        refused = self.by_producer.get(header.producer_id)
        if refused is None or header.producer_epoch < refused.epoch:
            return
        if header.producer_epoch > refused.epoch or not is_behind(
            refused.first_sequence, header.last_sequence
        ):
            del self.by_producer[header.producer_id]

    def clear(self) -> None:
        """Forget all refused batches."""
        self.by_producer.clear()
