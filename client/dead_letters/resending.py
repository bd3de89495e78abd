"""The record that is sent for a letter: to its topic of origin or another, without the headers of the error. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from ..worker.letters import LetterHeaders
from ..worker.retry_notes import without_note
from .found import FoundLetter
from .settled import CannotReplay

LETTER: Final = "ottla.replay.letter"
"""The header of a record that was a letter: the letter's topic, partition and offset, as `orders.dlq/0/42`."""

Partitions = Mapping[str, Collection[int]]
"""The partitions of each topic that exists."""


class Resent(NamedTuple):
    """The arguments of `Producer.send` for a letter that is sent back."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    headers: LetterHeaders


def target_of(letter: FoundLetter, to: str | None) -> str | None:
    """Return the topic that a letter goes to: `to`, or else its topic of origin; None if it tells none."""
    return letter.topic if to is None else to


def resent(letter: FoundLetter, to: str | None, partitions: Partitions) -> Resent:
    """Return the record that is sent for a letter.

    It has the letter's key, value and headers, without the headers of the error and of a retry, and a header that names
    the letter. In the topic of origin it goes to the partition of origin. In another topic, and if that partition is
    gone, the key chooses. Raises CannotReplay for a letter without a target.
    """
    record, topic = letter.record, target_of(letter, to)
    if topic is None:
        raise CannotReplay(f"{record.topic}:{record.partition}:{record.offset} tells no topic of origin")
    goes_home = topic == letter.topic and letter.partition in partitions.get(topic, ())
    return Resent(
        topic,
        record.value,
        record.key,
        partition=letter.partition if goes_home else None,
        headers=_headers(letter),
    )


def _headers(letter: FoundLetter) -> LetterHeaders:
    record = letter.record
    kept = [(name, value) for name, value in without_note(letter.headers) if name != LETTER]
    return [*kept, (LETTER, f"{record.topic}/{record.partition}/{record.offset}".encode())]
