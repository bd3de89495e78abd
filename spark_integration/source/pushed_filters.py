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
    EqualTo: lambda value, other: value == other,
    GreaterThan: lambda value, other: value > other,
    GreaterThanOrEqual: lambda value, other: value >= other,
    LessThan: lambda value, other: value < other,
    LessThanOrEqual: lambda value, other: value <= other,
    In: lambda value, others: value in others,
    StringStartsWith: lambda value, start: value.startswith(start),
    StringEndsWith: lambda value, end: value.endswith(end),
    StringContains: lambda value, part: part in value,
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
        return [filter_ for filter_ in filters if not self._takes(filter_)]

    def wants(self, topic: str, partition: int) -> bool:
        """Return whether the filters may accept any record of a partition."""
        values = {"topic": topic, "partition": partition}
        return all(_holds(filter_, values) for filter_ in self.of_partitions)

    def narrowed(self, range_: Range, first_in_time: int | None) -> Range | None:
        """Return the wanted part of a range; None if it is empty.

        `first_in_time`: the offset of the first record that is not older than `earliest_ms`.
        """
        if not self.wants(*range_.partition):
            return None
        start = max(range_.start, self.first_offset, first_in_time or 0)
        end = range_.end if self.last_offset is None else min(range_.end, self.last_offset + 1)
        return range_._replace(start=start, end=end) if start < end else None

    def _takes(self, filter_: Filter) -> bool:
        inner = filter_.child if isinstance(filter_, Not) else filter_
        column = getattr(inner, "attribute", None)
        if column in (("topic",), ("partition",)) and (type(inner) in _COMPARISONS):
            self.of_partitions.append(filter_)
            return True
        if isinstance(filter_, IsNotNull):
            return len(filter_.attribute) == 1 and filter_.attribute[0] in _NEVER_NULL
        if column == ("offset",):
            return self._takes_offsets(filter_)
        if column == ("timestamp",) and isinstance(filter_, GreaterThan | GreaterThanOrEqual | EqualTo):
            self._note_time(filter_.value)
        return False

    def _takes_offsets(self, filter_: Filter) -> bool:
        if isinstance(filter_, EqualTo):
            self._between(filter_.value, filter_.value)
        elif isinstance(filter_, GreaterThanOrEqual):
            self._between(filter_.value, None)
        elif isinstance(filter_, GreaterThan):
            self._between(filter_.value + 1, None)
        elif isinstance(filter_, LessThanOrEqual):
            self._between(0, filter_.value)
        elif isinstance(filter_, LessThan):
            self._between(0, filter_.value - 1)
        else:
            if isinstance(filter_, In) and filter_.value and None not in filter_.value:
                self._between(min(filter_.value), max(filter_.value))
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


def _holds(filter_: Filter, values: dict[str, Any]) -> bool:
    if isinstance(filter_, Not):
        return not _holds(filter_.child, values)
    held = _COMPARISONS[type(filter_)]
    return held(values[filter_.attribute[0]], filter_.value)  # type: ignore[attr-defined]
