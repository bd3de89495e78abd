"""Letters as they are found in a topic: of any program, told as far as their headers do. Pure.

Six headers are those of Kafka's share groups (KIP-1191), and three are a worker's own. A letter of another program may
have only some of them, or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ..records import ConsumerRecord
from ..worker.letters import LetterHeaders, own_headers

TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERIES: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"
ERROR_TYPE: Final = "ottla.error.type"
ERROR_TEXT: Final = "ottla.error.text"
ATTEMPTS: Final = "ottla.error.attempts"
_NAMES: Final = re.compile(r"(?:^|[._-])(?:dlq|dlt|dead[._-]?letters?)(?:[._-]|$)", re.IGNORECASE)
_DIGITS_MAX: Final = 19
_INT_MAX: Final = (1 << 63) - 1


def names_letters(topic: str) -> bool:
    """Return whether a topic has a usual name for dead letters, such as `orders.dlq` or `orders-dead-letters`."""
    return _NAMES.search(topic) is not None


@dataclass(frozen=True, slots=True)
class FoundLetter:
    """A record of a topic for dead letters, and the reasons in its headers; None for anything that they do not tell."""

    record: ConsumerRecord
    topic: str | None
    """The topic of the record that was given up."""
    partition: int | None
    offset: int | None
    group_id: str | None
    attempts: int | None
    error_type: str | None
    error_text: str | None
    message: str | None
    """The reason for readers, by KIP-1191."""
    headers: LetterHeaders
    """The headers that the record had before it was given up."""

    @classmethod
    def of(cls, record: ConsumerRecord) -> FoundLetter:
        """Return the letter that a record is. A header that is missing or invalid tells nothing."""
        told = {key: value for key, value in record.headers if value is not None}
        attempts = _number(told.get(ATTEMPTS))
        return cls(
            record,
            topic=_text(told.get(TOPIC)) or None,
            partition=_number(told.get(PARTITION)),
            offset=_number(told.get(OFFSET)),
            group_id=_text(told.get(GROUP)),
            attempts=_number(told.get(DELIVERIES)) if attempts is None else attempts,
            error_type=_text(told.get(ERROR_TYPE)),
            error_text=_text(told.get(ERROR_TEXT)),
            message=_text(told.get(MESSAGE)),
            headers=own_headers(record.headers),
        )

    @property
    def tells(self) -> bool:
        """True if the record has a header of a letter."""
        return len(self.headers) < len(self.record.headers)

    @property
    def origin(self) -> str:
        """The place of the record that was given up, such as `orders:0:42`; parts that are not told are `?`."""
        if self.topic is None:
            return ""
        return ":".join(
            "?" if part is None else str(part) for part in (self.topic, self.partition, self.offset)
        )

    @property
    def reason(self) -> str:
        """The text of the error, or the reason by KIP-1191; empty if neither is told."""
        return self.error_text or self.message or ""


@dataclass(slots=True)
class ErrorCount:
    """The number of letters with one error, and the times of the first and the last of them, in ms since 1970."""

    error_type: str | None
    letters: int = 0
    oldest_ms: int = -1
    newest_ms: int = -1

    def add(self, timestamp_ms: int) -> None:
        """Count a letter of this time; -1 for none."""
        self.letters += 1
        if timestamp_ms < 0:
            return
        self.oldest_ms = timestamp_ms if self.oldest_ms < 0 else min(self.oldest_ms, timestamp_ms)
        self.newest_ms = max(self.newest_ms, timestamp_ms)


@dataclass(slots=True)
class ErrorCounts:
    """The numbers of letters by the type of the error."""

    by_type: dict[str | None, ErrorCount] = field(default_factory=dict)

    def add(self, letters: Iterable[FoundLetter]) -> None:
        """Count letters."""
        for letter in letters:
            count = self.by_type.setdefault(letter.error_type, ErrorCount(letter.error_type))
            count.add(letter.record.timestamp_ms)

    def most_first(self) -> list[ErrorCount]:
        """Return the counts, the greatest first; errors with equal counts by name."""
        return sorted(self.by_type.values(), key=lambda count: (-count.letters, count.error_type or ""))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None) -> int | None:
    if value is None or not value.isdigit() or len(value) > _DIGITS_MAX:
        return None
    number = int(value)
    return number if number <= _INT_MAX else None
