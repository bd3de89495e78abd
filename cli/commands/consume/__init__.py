"""`ottla consume`: prints the records of topics."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ....client.admin import Admin
from ....client.consumer import Consumer
from ....client.record_filters import RecordTest
from ....client.records import TopicPartition
from ...arguments.options import CommandParser, add_connection, add_output, add_regex, command_parser
from ...arguments.record_filters import add_filters, filters_of
from ...arguments.selection import numbers_in, select
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...run_client import run_client
from ...terminal.json_records import JSON_HELP, json_line
from ...terminal.record_format import FORMAT_HELP, NULL, Printer, formatter
from ...terminal.text import visible_bytes
from .places import Place, Places, check_order, parse_offset, parse_until
from .reading import print_records, seek
from .selection import RecordSelection
from .values import add_values, values_of


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla consume`."""
    options = command_parser(
        f"ottla {name}",
        "Print the records of topics.",
        "  ottla consume orders                           all records, then new ones\n"
        "  ottla consume orders -o end                    only new records\n"
        "  ottla consume orders -o -5 -e                  the last five of each partition\n"
        "  ottla consume orders -o @2h -e                 records of the last two hours\n"
        "  ottla consume orders -o @2h --until @1h        records of the hour before the last\n"
        "  ottla consume orders -p 0 -o 70 --until 80     ten offsets\n"
        "  ottla consume orders -e --grep refund --where '$.customer = c-7' --header origin=^web\n"
        "  ottla consume orders -g billing -c 10          ten records as a member of a group\n"
        "  ottla consume orders --store file:///srv/values    values that are objects of a store, too\n"
        "  ottla consume orders -f '%p:%o %k=%s\\n' -e\n"
        "  ottla consume -r 'orders-.*' --output json | jq .value\n"
        "  ottla consume orders -e --output json > orders.jsonl\n"
        f"{FORMAT_HELP}{JSON_HELP}",
    )
    options.add_argument("topics", nargs="+", metavar="TOPIC")
    add_regex(options, "topic names")
    options.add_argument(
        "-o",
        "--offset",
        metavar="WHERE",
        help="where to start: beginning (default), end, N, -N (last N) or @TIME (ms since 1970, ISO 8601 in UTC "
        "without a zone, or an age such as 2h)",
    )
    options.add_argument(
        "-p",
        "--partition",
        action="append",
        default=[],
        metavar="N,...",
        help="only these partitions, such as 0,2-4; may be repeated",
    )
    options.add_argument("-c", "--count", type=int, metavar="N", help="stop after N printed records")
    options.add_argument("-e", "--exit", action="store_true", help="stop at the end instead of waiting")
    options.add_argument(
        "--until",
        metavar="WHERE",
        help="stop each partition before offset N, or before the first record of @TIME or later; a place that the "
        "log has not reached is awaited, unless -e is given",
    )
    add_filters(options)
    options.add_argument(
        "-g", "--group", metavar="NAME", help="consume as a member of this group, and commit printed records"
    )
    options.add_argument("-f", "--format", metavar="FORMAT", help="how to print a record ('%%s\\n')")
    options.add_argument(
        "-K", "--key-delimiter", metavar="DELIM", help="print keys, with this text between key and value"
    )
    options.add_argument("-D", "--delimiter", metavar="DELIM", help="text after each record ('\\n')")
    options.add_argument(
        "-Z", "--null", action="store_true", help="print NULL for keys and values that are null"
    )
    options.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="default: read_uncommitted",
    )
    options.add_argument(
        "--committed",
        dest="isolation_level",
        action="store_const",
        const="read_committed",
        help="only records of committed transactions, as --isolation-level read_committed",
    )
    add_values(options)
    add_output(options)
    add_connection(options)
    return options


def run(arguments: argparse.Namespace) -> int:
    """Print records of topics until the count of `-c`, the ends of the partitions, or Control-C."""
    if arguments.group and arguments.partition:
        raise UsageError("a group chooses partitions itself: give -g or -p")
    if arguments.group and arguments.offset not in (None, "beginning", "end"):
        raise UsageError("with -g, -o is beginning or end: where to start without a committed offset")
    if arguments.count is not None and arguments.count < 0:
        raise UsageError(f"-c takes a count of records, not {arguments.count}")
    if arguments.format is not None and (arguments.key_delimiter, arguments.delimiter) != (None, None):
        raise UsageError("-f says all: leave -K and -D out")
    begun_ms = now_ms()
    start = parse_offset(arguments.offset or "beginning", begun_ms)
    until = None if arguments.until is None else parse_until(arguments.until, begun_ms)
    if until is not None:
        check_order(start, until)
    indexes = [number for text in arguments.partition for number in numbers_in(text, f"-p {text}")]
    filters, values = filters_of(arguments), values_of(arguments)
    show = _printer(arguments)
    run_client(_consume(arguments, start, until, indexes, filters, values, show), waits_for=None)
    return 0


def now_ms() -> int:
    """Return the time in ms since 1970."""
    return int(time.time() * 1000)


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


async def _consume(
    arguments: argparse.Namespace,
    start: Place,
    until: Place | None,
    indexes: list[int],
    filters: Sequence[RecordTest],
    values: Mapping[str, Any],
    show: Printer,
) -> None:
    read_committed = arguments.isolation_level == "read_committed"
    async with Admin(**connection_of(arguments)) as admin:
        # Topics are listed before the consumer starts, because its metadata request would create missing topics.
        existing = {topic.name: list(topic.partitions) for topic in await admin.describe_topics()}
        topics = select(existing, arguments.topics, "topic", regex=arguments.regex)
        partitions = _partitions(existing, topics, indexes)
        places = Places(
            admin, start, until, exits_at_end=arguments.exit, read_committed=read_committed, now_ms=now_ms
        )
        async with Consumer(
            *(topics if arguments.group else ()),
            **connection_of(arguments),
            group_id=arguments.group,
            auto_offset_reset="latest" if start[0] == "end" else "earliest",
            isolation_level=arguments.isolation_level,
            **values,
        ) as consumer:
            if places.have_ends or start[0] in ("offset", "last"):
                begins = await places.ask(partitions)
            else:
                begins = dict.fromkeys(partitions)
            if not arguments.group:
                _go_to(consumer, begins, start)
            selection = RecordSelection(places.before_end, filters, arguments.count)
            await print_records(consumer, places, selection, show, group=arguments.group)


def _partitions(
    existing: dict[str, list[int]], topics: list[str], indexes: list[int]
) -> list[TopicPartition]:
    for topic in topics:
        if missing := [index for index in indexes if index not in existing[topic]]:
            raise CommandFailed(f"{topic} has partitions 0 to {len(existing[topic]) - 1}, not {missing[0]}")
    return [TopicPartition(topic, index) for topic in topics for index in indexes or existing[topic]]


def _go_to(consumer: Consumer, begins: Mapping[TopicPartition, int | None], start: Place) -> None:
    """Assign the partitions to the consumer, and seek to their begin offsets.

    An offset of None leaves the position to the consumer, which waits for a leader.
    """
    consumer.assign(begins)
    if start[0] == "timestamp" and None in begins.values():
        consumer.seek_to_timestamp(start[1])
    seek(consumer, begins)
