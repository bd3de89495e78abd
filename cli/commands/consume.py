"""`ottla consume`: print the records of a topic."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from typing import Any

from ...client.admin import Admin
from ...client.consumer import Consumer
from ...client.fetched import ConsumerRecord, TopicPartition
from ..asking import run_client
from ..failures import CommandFailed, UsageError
from ..options import add_bootstrap, add_output, command_parser

FORMAT_HELP = """
format (-f)
  %t topic   %p partition   %o offset   %T timestamp in ms   %k key   %s value   %h headers
  %K length of the key   %S length of the value (-1: null)   %% a percent sign   \\n \\t \\\\ as in C
"""
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
TOKEN = re.compile(rb"%(.)|\\(.)", re.DOTALL)
POLL_MS = 100


def parser(name: str) -> argparse.ArgumentParser:
    """Arguments of `ottla consume`."""
    options = command_parser(
        f"ottla {name}",
        "Print the records of a topic.",
        "  ottla consume orders                           everything, then what comes\n"
        "  ottla consume orders -o end                    only what comes\n"
        "  ottla consume orders -o -5 -e                  the last five of each partition\n"
        "  ottla consume orders -g billing -c 10          ten records as a member of a group\n"
        "  ottla consume orders -f '%p:%o %k=%s\\n' -e\n"
        f"{FORMAT_HELP}",
    )
    options.add_argument("topic", metavar="TOPIC")
    options.add_argument(
        "-o",
        "--offset",
        metavar="WHERE",
        help="beginning (if not given), end, N, -N (last N) or @MS (a timestamp)",
    )
    options.add_argument(
        "-p", "--partition", type=int, action="append", metavar="N", help="only this; may be repeated"
    )
    options.add_argument("-c", "--count", type=int, metavar="N", help="stop after N records")
    options.add_argument("-e", "--exit", action="store_true", help="stop at the end instead of waiting")
    options.add_argument(
        "-g", "--group", metavar="NAME", help="as a member of this group, committing what is printed"
    )
    options.add_argument("-f", "--format", metavar="FORMAT", help="how to print a record ('%%s\\n')")
    options.add_argument("--committed", action="store_true", help="only records of committed transactions")
    add_output(options)
    add_bootstrap(options)
    return options


def run(arguments: argparse.Namespace) -> int:
    """Print records until the count, the end, or Control-C."""
    if arguments.group and arguments.partition:
        raise UsageError("a group chooses partitions itself: give -g or -p")
    if arguments.group and arguments.offset not in (None, "beginning", "end"):
        raise UsageError("with -g, -o is beginning or end: where to start without a committed offset")
    if arguments.count is not None and arguments.count < 0:
        raise UsageError(f"-c takes a count of records, not {arguments.count}")
    where = parse_offset(arguments.offset or "beginning")
    show = _json_line if arguments.output == "json" else formatter(arguments.format or "%s\\n")
    run_client(_consume(arguments, where, show))
    return 0


def parse_offset(text: str) -> tuple[str, int]:
    """``beginning``, ``end``, ``N``, ``-N`` or ``@MS`` as (kind, number). Raises UsageError."""
    if text in ("beginning", "earliest", "start"):
        return "beginning", 0
    if text in ("end", "latest"):
        return "end", 0
    kind = {"@": "timestamp", "-": "last"}.get(text[:1], "offset")
    number = text[1:] if kind != "offset" else text
    if text in ("json", "table"):
        raise UsageError(f"-o says where to start; for the format give --output {text}")
    if not number.isdecimal():
        raise UsageError(f"-o takes beginning, end, N, -N or @MS, not {text!r}")
    return kind, int(number)


def formatter(pattern: str) -> Callable[[ConsumerRecord], bytes]:
    """A function that prints a record by a kcat-like pattern. Raises UsageError for an unknown token."""
    fields: dict[bytes, Callable[[ConsumerRecord], bytes]] = {
        b"t": lambda record: record.topic.encode(),
        b"p": lambda record: b"%d" % record.partition,
        b"o": lambda record: b"%d" % record.offset,
        b"T": lambda record: b"%d" % record.timestamp_ms,
        b"k": lambda record: record.key or b"",
        b"s": lambda record: record.value or b"",
        b"K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        b"S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
        b"h": lambda record: b",".join(
            name.encode() + b"=" + (value or b"") for name, value in record.headers
        ),
        b"%": lambda record: b"%",
    }
    raw = pattern.encode()
    parts: list[Callable[[ConsumerRecord], bytes]] = []
    end = 0
    for match in TOKEN.finditer(raw):
        parts.append(_literal(raw[end : match.start()]))
        end = match.end()
        token, escape = match.groups()
        if escape is not None:
            parts.append(
                _literal(ESCAPES.get(escape.decode("latin-1"), escape.decode("latin-1")).encode("latin-1"))
            )
        elif token in fields:
            parts.append(fields[token])
        else:
            raise UsageError(f"-f does not know %{token.decode('latin-1')}; see --help for the list")
    parts.append(_literal(raw[end:]))
    return lambda record: b"".join([part(record) for part in parts])


def _literal(text: bytes) -> Callable[[ConsumerRecord], bytes]:
    return lambda record: text


def _json_line(record: ConsumerRecord) -> bytes:
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


async def _consume(
    arguments: argparse.Namespace, where: tuple[str, int], show: Callable[[ConsumerRecord], bytes]
) -> None:
    async with Admin(bootstrap_servers=arguments.bootstrap) as admin:
        await admin.describe_topics([arguments.topic])  # a consumer's question would create it
    topics = (arguments.topic,) if arguments.group else ()
    async with Consumer(
        *topics,
        bootstrap_servers=arguments.bootstrap,
        group_id=arguments.group,
        auto_offset_reset="latest" if where[0] == "end" else "earliest",
        isolation_level="read_committed" if arguments.committed else "read_uncommitted",
    ) as consumer:
        partitions = await _partitions(consumer, arguments)
        ends = await consumer.end_offsets(partitions) if arguments.exit or where[0] == "last" else {}
        if not arguments.group:
            consumer.assign(partitions)
            await _go_to(consumer, partitions, where, ends)
        left = arguments.count
        while left is None or left > 0:
            limit = {} if left is None else {"max_records": min(left, 500)}
            some = await consumer.getmany(timeout_ms=POLL_MS, **limit)
            for records in some.values():
                sys.stdout.buffer.write(b"".join([show(record) for record in records]))
                if left is not None:
                    left -= len(records)
            sys.stdout.buffer.flush()
            if some and arguments.group:
                await consumer.commit()
            if not some and arguments.exit and await _at_end(consumer, ends):
                break


async def _partitions(consumer: Consumer, arguments: argparse.Namespace) -> list[TopicPartition]:
    existing = await consumer.partitions_for(arguments.topic)
    wanted: list[int] = arguments.partition or existing
    if missing := [index for index in wanted if index not in existing]:
        raise CommandFailed(f"{arguments.topic} has partitions 0 to {len(existing) - 1}, not {missing[0]}")
    return [TopicPartition(arguments.topic, index) for index in wanted]


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
