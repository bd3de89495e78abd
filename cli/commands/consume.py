"""`ottla consume`: prints the records of topics."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping

from ...client.admin import Admin
from ...client.admin.records import EARLIEST, LATEST
from ...client.consumer import Consumer
from ...client.failures import UnreadableRecords
from ...client.records import ConsumerRecord, TopicPartition
from ...protocol.errors import KafkaError
from ..arguments.options import CommandParser, add_connection, add_output, add_regex, command_parser
from ..arguments.selection import numbers_in, select, timestamp_ms
from ..connection.precedence import connection_of
from ..failures import CommandFailed, UsageError
from ..run_client import refusal, run_client
from ..terminal.json_records import JSON_HELP, json_line
from ..terminal.record_format import FORMAT_HELP, NULL, Printer, formatter
from ..terminal.text import visible_bytes

POLL_MS = 100
POSITION_S = 1.0
"""Seconds after which a partition without a known position counts as leaderless."""
SILENCE_S = 5.0
"""Seconds without a record after which the command asks again whether partitions have leaders."""


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla consume`."""
    options = command_parser(
        f"ottla {name}",
        "Print the records of topics.",
        "  ottla consume orders                           all records, then new ones\n"
        "  ottla consume orders -o end                    only new records\n"
        "  ottla consume orders -o -5 -e                  the last five of each partition\n"
        "  ottla consume orders -o @2h -e                 records of the last two hours\n"
        "  ottla consume orders -g billing -c 10          ten records as a member of a group\n"
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
    options.add_argument("-c", "--count", type=int, metavar="N", help="stop after N records")
    options.add_argument("-e", "--exit", action="store_true", help="stop at the end instead of waiting")
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
    add_output(options)
    add_connection(options)
    return options


def run(arguments: argparse.Namespace) -> int:
    """Print records of topics until the count of `-c`, the end of the topics, or Control-C."""
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
    """Parse the start of consumption, `beginning`, `end`, `N`, `-N` or `@TIME`, into its kind and number.

    The number is an offset, a number of records or a time in ms. Raises UsageError.
    """
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
        # Topics are listed before the consumer starts, because its metadata request would create missing topics.
        existing = {topic.name: list(topic.partitions) for topic in await admin.describe_topics()}
        topics = select(existing, arguments.topics, "topic", regex=arguments.regex)
        partitions = _partitions(existing, topics, indexes)
        places = Places(admin, where, read_committed=arguments.isolation_level == "read_committed")
        async with Consumer(
            *(topics if arguments.group else ()),
            **connection_of(arguments),
            group_id=arguments.group,
            auto_offset_reset="latest" if where[0] == "end" else "earliest",
            isolation_level=arguments.isolation_level,
        ) as consumer:
            if arguments.exit or where[0] in ("offset", "last"):
                begins = await places.ask(partitions)
            else:
                begins = dict.fromkeys(partitions)
            if not arguments.group:
                _go_to(consumer, begins, where)
            await _print(arguments, consumer, places, show)


async def _print(arguments: argparse.Namespace, consumer: Consumer, places: Places, show: Printer) -> None:
    """Print records until the count is reached or, with -e, the end.

    Raises CommandFailed if partitions are missing at the end.
    """
    loop = asyncio.get_running_loop()
    left, asked_s = arguments.count, loop.time()
    while left is None or left > 0:
        limit = {} if left is None else {"max_records": min(left, 500)}
        try:
            some = await _read(consumer, arguments.group, limit)
        except UnreadableRecords as error:
            raise CommandFailed(f"{error}; {_way_on(error, arguments.group)}") from error
        for records in some.values():
            sys.stdout.buffer.write(b"".join([show(record) for record in records]))
            if left is not None:
                left -= len(records)
        sys.stdout.buffer.flush()
        if some and arguments.group:
            await consumer.commit()
        if some:
            asked_s = loop.time()
            continue
        behind = await _before_the_end(consumer, places) if arguments.exit else None
        if behind == []:
            places.check(consumer.assignment() if arguments.group else None)
            return
        if loop.time() > asked_s + SILENCE_S:
            if behind:
                await places.ask(behind)
            elif places.missing and not arguments.exit and not arguments.group:
                found = await places.ask(list(places.missing))
                consumer.assign([*consumer.assignment(), *found])
                _seek(consumer, found)
            asked_s = loop.time()


async def _read(
    consumer: Consumer, group: str | None, limit: Mapping[str, int]
) -> Mapping[TopicPartition, list[ConsumerRecord]]:
    """Return the consumer's next records by partition; none while no named partition has a leader."""
    if group is None and not consumer.assignment():
        await asyncio.sleep(POLL_MS / 1000)
        return {}
    return await consumer.getmany(timeout_ms=POLL_MS, **limit)


class Places:
    """The offsets at which consumption of each partition begins and ends, requested from the partition leaders.

    `where` is the parsed `-o` option.
    """

    def __init__(self, admin: Admin, where: tuple[str, int], *, read_committed: bool) -> None:
        self._admin, self._where, self._read_committed = admin, where, read_committed
        self.ends: dict[TopicPartition, int] = {}
        self.missing: dict[TopicPartition, KafkaError] = {}
        """Partitions without an answering leader, each with the reason."""

    def check(self, partitions: set[TopicPartition] | None = None) -> None:
        """Raise CommandFailed if partitions have no answering leader; `partitions` limits the check to these."""
        missing = {
            partition: why
            for partition, why in self.missing.items()
            if partitions is None or partition in partitions
        }
        if missing:
            named = "; ".join(f"{topic}-{index}: {refusal(why)}" for (topic, index), why in missing.items())
            raise CommandFailed(f"not all records are printed: {named}")

    async def ask(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Request the offsets of these partitions, and return the begin offset of each that answers.

        Updates `ends` and `missing`.

        Raises KafkaError for a refusal that is not retriable, CommandFailed for an offset beyond all ends.
        """
        kind, number = self._where
        stamp = {"end": LATEST, "timestamp": number}.get(kind, EARLIEST)
        ends, begins = await asyncio.gather(
            self._admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=self._read_committed),
            self._admin.list_offsets(dict.fromkeys(partitions, stamp), read_committed=self._read_committed),
        )
        found: dict[TopicPartition, int | None] = {}
        for partition in partitions:
            self.missing.pop(partition, None)
            match ends[partition], begins[partition]:
                case (KafkaError() as why, _) | (_, KafkaError() as why):
                    if not why.code.retriable:
                        raise why
                    self.missing[partition] = why
                case int(end), int(begin):
                    self.ends[partition] = min(end, self.ends.get(partition, end))
                    found[partition] = self._begin(begin, end)
        if kind == "offset" and self.ends and number > (last := max(self.ends.values())):
            raise CommandFailed(f"there is no offset {number} yet: the log ends at {last}")
        return found

    def _begin(self, begin: int, end: int) -> int:
        kind, number = self._where
        if kind == "offset":
            return min(max(number, begin), end)
        if kind == "last":
            return max(begin, end - number)
        return (
            end if begin < 0 else begin
        )  # A negative answer means that no record is as recent as the timestamp.


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


def _go_to(consumer: Consumer, begins: Mapping[TopicPartition, int | None], where: tuple[str, int]) -> None:
    """Assign the partitions to the consumer, and seek to their begin offsets.

    An offset of None leaves the position to the consumer, which waits for a leader.
    """
    consumer.assign(begins)
    if where[0] == "timestamp" and None in begins.values():
        consumer.seek_to_timestamp(where[1])
    _seek(consumer, begins)


def _seek(consumer: Consumer, begins: Mapping[TopicPartition, int | None]) -> None:
    for partition, offset in begins.items():
        if offset is not None:
            consumer.seek(partition, offset)


async def _before_the_end(consumer: Consumer, places: Places) -> list[TopicPartition] | None:
    """Return the assigned partitions that are not yet read to their ends; partitions without an answering leader are
    left out. None while the group has assigned no partition."""
    if not places.ends:
        return []
    if not (assigned := consumer.assignment()):
        return None
    behind = []
    for partition in sorted(assigned - set(places.missing)):
        try:
            async with asyncio.timeout(POSITION_S):
                position = await consumer.position(partition)
        except TimeoutError:
            behind.append(partition)
        else:
            if position < places.ends.get(partition, 0):
                behind.append(partition)
    return behind
