"""The page of messages: the search form, the records found, and the link to further records."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ....client.admin.records import EARLIEST, LATEST, Found
from ....client.connections.metadata import TopicInfo
from ....client.consuming.outcomes import ABORTED, OPEN, TransactionOutcome
from ....client.dead_letters.found import FoundLetter, names_letters
from ....client.records import ConsumerRecord, TopicPartition
from ....protocol.errors import KafkaError
from ...area import BadQuestion, Download, NotThere, Paged, Rendered, Visit
from ...formats import link
from ...live.counters import Rates, TopicTraffic
from ...schemas.decoding import Decoded
from .payloads import DECODED_AS, FORMATS, Payload, payload
from .question import NEWEST, OFFSET, TIME, WHERE, Question, begin_at, question_of
from .reading import MessagesRead, outcomes_of, read

YEAR_9999_MS: Final = 253_402_300_799_000
"""The last time that calendars have; producers may send any time."""
HEADERS_MAX: Final = 100
"""The most headers of a record that are shown: a megabyte has a hundred thousand headers."""
HEADER_CHARACTERS_MAX: Final = 64 * 1024
"""The most characters that the shown headers of a record have."""
DECODING_S: Final = 4.0
"""Seconds for decoding all values of a page."""


@dataclass(frozen=True, slots=True)
class HeaderRow:
    """A header of a record as the table shows it."""

    name: str
    value: Payload


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A record as a table row.

    `mark` is the outcome of its transaction, empty without one. `written_s` is its timestamp in seconds since 1970,
    None for a time beyond the calendar; `written_ms` is the stored timestamp, -1 for none. `whole_key` and
    `whole_value` are links to the full bytes.
    """

    partition: int
    offset: int
    written_s: float | None
    key: Payload
    value: Payload
    headers: Sequence[HeaderRow]
    mark: str
    whole_key: str
    whole_value: str
    hidden_headers: int = 0
    written_ms: int = -1

    @property
    def name(self) -> str:
        """An HTML id of the row, which stays while other records arrive."""
        return f"record-{self.partition}-{self.offset}"

    @property
    def header_count(self) -> int:
        """The number of the record's headers, including those that are not shown."""
        return len(self.headers) + self.hidden_headers


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """A topic in the table from which users choose one; `records_in` is a number per second, None if unknown."""

    name: str
    partitions: int
    records_in: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesPage:
    """The data that the template of the page "Messages" shows."""

    topics: Sequence[str]
    question: Question | None
    where: Sequence[str]
    formats: Sequence[str]
    rows: Sequence[MessageRow] = ()
    scanned: int = 0
    trouble: str = ""
    undecoded: int = 0
    first_undecoded: str = ""
    further: str = ""
    command: str = ""
    is_command_wider: bool = False
    """True if the command reads more records, since the command line decodes no values."""
    is_live: bool = False
    has_letters: bool = False
    """True if a record has the headers of a dead letter, or the topic a usual name for letters."""
    choices: Paged[TopicChoice] | None = None
    """The topics to choose from; None if the query names a topic."""

    @property
    def has_outcomes(self) -> bool:
        """True if the outcome of any record's transaction is known."""
        return any(row.mark for row in self.rows)


def message_row(
    record: ConsumerRecord,
    shows_as: str,
    mark: str,
    *,
    key: Decoded | None = None,
    value: Decoded | None = None,
) -> MessageRow:
    """Return the table row of a record.

    `key` and `value` are its parts decoded by their schemas, None if they are not decoded; `mark` is the outcome of its
    transaction.
    """
    headers = _header_rows(record, shows_as)
    where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    return MessageRow(
        record.partition,
        record.offset,
        record.timestamp_ms / 1000 if 0 <= record.timestamp_ms <= YEAR_9999_MS else None,
        payload(record.key, shows_as, key),
        payload(record.value, shows_as, value),
        headers,
        mark,
        link("/messages/whole", **where, part="key"),
        link("/messages/whole", **where, part="value"),
        len(record.headers) - len(headers),
        record.timestamp_ms,
    )


