"""`ottla consume`: print the records of topics."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from ...client.admin import Admin
from ...client.consumer import Consumer
from ...client.failures import UnreadableRecords
from ...client.records import TopicPartition
from ..arguments.options import CommandParser, add_connection, add_output, add_regex, command_parser
from ..arguments.selection import numbers_in, select, timestamp_ms
from ..asking import run_client
from ..connection.precedence import connection_of
from ..failures import CommandFailed, UsageError
from ..terminal.record_format import FORMAT_HELP, NULL, Printer, formatter, json_line
from ..terminal.text import visible_bytes

POLL_MS = 100


def parser(name: str) -> CommandParser:
    """Arguments of `ottla consume`."""
    options = command_parser(
        f"ottla {name}",
        "Print the records of topics.",
        "  ottla consume orders                           everything, then what comes\n"
        "  ottla consume orders -o end                    only what comes\n"
        "  ottla consume orders -o -5 -e                  the last five of each partition\n"
        "  ottla consume orders -o @2h -e                 what is not older than two hours\n"
        "  ottla consume orders -g billing -c 10          ten records as a member of a group\n"
        "  ottla consume orders -f '%p:%o %k=%s\\n' -e\n"
        "  ottla consume -r 'orders-.*' --output json | jq .value\n"
        f"{FORMAT_HELP}",
    )
    options.add_argument("topics", nargs="+", metavar="TOPIC")
    add_regex(options, "topic names")
    options.add_argument(
        "-o",
        "--offset",
        metavar="WHERE",
        help="beginning (if not given), end, N, -N (last N) or @TIME (ms since 1970, ISO 8601 in UTC without "
        "a zone, an age as 2h)",
    )
    options.add_argument(
        "-p",
        "--partition",
        action="append",
        default=[],
        metavar="N,...",
        help="only these, as 0,2-4; may be repeated",
    )
    options.add_argument("-c", "--count", type=int, metavar="N", help="stop after N records")
    options.add_argument("-e", "--exit", action="store_true", help="stop at the end instead of waiting")
    options.add_argument(
        "-g", "--group", metavar="NAME", help="as a member of this group, committing what is printed"
    )
    options.add_argument("-f", "--format", metavar="FORMAT", help="how to print a record ('%%s\\n')")
    options.add_argument("-K", "--key-delimiter", metavar="DELIM", help="print keys, and this before values")
    options.add_argument("-D", "--delimiter", metavar="DELIM", help="what ends a record ('\\n')")
    options.add_argument(
        "-Z", "--null", action="store_true", help="print NULL for keys and values that are null"
    )
    options.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_uncommitted, if not given",
    )
    options.add_argument(
        "--committed",
        dest="isolation_level",
        action="store_const",
        const="read_committed",
        help="only records of committed transactions, as --isolation-level read_committed",
    )
    add_output(options)
    add_connection(options)
    return options


def run(arguments: argparse.Namespace) -> int:
    """Print records until the count, the end, or Control-C."""
    if arguments.group and arguments.partition:
        raise UsageError("a group chooses partitions itself: give -g or -p")
    if arguments.group and arguments.offset not in (None, "beginning", "end"):
        raise UsageError("with -g, -o is beginning or end: where to start without a committed offset")
    if arguments.count is not None and arguments.count < 0:
        raise UsageError(f"-c takes a count of records, not {arguments.count}")
    if arguments.format is not None and (arguments.key_delimiter, arguments.delimiter) != (None, None):
        raise UsageError("-f says all: leave -K and -D out")
    where = parse_offset(arguments.offset or "beginning", int(time.time() * 1000))
    indexes = [number for text in arguments.partition for number in numbers_in(text, f"-p {text}")]
    run_client(_consume(arguments, where, indexes, _printer(arguments)))
    return 0


def _printer(arguments: argparse.Namespace) -> Printer:
    if arguments.output == "json":
        return json_line
    pattern = arguments.format
    if pattern is None:
        key = "" if arguments.key_delimiter is None else "%k" + arguments.key_delimiter.replace("%", "%%")
        end = "\\n" if arguments.delimiter is None else arguments.delimiter.replace("%", "%%")
        pattern = f"{key}%s{end}"
    null = NULL if arguments.null else b""
    return (
        formatter(pattern, null=null, shown=visible_bytes)
        if sys.stdout.isatty()
        else formatter(pattern, null=null)
    )


def parse_offset(text: str, now_ms: int) -> tuple[str, int]:
    """`beginning`, `end`, `N`, `-N` or `@TIME` as (kind, number). Raises UsageError."""
    if text in ("beginning", "earliest", "start"):
        return "beginning", 0
    if text in ("end", "latest"):
        return "end", 0
    if text in ("json", "table"):
        raise UsageError(f"-o says where to start; for the format give --output {text}")
    if text.startswith("@"):
        return "timestamp", timestamp_ms(text[1:], now_ms)
    kind, number = ("last", text[1:]) if text.startswith("-") else ("offset", text)
    if not number.isdecimal():
        raise UsageError(f"-o takes beginning, end, N, -N or @TIME, not {text!r}")
    return kind, int(number)


async def _consume(
    arguments: argparse.Namespace, where: tuple[str, int], indexes: list[int], show: Printer
) -> None:
    async with Admin(**connection_of(arguments)) as admin:
        # Asked for first, because a consumer's question would create them.
        existing = {topic.name: list(topic.partitions) for topic in await admin.describe_topics()}
    topics = select(existing, arguments.topics, "topic", regex=arguments.regex)
    async with Consumer(
        *(topics if arguments.group else ()),
        **connection_of(arguments),
        group_id=arguments.group,
        auto_offset_reset="latest" if where[0] == "end" else "earliest",
        isolation_level=arguments.isolation_level,
    ) as consumer:
        partitions = _partitions(existing, topics, indexes)
        ends = await consumer.end_offsets(partitions) if arguments.exit or where[0] == "last" else {}
        if not arguments.group:
            consumer.assign(partitions)
            await _go_to(consumer, partitions, where, ends)
        left = arguments.count
        while left is None or left > 0:
            limit = {} if left is None else {"max_records": min(left, 500)}
            try:
                some = await consumer.getmany(timeout_ms=POLL_MS, **limit)
            except UnreadableRecords as error:
                raise CommandFailed(f"{error}; {_way_on(error, arguments.group)}") from error
            for records in some.values():
                sys.stdout.buffer.write(b"".join([show(record) for record in records]))
                if left is not None:
                    left -= len(records)
            sys.stdout.buffer.flush()
            if some and arguments.group:
                await consumer.commit()
            if not some and arguments.exit and await _at_end(consumer, ends):
                break


def _way_on(error: UnreadableRecords, group: str | None) -> str:
    topic, index = error.partition
    if group is None:
        return f"ottla consume {topic} -p {index} -o {error.next_offset}"
    return f"ottla group seek {group} --topic {topic}:{index} --to {error.next_offset}"


def _partitions(
    existing: dict[str, list[int]], topics: list[str], indexes: list[int]
) -> list[TopicPartition]:
    for topic in topics:
        if missing := [index for index in indexes if index not in existing[topic]]:
            raise CommandFailed(f"{topic} has partitions 0 to {len(existing[topic]) - 1}, not {missing[0]}")
    return [TopicPartition(topic, index) for topic in topics for index in indexes or existing[topic]]


async def _go_to(
    consumer: Consumer,
    partitions: list[TopicPartition],
    where: tuple[str, int],
    ends: dict[TopicPartition, int],
) -> None:
    kind, number = where
    if kind == "offset":
        first = await consumer.beginning_offsets(partitions)
        last = await consumer.end_offsets(partitions)
        if number > max(last.values()):
            raise CommandFailed(f"there is no offset {number} yet: the log ends at {max(last.values())}")
        for partition in partitions:
            consumer.seek(partition, min(max(number, first[partition]), last[partition]))
    elif kind == "timestamp":
        consumer.seek_to_timestamp(number)
    elif kind == "last":
        beginnings = await consumer.beginning_offsets(partitions)
        for partition in partitions:
            consumer.seek(partition, max(beginnings[partition], ends[partition] - number))


async def _at_end(consumer: Consumer, ends: dict[TopicPartition, Any]) -> bool:
    assigned = consumer.assignment()
    if not assigned:
        return False
    for partition in assigned:
        if await consumer.position(partition) < ends.get(partition, 0):
            return False
    return True
