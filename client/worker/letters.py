"""Dead letters: records that a worker gave up, with headers that tell why, and a limit of their share. Pure.

Six headers are those of Kafka's share groups (KIP-1191), all in UTF-8: `__dlq.errors.topic`, `.partition`, `.offset`,
`.group`, `.delivery.count` and `.message`. The headers `ottla.error.type`, `.text` and `.attempts` have the exception.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import isfinite
from typing import Any, Final

from ..error_names import error_type
from ..records import ConsumerRecord
from .retry_notes import first_place

_KAFKAS: Final = "__dlq.errors."
_OURS: Final = "ottla.error."
TEXT_MAX: Final = 2_000
"""The limit of the characters of an exception's text in a header."""
LEAST_RESULTS: Final = 100
"""The number of results before the share of letters is judged."""
LAST_RESULTS: Final = 1_000
"""The number of the last results whose share of letters is judged."""

LetterHeaders = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A topic for dead letters, with limits beyond which the worker stops:

        DeadLetter("orders.dlq", most_ratio=0.1, most_in_a_row=100)

    The worker stops with the last error once more than `most_in_a_row` records in a row became letters, or more than
    the share `most_ratio` of the last 1,000 records. The share is judged from 100 records on. None stands for no limit.
    """

    topic: str
    most_ratio: float | None = 0.1
    most_in_a_row: int | None = 100

    def __post_init__(self) -> None:
        """Raise TypeError and ValueError for an invalid value, by its name."""
        if not isinstance(self.topic, str):
            raise TypeError(f"DeadLetter: topic is a str, not {self.topic!r}")
        if not self.topic:
            raise ValueError("DeadLetter: topic is a name that is not empty")
        ratio, row = self.most_ratio, self.most_in_a_row
        if ratio is not None:
            if not isinstance(ratio, int | float) or isinstance(ratio, bool):
                raise TypeError(f"DeadLetter: most_ratio is a number or None, not {ratio!r}")
            if not (isfinite(ratio) and 0 < ratio <= 1):
                raise ValueError(f"DeadLetter: most_ratio is above 0, and at most 1, not {ratio}")
        if row is not None:
            if not isinstance(row, int) or isinstance(row, bool):
                raise TypeError(f"DeadLetter: most_in_a_row is a whole number or None, not {row!r}")
            if row < 1:
                raise ValueError(f"DeadLetter: most_in_a_row is 1 or more, not {row}")


class LetterLimits:
    """The results of a worker's last records, and the judgement whether too many of them became letters."""

    def __init__(self, most_ratio: float | None, most_in_a_row: int | None) -> None:
        self._most_ratio = most_ratio
        self._most_in_a_row = most_in_a_row
        self._last: deque[bool] = deque(maxlen=LAST_RESULTS)
        self._letters = 0
        self._in_a_row = 0

    def succeeded(self, count: int = 1) -> None:
        """Note records that their handlers have finished."""
        self._in_a_row = 0
        if self._letters:
            for _ in range(min(count, LAST_RESULTS)):
                self._note(is_letter=False)
        else:
            self._last.extend(repeat(False, min(count, LAST_RESULTS)))

    def excess(self) -> str | None:
        """Note a record that is to become a letter. Return the limit that it exceeds, in words, else None."""
        self._in_a_row += 1
        self._note(is_letter=True)
        if self._most_in_a_row is not None and self._in_a_row > self._most_in_a_row:
            return f"more than {self._most_in_a_row} records in a row (most_in_a_row)"
        count = len(self._last)
        if (
            self._most_ratio is not None
            and count >= LEAST_RESULTS
            and self._letters > self._most_ratio * count
        ):
            return f"{self._letters} of the last {count} records, more than {self._most_ratio:g} of them (most_ratio)"
        return None

    def _note(self, *, is_letter: bool) -> None:
        if len(self._last) == LAST_RESULTS:
            self._letters -= self._last[0]
        self._last.append(is_letter)
        self._letters += is_letter


def letter_headers(
    record: ConsumerRecord, group_id: str, error: BaseException, attempts: int
) -> LetterHeaders:
    """Return the headers of a record's letter: the record's own, then those that tell why. Headers of an earlier letter
    are left out."""
    name, text = error_type(error), error_text(error)
    topic, partition, offset = first_place(record)
    told = {
        f"{_KAFKAS}topic": topic,
        f"{_KAFKAS}partition": str(partition),
        f"{_KAFKAS}offset": str(offset),
        f"{_KAFKAS}group": group_id,
        f"{_KAFKAS}delivery.count": str(attempts),
        f"{_KAFKAS}message": f"{name}: {text}" if text else name,
        f"{_OURS}type": name,
        f"{_OURS}text": text,
        f"{_OURS}attempts": str(attempts),
    }
    return own_headers(record.headers) + [(key, _bytes(value)) for key, value in told.items()]


def own_headers(headers: Sequence[tuple[str, bytes | None]]) -> LetterHeaders:
    """Return a record's headers without those that tell of a letter."""
    return [(key, value) for key, value in headers if not key.startswith((_KAFKAS, _OURS))]


def error_text(error: BaseException) -> str:
    """Return the beginning of an exception's text. An exception may fail to make its text; then its class is named."""
    try:
        text = str(error)
    except Exception as failure:
        text = f"(no text: {type(failure).__name__})"
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}... ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, as its record tells it: the record that was given up, and why.

        async with Consumer("orders.dlq", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                letter = Letter.of(record)
                print(letter.topic, letter.offset, letter.error_type, letter.value)

    Letters of Kafka's share groups (KIP-1191) have no `error_type`, and `attempts` is their delivery count.
    """

    topic: str
    """The topic of the record that was given up, also after attempts from a retry topic."""
    partition: int
    offset: int
    group_id: str
    message: str
    """The reason for readers."""
    attempts: int
    error_type: str
    error_text: str
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    """The headers that the record had before it was given up."""

    @classmethod
    def of(cls, record: ConsumerRecord) -> Letter:
        """Return the letter that a record is. Raises ValueError that names the missing or invalid header."""
        told = {key: value for key, value in record.headers if key.startswith((_KAFKAS, _OURS))}
        attempts = f"{_OURS}attempts" if f"{_OURS}attempts" in told else f"{_KAFKAS}delivery.count"
        return cls(
            topic=_text(told, f"{_KAFKAS}topic", record),
            partition=_number(told, f"{_KAFKAS}partition", record),
            offset=_number(told, f"{_KAFKAS}offset", record),
            group_id=_text(told, f"{_KAFKAS}group", record),
            message=_optional(told, f"{_KAFKAS}message"),
            attempts=_number(told, attempts, record) if attempts in told else 0,
            error_type=_optional(told, f"{_OURS}type"),
            error_text=_optional(told, f"{_OURS}text"),
            key=record.key,
            value=record.value,
            headers=tuple(own_headers(record.headers)),
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _optional(told: dict[str, bytes | None], name: str) -> str:
    return (told.get(name) or b"").decode("utf-8", "replace")


def _text(told: dict[str, bytes | None], name: str, record: ConsumerRecord) -> str:
    if told.get(name) is None:
        where = f"{record.topic}-{record.partition}, offset {record.offset}"
        raise ValueError(f"the record is no dead letter, as it has no header {name!r} ({where})")
    return _optional(told, name)


def _number(told: dict[str, bytes | None], name: str, record: ConsumerRecord) -> int:
    text = _text(told, name, record)
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        where = f"{record.topic}-{record.partition}, offset {record.offset}"
        raise ValueError(
            f"the header {name!r} of a dead letter is a whole number, not {text[:40]!r} ({where})"
        )
    return int(text)
