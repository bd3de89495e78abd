"""Acknowledged ranges of offsets of one request, and their validation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from .states import AcknowledgeType

ALL_TYPES = frozenset(AcknowledgeType)
DELAY_MAX_MS = 7 * 24 * 3_600_000
"""Longest delay of released records."""
TRANSACTIONAL_TYPES = ALL_TYPES - {AcknowledgeType.RENEW}
"""Types of acknowledgements in a transaction. A transaction holds the record without a lock, so nothing is renewed."""


class AcknowledgedRange(NamedTuple):
    """A range of offsets with one type for all offsets, or with a type for each offset."""

    first: int
    last: int
    types: Sequence[int]
    delay_ms: int = 0
    """Time for which nobody gets the released records."""

    def by_type(self) -> Iterator[tuple[int, int, AcknowledgeType]]:
        """Yield first and last offset of neighbours with one type, and their type."""
        if len(self.types) == 1:
            yield self.first, self.last, AcknowledgeType(self.types[0])
            return
        first = self.first
        for number, neighbours in groupby(self.types):
            behind = first + sum(1 for _ in neighbours)
            yield first, behind - 1, AcknowledgeType(number)
            first = behind


def check_ranges(
    ranges: Sequence[AcknowledgedRange],
    allowed: Collection[int] = ALL_TYPES,
    delay_max_ms: int = DELAY_MAX_MS,
) -> None:
    """Check the ranges of one partition in a request, whatever the states of their records are.

    Raises KafkaError INVALID_REQUEST if a range is crossed, ranges overlap or are not in order, a type is missing or
    not allowed, or a delay is too long or not for released records.
    """
    behind = 0
    for first, last, types, delay_ms in ranges:
        if first > last:
            raise _invalid(f"range {first}-{last} ends before it begins")
        if first < behind:
            raise _invalid(
                f"range {first}-{last} begins before offset {behind}, where it has to begin at the earliest"
            )
        if len(types) not in (1, last + 1 - first):
            raise _invalid(
                f"range {first}-{last} has {len(types)} types; allowed are 1 and {last + 1 - first}"
            )
        for number in set(types):
            if number not in allowed:
                raise _invalid(
                    f"range {first}-{last} has type {number}; allowed are {', '.join(map(str, sorted(allowed)))}"
                )
        if delay_ms:
            _check_delay(first, last, types, delay_ms, delay_max_ms)
        behind = last + 1


def _check_delay(first: int, last: int, types: Sequence[int], delay_ms: int, delay_max_ms: int) -> None:
    if not 0 < delay_ms <= delay_max_ms:
        raise _invalid(f"range {first}-{last} has a delay of {delay_ms} ms; allowed are 0 to {delay_max_ms}")
    if set(types) != {AcknowledgeType.RELEASE}:
        raise _invalid(f"range {first}-{last} has a delay; allowed is type 2 (RELEASE) then")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Acknowledgement: {reason}.")
