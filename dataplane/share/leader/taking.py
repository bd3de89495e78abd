"""The extent of one fetch from a share partition, and the records that it gets."""

from __future__ import annotations

from typing import NamedTuple

from ...log import LogSlice
from ..acquisition import AcquiredRange
from ..limits import AcquireMode


class Taken(NamedTuple):
    """Acquired records: the ranges, and the whole batches of the log that have them."""

    records: LogSlice
    acquired: tuple[AcquiredRange, ...]

    @property
    def record_count(self) -> int:
        """Number of acquired records."""
        return sum(acquired.last + 1 - acquired.first for acquired in self.acquired)


class Appetite(NamedTuple):
    """The bytes and records that a fetch may still take."""

    max_bytes: int
    max_records: int
    mode: AcquireMode
    at_least_one: bool
    """True if the first batch may exceed the bytes."""
