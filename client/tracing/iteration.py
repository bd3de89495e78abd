"""Loops over a consumer with a span for each record, which lasts until the loop asks for the next record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from ..records import ConsumerRecord

if TYPE_CHECKING:
    from .spans import Handling


class TracedRecords:
    """The records of a consumer for `async for`, each handled in its span."""

    def __init__(self, handling: Handling, read: Callable[[], Awaitable[ConsumerRecord]]) -> None:
        """`read` returns the next record, and raises StopAsyncIteration after the last one."""
        self._in_hand = handling.in_hand()
        self._read = read

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """End the span of the last record, and return the next record in a span of its own."""
        self._in_hand.end()
        record = await self._read()
        self._in_hand.begin(record)
        return record

    def end(self, error: BaseException | None = None) -> None:
        """End the span of the last record. `error` is the exception that ended its handling."""
        self._in_hand.end(error)


class TracedLoop:
    """The records of a consumer for a plain `for`, each handled in its span."""

    def __init__(self, handling: Handling, read: Callable[[], ConsumerRecord]) -> None:
        """`read` returns the next record, and raises StopIteration after the last one."""
        self._in_hand = handling.in_hand()
        self._read = read

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """End the span of the last record, and return the next record in a span of its own."""
        self._in_hand.end()
        record = self._read()
        self._in_hand.begin(record)
        return record

    def end(self, error: BaseException | None = None) -> None:
        """End the span of the last record. `error` is the exception that ended its handling."""
        self._in_hand.end(error)
