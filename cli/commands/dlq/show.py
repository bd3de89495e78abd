"""`ottla dlq ls` and `ottla dlq show`: letters as a table, their errors counted, and one letter as a whole."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from operator import itemgetter
from typing import Any, Final

from ....client.admin import Admin
from ....client.consumer import Consumer
from ....client.dead_letters.found import ErrorCounts, FoundLetter
from ....client.dead_letters.reading import up_to
from ....client.record_filters import RecordTest
from ....client.records import TopicPartition
from ...arguments.record_filters import filters_of
from ...arguments.selection import iso_time, name_missing, numbers_in, second_text, timestamp_ms
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...run_client import run_client
from ...terminal.json_records import json_line
from ...terminal.output import none_of, print_fields, print_json, print_table
from ...terminal.progress import ProgressLine
from ...terminal.text import counted, say, say_lines

TEXT_MAX: Final = 80
"""Characters of an error's text in the table."""
_COLUMNS: Final = ("PARTITION", "OFFSET", "TIME", "ORIGIN", "GROUP", "ATTEMPTS", "ERROR", "TEXT")


def list_letters(arguments: argparse.Namespace) -> None:
    """Print the letters of a topic, or the number of letters for each type of error."""
    if arguments.count is not None and arguments.count < 1:
        raise UsageError(f"-c takes a count of letters, not {arguments.count}")
    if arguments.summary and arguments.count is not None:
        raise UsageError("-c is for a list of letters; --summary counts all")
    now_ms = int(time.time() * 1000)
    since_ms = None if arguments.since is None else timestamp_ms(arguments.since, now_ms)
    tests = filters_of(arguments)
    indexes = chosen_partitions(arguments)
    narrowed = bool(tests or indexes) or since_ms is not None
    if arguments.summary:
        counts = run_client(_counts(arguments, tests, indexes, since_ms), waits_for=None)
        _print_counts(counts, arguments.output, narrowed=narrowed)
        return
    # The rows are kept, not the letters, whose values may be large.
    as_row = _as_json if arguments.output == "json" else _row
    rows = run_client(_rows(arguments, tests, indexes, since_ms, as_row), waits_for=None)
    if arguments.output == "json":
        print_json(rows)
        return
    print_table(
        _COLUMNS,
        rows,
        spare=("GROUP", "ATTEMPTS", "TIME"),
        empty=none_of("letters", asked=narrowed),
        wide=arguments.output == "wide",
    )


def show_letter(arguments: argparse.Namespace) -> None:
    """Print one letter as a whole."""
    if arguments.partition < 0 or arguments.offset < 0:
        raise UsageError("a letter has a partition and an offset from 0 on")
    letter = run_client(_one(arguments))
    if arguments.output == "json":
        record = json.loads(json_line(letter.record))
        print_json({**record, "letter": _as_json(letter), "message": letter.message})
        return
    print_fields(_fields(letter))
    if text := letter.reason:
        _print_block("TEXT", text.encode())
    _print_block("KEY", letter.record.key)
    _print_block("VALUE", letter.record.value)
    if letter.headers:
        say()
        print_table(
            ("HEADER", "VALUE"),
            [
                (name, "-" if value is None else value.decode("utf-8", "backslashreplace"))
                for name, value in letter.headers
            ],
        )


def chosen_partitions(arguments: argparse.Namespace) -> list[int]:
    """Return the numbers of `-p`; empty for all partitions. Raises UsageError."""
    return [number for text in arguments.partition for number in numbers_in(text, f"-p {text}")]


# ------------------------------------------------------------ output


def _row(letter: FoundLetter) -> tuple[object, ...]:
    record = letter.record
    text = " ".join(letter.reason.split())
    return (
        record.partition,
        record.offset,
        second_text(record.timestamp_ms) or "-",
        letter.origin or "-",
        letter.group_id or "-",
        "-" if letter.attempts is None else letter.attempts,
        letter.error_type or "-",
        (text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}...") or "-",
    )


def _as_json(letter: FoundLetter) -> dict[str, Any]:
    return {
        "partition": letter.record.partition,
        "offset": letter.record.offset,
        "timestamp_ms": letter.record.timestamp_ms,
        "origin_topic": letter.topic,
        "origin_partition": letter.partition,
        "origin_offset": letter.offset,
        "group": letter.group_id,
        "attempts": letter.attempts,
        "error_type": letter.error_type,
        "error_text": letter.error_text if letter.error_text is not None else letter.message,
    }


def _print_counts(counts: ErrorCounts, output: str, *, narrowed: bool) -> None:
    found = counts.most_first()
    if output == "json":
        print_json(
            [
                {
                    "error_type": count.error_type,
                    "letters": count.letters,
                    "oldest_ms": count.oldest_ms,
                    "newest_ms": count.newest_ms,
                }
                for count in found
            ]
        )
        return
    print_table(
        ("ERROR", "LETTERS", "OLDEST", "NEWEST"),
        [
            (
                count.error_type or "-",
                count.letters,
                second_text(count.oldest_ms) or "-",
                second_text(count.newest_ms) or "-",
            )
            for count in found
        ],
        empty=none_of("letters", asked=narrowed),
        wide=output == "wide",
    )


