"""The futures of spooled records. Millions of records may wait for hours, so a future that its caller has dropped costs
no memory."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from weakref import WeakValueDictionary

from ...protocol.errors import KafkaError
from ..producing.deliveries import BatchResult, RecordDelivery
from ..producing.record_metadata import RecordMetadata
from .readiness import ANY_PARTITION


class SpooledFuture(RecordDelivery):
    """The future that `send` returns: the delivery of a record that is settled alone.

    A future with a callback, as an awaited future has, is kept until it is done.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, topic: str, partition: int | None, timestamp_ms: int) -> None:
        where = ANY_PARTITION if partition is None else partition
        super().__init__(BatchResult(asyncio.get_running_loop(), topic, where), 0, timestamp_ms)

    def delivered(self, metadata: RecordMetadata) -> None:
        """Settle the future with the record's position in the log."""
        self.batch.partition = metadata.partition
        self.batch.acknowledged(metadata.offset, metadata.timestamp_ms)

    def add_done_callback(
        self, fn: Callable[[RecordDelivery], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Add a callback, as for any delivery. The future is kept until it is done, even if the caller drops it."""
        if not self.done() and self not in _kept:
            _kept.add(self)
            super().add_done_callback(_kept.discard)
        super().add_done_callback(fn, context=context)


_kept: set[RecordDelivery] = set()


class WaitingFutures:
    """The futures of records in the spool, by position."""

    def __init__(self) -> None:
        self._by_position: WeakValueDictionary[int, SpooledFuture] = WeakValueDictionary()

    def add(self, position: int, future: SpooledFuture) -> None:
        """Note the future of the record at a position in the spool."""
        self._by_position[position] = future

    def delivered(self, position: int, metadata: RecordMetadata) -> None:
        """Settle the future of the record at `position` in the spool, which was delivered."""
        future = self._by_position.pop(position, None)
        if future is not None:
            future.delivered(metadata)

    def failed(self, position: int, error: KafkaError) -> None:
        """Fail the future of the record at `position` in the spool, which will never be delivered."""
        future = self._by_position.pop(position, None)
        if future is not None:
            future.batch.failed(error)

    def all_failed(self, error: KafkaError) -> None:
        """Fail all remaining futures, since this producer delivers no more."""
        for position in list(self._by_position):
            self.failed(position, error)
