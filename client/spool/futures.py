"""Those who wait for spooled records. Millions of records may wait for hours: of a future that its caller has dropped
nothing is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any
from weakref import WeakValueDictionary

from ...protocol.errors import KafkaError
from ..producing.sender import Delivery, RecordMetadata


class SpooledFuture(asyncio.Future[RecordMetadata]):
    """What `send` returns. Who has a callback with it, as whoever awaits it does, keeps it until it is done."""

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """As with any future, also for a caller who drops it then."""
        if not self.done():
            _kept.add(self)
            super().add_done_callback(_kept.discard)
        super().add_done_callback(fn, context=context)


_kept: set[asyncio.Future[RecordMetadata]] = set()


class Waiting:
    """The futures of records in the spool, by position."""

    def __init__(self) -> None:
        self._by_position: WeakValueDictionary[int, Delivery] = WeakValueDictionary()

    def add(self, position: int, delivery: Delivery) -> None:
        """Somebody waits for the record there."""
        self._by_position[position] = delivery

    def delivered(self, position: int, metadata: RecordMetadata) -> None:
        """The record was delivered."""
        delivery = self._by_position.pop(position, None)
        if delivery is not None and not delivery.done():
            delivery.set_result(metadata)

    def failed(self, position: int, error: KafkaError) -> None:
        """It never will be."""
        delivery = self._by_position.pop(position, None)
        if delivery is not None and not delivery.done():
            delivery.set_exception(error)
            delivery.exception()  # a caller who never looks asked for no warning

    def all_failed(self, error: KafkaError) -> None:
        """None of the others will be by this producer."""
        for position in list(self._by_position):
            self.failed(position, error)