def _header_rows(record: ConsumerRecord, shows_as: str) -> list[HeaderRow]:
    """Return the first headers of a record, up to HEADERS_MAX headers and HEADER_CHARACTERS_MAX characters."""
    rows: list[HeaderRow] = []
    left = HEADER_CHARACTERS_MAX
    for name, value in record.headers[:HEADERS_MAX]:
        row = HeaderRow(name, payload(value, shows_as))
        left -= len(name) + len(row.value.text or "")
        if left < 0:
            break
        rows.append(row)
    return rows


def mark_of(record: ConsumerRecord, outcomes: Sequence[TransactionOutcome]) -> str:
    """Return the outcome of a record's transaction as text, such as `aborted` or `commit 17`.

    `outcomes` are those of its partition. Empty if the record is in no transaction, or the outcome is unknown.
    """
    place = bisect_right(outcomes, record.offset, key=lambda outcome: outcome.first_offset) - 1
    if place < 0 or record.offset >= outcomes[place].next_offset:
        return ""
    found = outcomes[place]
    if found.decision == OPEN:
        return "not decided"
    if found.decision == ABORTED:
        return ABORTED
    return "" if found.commit_index < 0 else f"commit {found.commit_index:,}"


def chosen(records: Sequence[ConsumerRecord], question: Question) -> list[ConsumerRecord]:
    """Return the found records that the page shows, in order of time; the newest first if the search asks for the
    newest."""
    ordered = sorted(records, key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    if question.where == NEWEST:
        return ordered[: -question.count - 1 : -1]
    return ordered[: question.count]


async def show(visit: Visit) -> Rendered:
    """Return the page of the records that the query asks for."""
    return await _shown(visit, is_live=False)


async def show_live(visit: Visit) -> Rendered:
    """Return the page of a topic's newest records, which is refreshed while it is open."""
    return await _shown(visit, is_live=True)


async def _shown(visit: Visit, *, is_live: bool) -> Rendered:
    snapshot = await visit.sampler.snapshot()
    topics = [topic for topic in snapshot.topics if not topic.is_internal]
    names = [topic.name for topic in topics]
    if not visit.text("topic"):
        choices = visit.paged([_choice(topic, visit.sampler.rates) for topic in topics])
        model = MessagesPage(topics=names, question=None, where=WHERE, formats=FORMATS, choices=choices)
        return Rendered("Messages", "messages.html", model)
    question = question_of(visit)
    if is_live:
        question = replace(question, where=NEWEST)
    reading, upper = await search(visit, question)
    records = chosen(reading.records, question)
    outcomes, (keys, values) = await asyncio.gather(
        outcomes_of(visit.connection, records), decoded(visit, question, records)
    )
    rows = []
    for record, key, value in zip(records, keys, values, strict=True):
        mark = mark_of(record, outcomes.get(TopicPartition(record.topic, record.partition), ()))
        rows.append(message_row(record, question.shows_as, mark, key=key, value=value))
        await asyncio.sleep(0)  # Let other tasks run between two records.
    model = MessagesPage(
        topics=names,
        question=question,
        where=WHERE,
        formats=FORMATS,
        rows=rows,
        scanned=reading.scanned,
        trouble=reading.trouble,
        undecoded=reading.undecoded,
        first_undecoded=reading.first_undecoded,
        further=further(question, reading, upper),
        command=question.command(decodes_values=visit.schemas is not None),
        is_command_wider=visit.schemas is not None and question.looks_into_values,
        is_live=is_live,
        has_letters=names_letters(question.topic) or any(FoundLetter.of(record).tells for record in records),
    )
    return Rendered(f"Messages of {question.topic}", "messages.html", model)


async def search(visit: Visit, question: Question) -> tuple[MessagesRead, Mapping[TopicPartition, int]]:
    """Return the records that a search has read, and the ends of the partitions.

    Raises NotThere, BadQuestion and KafkaError.
    """
    places = await partitions_of(visit, question)
    starts, ends, stable = await _bounds(visit, places)
    upper = stable if question.is_committed_only else ends
    by_time = await _by_time(visit, question, places)
    reading = await read(
        visit.connection,
        begin_at(question, starts, upper, by_time),
        upper,
        question.tests,
        count=None if question.where == NEWEST else question.count,
        is_committed_only=question.is_committed_only,
        decode=visit.schemas.decoded if visit.schemas is not None and question.looks_into_values else None,
    )
    return reading, upper


def _choice(topic: TopicInfo, rates: Rates) -> TopicChoice:
    return TopicChoice(topic.name, len(topic.partitions), rates.of_topic(topic.name, TopicTraffic.RECORDS_IN))


def further(question: Question, reading: MessagesRead, ends: Mapping[TopicPartition, int]) -> str:
    """Return the URL of the page with the records that follow.

    Empty for several partitions, which do not continue at one offset.
    """
    if question.where == NEWEST or question.partition is None:
        return ""
    ((partition, offset),) = reading.next.items() or (((None, 0)),)
    if partition is None or offset >= ends[partition]:
        return ""
    return replace(question, where=OFFSET, texts={**question.texts, "at": str(offset)}).address()


async def partitions_of(visit: Visit, question: Question) -> list[TopicPartition]:
    """Return the partitions that a search for records reads.

    The topic comes from the snapshot, because a consumer's metadata request would create a missing topic. Raises
    NotThere, BadQuestion.
    """
    topic = await visit.topic(question.topic)
    indexes = sorted(topic.partitions)
    if question.partition is not None:
        if question.partition not in topic.partitions:
            raise BadQuestion(
                f"{topic.name} has partitions 0 to {len(indexes) - 1}, not {question.partition}"
            )
        indexes = [question.partition]
    return [TopicPartition(topic.name, index) for index in indexes]


Offsets = dict[TopicPartition, int]


async def _bounds(visit: Visit, places: Sequence[TopicPartition]) -> tuple[Offsets, Offsets, Offsets]:
    """Return the start, end and last stable offsets of the partitions that report all three.

    Raises KafkaError if none does.
    """
    starts = await visit.admin.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = await visit.admin.list_offsets(dict.fromkeys(places, LATEST))
    stable = await visit.admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
    answered = [
        place for place in places if all(isinstance(each[place], int) for each in (starts, ends, stable))
    ]
    if not answered:
        raise next(each for each in (ends[places[0]], starts[places[0]]) if isinstance(each, KafkaError))
    return _numbers(starts, answered), _numbers(ends, answered), _numbers(stable, answered)


async def _by_time(visit: Visit, question: Question, places: Sequence[TopicPartition]) -> Offsets:
    if question.where != TIME:
        return {}
    found = await visit.admin.list_offsets(dict.fromkeys(places, question.at))
    return _numbers(found, [place for place in places if isinstance(found[place], int)])


def _numbers(found: Found, places: Sequence[TopicPartition]) -> Offsets:
    return {place: offset for place in places if isinstance(offset := found[place], int)}


async def decoded(
    visit: Visit, question: Question, records: Sequence[ConsumerRecord]
) -> tuple[Sequence[Decoded | None], Sequence[Decoded | None]]:
    """Return the records' keys and values decoded by their schemas.

    A part is None if decoding is not wanted or its bytes name no schema.
    """
    if visit.schemas is None or question.shows_as not in DECODED_AS:
        nothing = [None] * len(records)
        return nothing, nothing
    both = [record.value for record in records] + [record.key for record in records]
    found = await visit.schemas.all_decoded(both, DECODING_S)
    return found[len(records) :], found[: len(records)]


async def show_whole(visit: Visit) -> Download:
    """Return the whole key or value of the record that the query names, as a file to save."""
    topic, part = visit.required("topic"), visit.text("part", "value")
    if part not in ("key", "value"):
        raise BadQuestion(f"'part' is key or value, not {part[:40]!r}")
    offset, partition = visit.number("offset"), visit.number("partition", most=2**31 - 1)
    place = TopicPartition(topic, partition)
    if partition not in (await visit.topic(topic)).partitions:
        raise NotThere(f"there is no partition {topic}-{partition}")
    found = await read(visit.connection, {place: offset}, {place: offset + 1}, (), count=1)
    record = next((candidate for candidate in found.records if candidate.offset == offset), None)
    data = None if record is None else record.key if part == "key" else record.value
    if data is None:
        raise NotThere(f"there is no {part} at offset {offset} of {topic}-{partition}")
    return Download(data, f"{topic}-{partition}-{offset}.{part}")
