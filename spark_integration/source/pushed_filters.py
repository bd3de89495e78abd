"""A query's filters on topic, partition, offset and time: records that they exclude need not be fetched. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from ...protocol.iso_times import EPOCH
from .slices import Range

_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
    In: lambda one, others: one in others,
    StringStartsWith: lambda one, start: one.startswith(start),
    StringEndsWith: lambda one, end: one.endswith(end),
    StringContains: lambda one, part: part in one,
}


@dataclass(slots=True)
class Pushed:
    """The filters of a query that the source applies, wholly or in part."""

    of_partitions: list[Filter] = field(default_factory=list)
    """Filters on topic and partition number, which select whole partitions."""
    first_offset: int = 0
    last_offset: int | None = None
    earliest_ms: int | None = None
    """Earliest wanted time in ms: records before the first such record are not needed."""

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Accept filters, and return those that Spark still has to apply."""
        return [one for one in filters if not self._takes(one)]

    def wants(self, topic: str, partition: int) -> bool:
        """Return whether the filters may accept any record of a partition."""
        values = {"topic": topic, "partition": partition}
        return all(_holds(one, values) for one in self.of_partitions)

    def narrowed(self, range_: Range, first_in_time: int | None) -> Range | None:
        """Return the wanted part of a range; None if it is empty.

        `first_in_time`: the offset of the first record that is not older than `earliest_ms`.
        """
        if not self.wants(*range_.partition):
            return None
        start = max(range_.start, self.first_offset, first_in_time or 0)
        end = range_.end if self.last_offset is None else min(range_.end, self.last_offset + 1)
        return range_._replace(start=start, end=end) if start < end else None

    def _takes(self, one: Filter) -> bool:
        inner = one.child if isinstance(one, Not) else one
        column = getattr(inner, "attribute", None)
        if column in (("topic",), ("partition",)) and (type(inner) in _COMPARISONS):
            self.of_partitions.append(one)
            return True
        if isinstance(one, IsNotNull):
            return len(one.attribute) == 1 and one.attribute[0] in _NEVER_NULL
        if column == ("offset",):
            return self._takes_offsets(one)
        if column == ("timestamp",) and isinstance(one, GreaterThan | GreaterThanOrEqual | EqualTo):
            self._note_time(one.value)
        return False

    def _takes_offsets(self, one: Filter) -> bool:
        if isinstance(one, EqualTo):
            self._between(one.value, one.value)
        elif isinstance(one, GreaterThanOrEqual):
            self._between(one.value, None)
        elif isinstance(one, GreaterThan):
            self._between(one.value + 1, None)
        elif isinstance(one, LessThanOrEqual):
            self._between(0, one.value)
        elif isinstance(one, LessThan):
            self._between(0, one.value - 1)
        else:
            if isinstance(one, In) and one.value and None not in one.value:
                self._between(min(one.value), max(one.value))
            return False
        return True

    def _between(self, first: int, last: int | None) -> None:
        self.first_offset = max(self.first_offset, first)
        if last is not None:
            self.last_offset = last if self.last_offset is None else min(self.last_offset, last)

    def _note_time(self, value: object) -> None:
        """Note a time with a zone. A time without zone is left to Spark, which knows the session's zone."""
        if isinstance(value, datetime) and value.tzinfo is not None:
            ms = max(0, (value - EPOCH) // timedelta(milliseconds=1))
            self.earliest_ms = ms if self.earliest_ms is None else max(self.earliest_ms, ms)


def _holds(one: Filter, values: dict[str, Any]) -> bool:
    if isinstance(one, Not):
        return not _holds(one.child, values)
    held = _COMPARISONS[type(one)]
    return held(values[one.attribute[0]], one.value)  # type: ignore[attr-defined]
