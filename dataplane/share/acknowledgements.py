"""Acknowledged ranges of offsets of one request, and their validation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from .states import AcknowledgeType

ALL_TYPES = frozenset(AcknowledgeType)
_TYPES = {int(kind): kind for kind in AcknowledgeType}
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


class AcknowledgedPart(NamedTuple):
    """A range of offsets with one type and one delay."""

    first: int
    last: int
    type: AcknowledgeType
    delay_ms: int


def parts_of(ranges: Iterable[AcknowledgedRange]) -> list[AcknowledgedPart]:
    """Return checked ranges as the fewest parts, in the same order."""
    parts: list[AcknowledgedPart] = []
    first, behind, kind, delay = 0, 0, None, 0
    for begin, number, end, delay_ms in _single_types(ranges):
        if begin != behind or number != kind or delay_ms != delay:
            if kind is not None:
                parts.append(AcknowledgedPart(first, behind - 1, _TYPES[kind], delay))
            first, kind, delay = begin, number, delay_ms
        behind = end
    if kind is not None:
        parts.append(AcknowledgedPart(first, behind - 1, _TYPES[kind], delay))
    return parts


def _single_types(ranges: Iterable[AcknowledgedRange]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the first offset of neighbours with one type, the type, the offset behind them, and their delay."""
    for first, last, types, delay_ms in ranges:
        if len(types) == 1:
            yield first, types[0], last + 1, delay_ms
            continue
        for number, neighbours in groupby(types):
            behind = first + sum(1 for _ in neighbours)
            yield first, number, behind, delay_ms
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
        for number in types if len(types) == 1 else set(types):
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