def _fields(letter: FoundLetter) -> Sequence[tuple[str, object]]:
    record = letter.record
    return (
        ("LETTER", f"{record.topic}:{record.partition}:{record.offset}"),
        ("TIME", iso_time(record.timestamp_ms) or "-"),
        ("ORIGIN", letter.origin or "-"),
        ("GROUP", letter.group_id or "-"),
        ("ATTEMPTS", "-" if letter.attempts is None else letter.attempts),
        ("ERROR", letter.error_type or "-"),
    )


def _print_block(title: str, data: bytes | None) -> None:
    """Print a text of any number of lines under its title."""
    say()
    if data is None:
        say(f"{title}  null")
        return
    say(f"{title}  {counted(len(data), 'byte')}")
    say_lines(data.decode("utf-8", "backslashreplace") + "\n")
    sys.stdout.flush()


# ------------------------------------------------------------ requests


async def _rows(
    arguments: argparse.Namespace,
    tests: Sequence[RecordTest],
    indexes: Sequence[int],
    since_ms: int | None,
    as_row: Any,
) -> list[Any]:
    """Return the letters as rows, in the order of their times."""
    placed: list[tuple[tuple[int, int, int], Any]] = []
    async with aclosing(_letters(arguments, tests, indexes, since_ms)) as letters:
        async for letter in letters:
            record = letter.record
            placed.append(((record.timestamp_ms, record.partition, record.offset), as_row(letter)))
            if len(placed) == arguments.count:
                break
    return [row for _, row in sorted(placed, key=itemgetter(0))]


async def _counts(
    arguments: argparse.Namespace, tests: Sequence[RecordTest], indexes: Sequence[int], since_ms: int | None
) -> ErrorCounts:
    counts = ErrorCounts()
    async for letter in _letters(arguments, tests, indexes, since_ms):
        counts.add([letter])
    return counts


async def _letters(
    arguments: argparse.Namespace, tests: Sequence[RecordTest], indexes: Sequence[int], since_ms: int | None
) -> AsyncGenerator[FoundLetter, None]:
    """Yield the letters that pass all tests, and show how many records were looked at."""
    partitions = await _partitions(arguments, indexes)
    looked_at = 0
    with ProgressLine() as progress:
        async with _consumer(arguments) as consumer:
            begins = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
            if since_ms is not None:
                found = await consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
                begins = {
                    partition: ends[partition] if offset is None else offset
                    for partition, offset in found.items()
                }
            async for records in up_to(consumer, begins, ends):
                looked_at += len(records)
                progress.show(f"looked at {looked_at:,} records")
                for record in records:
                    if all(test(record, None) for test in tests):
                        yield FoundLetter.of(record)


async def _one(arguments: argparse.Namespace) -> FoundLetter:
    (partition,) = await _partitions(arguments, [arguments.partition])
    async with _consumer(arguments) as consumer:
        begin = (await consumer.beginning_offsets([partition]))[partition]
        end = (await consumer.end_offsets([partition]))[partition]
        if not begin <= arguments.offset < end:
            raise CommandFailed(
                f"{partition.topic}:{partition.partition} has no offset {arguments.offset}: {_stretch(begin, end)}"
            )
        async with aclosing(up_to(consumer, {partition: arguments.offset}, {partition: end})) as found:
            first = await anext(found, None)
            if first is not None and first[0].offset == arguments.offset:
                return FoundLetter.of(first[0])
    raise CommandFailed(f"{partition.topic}:{partition.partition} has no record at offset {arguments.offset}")


def _stretch(begin: int, end: int) -> str:
    return "it is empty" if begin == end else f"it has the offsets {begin} to {end - 1}"


async def _partitions(arguments: argparse.Namespace, indexes: Sequence[int]) -> list[TopicPartition]:
    """Return the partitions of the topic, or those of `indexes`. Raises CommandFailed if one does not exist."""
    async with Admin(**connection_of(arguments)) as admin:
        # Topics are listed, because a question for a missing topic may create it.
        existing = {topic.name: list(topic.partitions) for topic in await admin.describe_topics()}
    topic = arguments.topic
    if topic not in existing:
        raise name_missing(topic, existing, "topic")
    for index in indexes:
        if index not in existing[topic]:
            raise CommandFailed(f"{topic} has partitions 0 to {len(existing[topic]) - 1}, not {index}")
    return [TopicPartition(topic, index) for index in indexes or existing[topic]]


def _consumer(arguments: argparse.Namespace) -> Consumer:
    return Consumer(
        **connection_of(arguments), isolation_level="read_committed", auto_offset_reset="earliest"
    )
