"""The page of dead letters: a line for each letter, the counts of the errors, and the search form."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ....client.dead_letters.found import ERROR_TYPE, ErrorCounts, FoundLetter, names_letters
from ....client.records import ConsumerRecord
from ...area import Rendered, Visit
from ...bounds import ROWS_MAX
from ...commands import command, option
from ...formats import link
from ..messages.filters import FILTERS
from ..messages.page import YEAR_9999_MS, MessageRow, chosen, decoded, message_row, search
from ..messages.question import OPTIONS, WHERE, Question, question_of
from ..messages.reading import MessagesRead

TEXT_CHARACTERS_MAX: Final = 160
"""The most characters of an error's text in the line of a letter."""
REASON_CHARACTERS_MAX: Final = 16 * 1024
"""The most characters of an error's text that the page shows."""


@dataclass(frozen=True, slots=True)
class LetterRow:
    """A letter as a table row: the reasons that its headers tell, and its record."""

    record: MessageRow
    origin: str
    origin_address: str
    """The URL of the page with the record that was given up; empty if its place is not told."""
    group_id: str
    attempts: int | None
    error_type: str
    line: str
    """The beginning of the error's text, in one line."""
    reason: str
    is_reason_cut: bool
    replay_address: str


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """The number of letters with one error, and the times of the first and the last of them, in seconds since 1970.

    `address` is the URL of the page with these letters alone; empty for letters that tell no error.
    """

    error_type: str
    letters: int
    oldest_s: float | None
    newest_s: float | None
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersPage:
    """The data that the template of the page "Letters" shows."""

    topics: Sequence[str]
    """Topics with a usual name for letters."""
    question: Question | None
    where: Sequence[str] = WHERE
    rows: Sequence[LetterRow] = ()
    errors: Sequence[ErrorRow] = ()
    counted: int = 0
    """The number of letters that `errors` counts."""
    scanned: int = 0
    trouble: str = ""
    command: str = ""
    summary_command: str = ""
    replay_address: str = ""


def letter_row(letter: FoundLetter, record: MessageRow) -> LetterRow:
    """Return the table row of a letter, whose record is a row already."""
    has_place = None not in (letter.topic, letter.partition, letter.offset)
    found = letter.record
    line = " ".join(letter.reason[: 4 * TEXT_CHARACTERS_MAX].split())
    return LetterRow(
        record,
        letter.origin,
        link(
            "/messages",
            topic=letter.topic,
            partition=letter.partition,
            **{"from": "offset"},
            at=letter.offset,
            count=1,
        )
        if has_place
        else "",
        letter.group_id or "",
        letter.attempts,
        letter.error_type or "",
        line if len(line) <= TEXT_CHARACTERS_MAX else f"{line[:TEXT_CHARACTERS_MAX]}\u2026",
        letter.reason[:REASON_CHARACTERS_MAX],
        len(letter.reason) > REASON_CHARACTERS_MAX,
        link("/letters/replay", topic=found.topic, at=f"{found.partition}:{found.offset}"),
    )


def error_rows(records: Sequence[ConsumerRecord], question: Question) -> list[ErrorRow]:
    """Return a row for each type of error among letters, the most frequent first."""
    counts = ErrorCounts()
    counts.add(map(FoundLetter.of, records))
    return [
        ErrorRow(
            count.error_type or "",
            count.letters,
            _seconds(count.oldest_ms),
            _seconds(count.newest_ms),
            "" if count.error_type is None else _only(question, count.error_type).address("/letters"),
        )
        for count in counts.most_first()
    ]


def _only(question: Question, error_type: str) -> Question:
    """Return the search for letters with one type of error."""
    exactly = "".join(
        letter if letter.isalnum() or letter == "_" else f"\\x{{{ord(letter):x}}}" for letter in error_type
    )
    return replace(question, texts={**question.texts, "header": f"{ERROR_TYPE} = ^{exactly}$"})


def _seconds(milliseconds: int) -> float | None:
    return milliseconds / 1000 if 0 <= milliseconds <= YEAR_9999_MS else None


def filter_words(question: Question) -> list[str]:
    """Return the options of the command line that choose the letters of a search."""
    words = [] if question.partition is None else ["-p", str(question.partition)]
    for name, flag in OPTIONS.items():
        if text := question.texts.get(name):
            words += option(flag, text)
    return words


def replay_address(question: Question) -> str:
    """Return the URL of the form that sends the letters of a search back."""
    filters = {name: question.texts.get(name) or None for name in FILTERS}
    return link("/letters/replay", topic=question.topic, partition=question.partition, **filters)


async def show(visit: Visit) -> Rendered:
    """Return the page of the letters that the query asks for."""
    snapshot = await visit.sampler.snapshot()
    topics = [topic.name for topic in snapshot.topics if names_letters(topic.name)]
    if not visit.text("topic"):
        return Rendered("Letters", "letters.html", LettersPage(topics=topics, question=None))
    question = question_of(visit)
    if not visit.text("count"):
        question = replace(question, count=ROWS_MAX)
    question = replace(question, is_committed_only=True)
    reading, _ = await search(visit, question)
    rows = await _rows(visit, question, reading)
    words = filter_words(question)
    model = LettersPage(
        topics=topics,
        question=question,
        rows=rows,
        errors=error_rows(reading.records, question),
        counted=len(reading.records),
        scanned=reading.scanned,
        trouble=reading.trouble,
        command=command("dlq", "ls", names=[question.topic], options=words),
        summary_command=command("dlq", "ls", names=[question.topic], options=[*words, "--summary"]),
        replay_address=replay_address(question),
    )
    return Rendered(f"Letters of {question.topic}", "letters.html", model)


async def _rows(visit: Visit, question: Question, reading: MessagesRead) -> list[LetterRow]:
    records = chosen(reading.records, question)
    keys, values = await decoded(visit, question, records)
    rows = []
    for record, key, value in zip(records, keys, values, strict=True):
        letter = FoundLetter.of(record)
        own = record._replace(headers=tuple(letter.headers))
        rows.append(letter_row(letter, message_row(own, question.shows_as, "", key=key, value=value)))
        await asyncio.sleep(0)  # Let other tasks run between two letters.
    return rows
