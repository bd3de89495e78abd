"""Loops over a consumer with a span for each record, which lasts until the loop asks for the next record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, Self

from ..records import ConsumerRecord


class CurrentSpan(Protocol):
    """The span of the record that a loop handles now."""

    def begin(self, record: ConsumerRecord) -> None:
        """Begin the span of a record."""

    def end(self, error: BaseException | None = None) -> None:
        """End the span of the last record, if there is one."""


class TracedRecords:
    """The records of a consumer for `async for`, each handled in its span."""

    def __init__(self, span: CurrentSpan, read: Callable[[], Awaitable[ConsumerRecord]]) -> None:
        """`read` returns the next record, and raises StopAsyncIteration after the last one."""
        self._span = span
        self._read = read

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """End the span of the last record, and return the next record in a span of its own."""
        self._span.end()
        record = await self._read()
        self._span.begin(record)
        return record

    def end(self, error: BaseException | None = None) -> None:
        """End the span of the last record. `error` is the exception that ended its handling."""
        self._span.end(error)


class TracedLoop:
    """The records of a consumer for a plain `for`, each handled in its span."""

    def __init__(self, span: CurrentSpan, read: Callable[[], ConsumerRecord]) -> None:
        """`read` returns the next record, and raises StopIteration after the last one."""
        self._span = span
        self._read = read

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """End the span of the last record, and return the next record in a span of its own."""
        self._span.end()
        record = self._read()
        self._span.begin(record)
        return record

    def end(self, error: BaseException | None = None) -> None:
        """End the span of the last record. `error` is the exception that ended its handling."""
        self._span.end(error)
