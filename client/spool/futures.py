"""Those who wait for spooled records. Millions of records may wait for hours: of a future that its caller has dropped
nothing is kept.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from weakref import WeakValueDictionary

from ...protocol.errors import KafkaError
from ..producing.deliveries import BatchResult, RecordDelivery
from ..producing.record_metadata import RecordMetadata

ANY_PARTITION = -1
"""Until it is delivered."""


class SpooledFuture(RecordDelivery):
    """What `send` returns: the delivery of a record that is settled alone. Who has a callback with it, as whoever
    awaits it does, keeps it until it is done.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, topic: str, partition: int | None, timestamp_ms: int) -> None:
        where = ANY_PARTITION if partition is None else partition
        super().__init__(BatchResult(asyncio.get_running_loop(), topic, where), 0, timestamp_ms)

    def delivered(self, metadata: RecordMetadata) -> None:
        """The record stands there."""
        self.batch.partition = metadata.partition
        self.batch.acknowledged(metadata.offset, metadata.timestamp_ms)

    def add_done_callback(
        self, fn: Callable[[RecordDelivery], object], *, context: contextvars.Context | None = None
    ) -> None:
        """As with any delivery, also for a caller who drops it then."""
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
        """Somebody waits for the record there."""
        self._by_position[position] = future

    def delivered(self, position: int, metadata: RecordMetadata) -> None:
        """The record was delivered."""
        future = self._by_position.pop(position, None)
        if future is not None:
            future.delivered(metadata)

    def failed(self, position: int, error: KafkaError) -> None:
        """It never will be."""
        future = self._by_position.pop(position, None)
        if future is not None:
            future.batch.failed(error)

    def all_failed(self, error: KafkaError) -> None:
        """None of the others will be by this producer."""
        for position in list(self._by_position):
            self.failed(position, error)
