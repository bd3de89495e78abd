"""Places of letters in a topic, as people write them: `0:17,20-25`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..records import ConsumerRecord

PLACES_MAX: Final = 100_000
"""The limit of the letters that places name."""
_DIGITS_MAX: Final = 18

Places = Mapping[int, frozenset[int]]
"""The offsets of letters by partition."""


def places_of(texts: Iterable[str]) -> Places:
    """Parse places such as `0:17,20-25` into offsets by partition.

    Raises ValueError for another text, and for more than PLACES_MAX letters.
    """
    found: dict[int, set[int]] = {}
    for text in texts:
        index, colon, offsets = text.partition(":")
        if not colon or not _is_number(index):
            raise _refusal(text)
        for part in offsets.split(","):
            first, dash, last = part.partition("-")
            if not _is_number(first) or (dash and not _is_number(last)):
                raise _refusal(text)
            low, high = int(first), int(last) if dash else int(first)
            if low > high:
                raise _refusal(text)
            if high - low >= PLACES_MAX or sum(map(len, found.values())) >= PLACES_MAX:
                raise ValueError(f"{text[:40]!r} names more than {PLACES_MAX:,} letters")
            found.setdefault(int(index), set()).update(range(low, high + 1))
    return {index: frozenset(some) for index, some in found.items()}


def is_at(record: ConsumerRecord, places: Places) -> bool:
    """Return whether a letter is at one of the places; true for all letters if there is no place."""
    return not places or record.offset in places.get(record.partition, ())


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def _refusal(text: str) -> ValueError:
    return ValueError(f"a place is PARTITION:OFFSET,... such as 0:17,20-25, not {text[:40]!r}")
