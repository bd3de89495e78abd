"""Dead letters of share groups (KIP-1191): the records with which a group gives up a topic's records. Pure.

A letter has six headers in UTF-8: `__dlq.errors.topic`, `.partition`, `.offset`, `.group`, `.delivery.count` and
`.message`. If the group's setting asks for it, the letter also has the key, the value and the headers of its record. A
letter that would be too large for its topic has the six headers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ....protocol.records.record import NewRecord, Record, encode_batch
from ....protocol.records.record_batch import HEADER_SIZE
from ..states import DeathReason
from ..transitions import DeadRecords
from .dependencies import ShareKey

HEADER_PREFIX: Final = "__dlq.errors."
MESSAGES: Final[Mapping[DeathReason, str]] = {
    DeathReason.REJECTED: "Offset rejected by client.",
    DeathReason.DELIVERY_LIMIT: "Offset delivery count exceeded the threshold.",
}
"""Texts of the header `.message`, as in Kafka 4.4."""
LETTERS_MAX: Final = 500
"""Maximum number of letters in one transaction."""
_RECORD_OVERHEAD: Final = 40
_FIELD_OVERHEAD: Final = 10


class SourceRecords(NamedTuple):
    """The records of a partition from a first offset on, as far as they were read."""

    records: Mapping[int, Record | None]
    """Records by offset. None stands for a record that cannot be decoded."""
    behind: int
    """First offset that was not read. Offsets before it that `records` lacks are gaps in the log."""


class LetterBatch(NamedTuple):
    """Letters of one transaction, and the ranges of offsets that it finishes. Gaps in the log need no letters."""

    letters: list[NewRecord]
    spans: list[tuple[int, int]]


class LetterForm(NamedTuple):
    """The values that all letters of a share partition have in common."""

    topic: str
    """Name of the topic of the records."""
    key: ShareKey
    copies: bool
    """True if a letter has the key, the value and the headers of its record."""
    bytes_max: int
    """Maximum size of a batch in the topic for letters."""
    now_ms: int

    def letter(self, record: Record | None, offset: int, dead: DeadRecords) -> NewRecord:
        """Return the letter of a record."""
        told = {
            "topic": self.topic,
            "partition": str(self.key.partition),
            "offset": str(offset),
            "group": self.key.group_id,
            "delivery.count": str(dead.delivery_count),
            "message": MESSAGES[dead.reason],
        }
        own: list[tuple[str, bytes | None]] = [
            (HEADER_PREFIX + name, text.encode()) for name, text in told.items()
        ]
        if record is None or not self.copies:
            return None, None, self.now_ms, own
        headers = [header for header in record.headers if not header[0].startswith(HEADER_PREFIX)]
        whole = record.key, record.value, self.now_ms, headers + own
        return whole if self._fits(whole) else (None, None, self.now_ms, own)

    def _fits(self, letter: NewRecord) -> bool:
        return (
            HEADER_SIZE + size_of(letter) <= self.bytes_max or len(encode_batch([letter])) <= self.bytes_max
        )

    def batch(self, dead: Iterable[DeadRecords], source: SourceRecords) -> LetterBatch:
        """Return the letters of the first dead records, in the order of offsets, as many as one batch takes."""
        letters: list[NewRecord] = []
        spans: list[tuple[int, int]] = []
        size = HEADER_SIZE
        for records in dead:
            for offset in range(records.first, min(records.last + 1, source.behind)):
                if offset in source.records:
                    letter = self.letter(source.records[offset], offset, records)
                    size += size_of(letter)
                    if letters and (size > self.bytes_max or len(letters) >= LETTERS_MAX):
                        return LetterBatch(letters, spans)
                    letters.append(letter)
                _extend(spans, offset)
        return LetterBatch(letters, spans)


def size_of(letter: NewRecord) -> int:
    """Return an upper bound of a letter's size in a batch."""
    key, value, headers = letter[0], letter[1], letter[3] if len(letter) == 4 else ()
    size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    return size + sum(_FIELD_OVERHEAD + len(name.encode()) + len(content or b"") for name, content in headers)


def _extend(spans: list[tuple[int, int]], offset: int) -> None:
    if spans and spans[-1][1] + 1 == offset:
        spans[-1] = (spans[-1][0], offset)
    else:
        spans.append((offset, offset))


def encoded(letters: Sequence[NewRecord], producer_id: int, producer_epoch: int) -> bytes:
    """Return letters as the first batch of a producer's epoch, in a transaction."""
    return encode_batch(
        letters,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        transactional=True,
    )
