"""`ottla produce`: turns lines of standard input or of files into records."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from ...client.producer import Producer
from ...client.producing.deliveries import RecordDelivery
from ...client.producing.options import Acks
from ...protocol.errors import KafkaError
from ..arguments.options import CommandParser, add_connection, command_parser, key_value_pairs
from ..connection.precedence import connection_of
from ..failures import CommandFailed, UsageError
from ..run_client import refusal, run_client
from ..terminal.json_records import JSON_HELP, json_record
from ..terminal.record_format import LineReader, LineRecord, MalformedRecord, line_reader, unescape
from ..terminal.text import show_progress

READ_BYTES = 256 * 1024
MAX_LINE_BYTES = 1024 * 1024
"""The size in bytes of the largest record that is sent."""
MAX_JSON_LINE_BYTES = 16 * MAX_LINE_BYTES
"""The size in bytes of the longest line of JSON: escapes and base64 make the largest record several times as long."""
PROGRESS_AFTER_S = 2.0
ACKS: dict[str, Acks] = {"all": "all", "1": 1, "0": 0}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla produce`."""
    options = command_parser(
        f"ottla {name}",
        "Send each line, or each file, as one record.",
        "  echo hello | ottla produce greetings\n"
        "  ottla produce orders -K : < lines.txt             the text before the first ':' is the key\n"
        "  ottla produce orders -z zstd lines.txt more.txt\n"
        "  ottla produce orders -f '%p %T %k=%s' < lines.txt\n"
        "  ottla produce images --whole-files *.png\n"
        "  echo hello | ottla produce orders -H origin=shell --partition 0\n"
        "  echo gone: | ottla produce orders -K : -Z         a tombstone\n"
        "  ottla produce copy --input json < orders.jsonl    records of 'ottla consume --output json'\n"
        f"{JSON_HELP}",
    )
    options.add_argument("topic", metavar="TOPIC")
    options.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="files to read (default: standard input)"
    )
    options.add_argument("--whole-files", action="store_true", help="each FILE is one record")
    options.add_argument(
        "--input",
        choices=("lines", "json"),
        default="lines",
        help="json: each line is a record as 'ottla consume --output json' prints it, with its timestamp "
        "(default: lines)",
    )
    options.add_argument(
        "--keep-partitions",
        action="store_true",
        help="with --input json: send each record to the partition of its line",
    )
    options.add_argument("-k", "--key", metavar="KEY", help="key of every record")
    options.add_argument("-K", "--key-delimiter", metavar="DELIM", help="splits a line into key and value")
    options.add_argument(
        "-D", "--delimiter", metavar="DELIM", help="text that ends a record (default: a newline)"
    )
    options.add_argument(
        "-f",
        "--format",
        metavar="FORMAT",
        help="format of a line: %%k %%s %%p %%T (ms) %%h (name=value,...)",
    )
    options.add_argument("-Z", "--null", action="store_true", help="empty keys and values become null")
    options.add_argument(
        "-p", "--partition", type=int, metavar="N", help="send all records to this partition"
    )
    options.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="header of every record; may be repeated",
    )
    options.add_argument(
        "--timestamp", type=int, metavar="MS", help="timestamp of every record (default: now)"
    )
    options.add_argument("-z", "--compression", choices=CODECS, default="none", help="default: none")
    options.add_argument("--acks", choices=tuple(ACKS), default="all", help="default: all")
    options.add_argument(
        "--linger-ms", type=float, default=5, metavar="MS", help="how long a batch waits for more records (5)"
    )
    options.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    add_connection(options)
    return options


def run(arguments: argparse.Namespace) -> int:
    """Send records made of input lines or files to a topic; return 0 when every record is acknowledged."""
    read = reader(arguments)
    if arguments.whole_files and not arguments.files:
        raise UsageError("--whole-files needs files")
    if not arguments.files and sys.stdin is None:
        raise CommandFailed("standard input is closed: name a file")
    for path in arguments.files:
        _check_readable(path)
    failures = run_client(_produce(arguments, read), waits_for=None)
    if failures:
        raise CommandFailed(
            f"{failures.count} of {failures.sent} records were not delivered: {failures.last}"
        )
    return 0


def reader(arguments: argparse.Namespace) -> LineReader:
    """Return the function that turns an input line into the fields of a record, as the options say.

    Raises UsageError.
    """
    _check_input(arguments)
    if arguments.key_delimiter == "" or arguments.delimiter == "":
        raise UsageError("-K and -D take at least one character")
    if arguments.format is not None and arguments.key_delimiter is not None:
        raise UsageError("-f says where keys are: leave -K out")
    if arguments.partition is not None and arguments.partition < 0:
        raise UsageError(f"-p takes a partition, not {arguments.partition}")
    if arguments.timestamp is not None and arguments.timestamp < 0:
        raise UsageError(f"--timestamp takes milliseconds since 1970, not {arguments.timestamp}")
    headers = tuple((key, value.encode()) for key, value in key_value_pairs(arguments.header, "-H"))
    key = None if arguments.key is None else arguments.key.encode("utf-8", "surrogateescape")
    split = _splitter(arguments)

    def read(line: bytes) -> LineRecord:
        found = split(line)
        own_key = key if found.key is None else found.key
        own_partition = found.partition if arguments.input == "lines" or arguments.keep_partitions else None
        return LineRecord(
            found.value or (None if arguments.null else found.value),
            own_key or (None if arguments.null else own_key),
            arguments.partition if own_partition is None else own_partition,
            arguments.timestamp if found.timestamp_ms is None else found.timestamp_ms,
            headers + found.headers,
        )

    return read


def _check_input(arguments: argparse.Namespace) -> None:
    """Raise UsageError for options that do not fit the format of the input."""
    if arguments.input != "json":
        if arguments.keep_partitions:
            raise UsageError("--keep-partitions goes with --input json")
        return
    needless = {
        "-k": arguments.key is not None,
        "-K": arguments.key_delimiter is not None,
        "-D": arguments.delimiter is not None,
        "-f": arguments.format is not None,
        "-Z": arguments.null,
        "--timestamp": arguments.timestamp is not None,
        "--whole-files": arguments.whole_files,
    }
    if given := [option for option, is_given in needless.items() if is_given]:
        raise UsageError(f"--input json says all: leave {' and '.join(given)} out")
    if arguments.keep_partitions and arguments.partition is not None:
        raise UsageError("give --keep-partitions or -p")


def _splitter(arguments: argparse.Namespace) -> LineReader:
    if arguments.input == "json":
        return json_record
    if arguments.format is not None:
        return line_reader(arguments.format.removesuffix("\\n"))
    if arguments.key_delimiter is None:
        return LineRecord
    delimiter = unescape(arguments.key_delimiter)

    def split(line: bytes) -> LineRecord:
        key, found, value = line.partition(delimiter)
        return LineRecord(value, key) if found else LineRecord(line)

    return split


def _check_readable(path: Path) -> None:
    """Raise CommandFailed if an input file cannot be read.

    A named pipe is not opened: its writer would fail once this end is closed again.
    """
    try:
        if path.is_fifo():
            return
        with path.open("rb"):
            pass
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None


class Deliveries:
    """A count of the records sent, and of records whose delivery failed."""

    def __init__(self) -> None:
        self.sent = 0
        self.count = 0
        self.last = ""

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        """Return the numbers of written and failed records as text, after all deliveries are settled."""
        written = f"records written before it: {self.sent - self.count:,}"
        return f"{written}, not delivered: {self.count:,} ({self.last})" if self.count else written

    def settle(self, delivery: RecordDelivery) -> None:
        """Count a record whose delivery succeeded or failed."""
        error = delivery.exception()
        if error is not None:
            self.count += 1
            self.last = str(error)


class Input:
    """The input of the command: lines of files in turn, or of standard input, or whole files.

    `place` names the current record in errors; `next_line` begins the next line.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._files: list[Path] = arguments.files
        self._whole_files: bool = arguments.whole_files
        self._delimiter = b"\n" if arguments.delimiter is None else unescape(arguments.delimiter)
        self._bytes_max = MAX_JSON_LINE_BYTES if arguments.input == "json" else MAX_LINE_BYTES
        self._name, self._line = "standard input", 0

    @property
    def place(self) -> str:
        """The file of the current record, and its line."""
        return self._name if self._whole_files else f"line {self._line:,} of {self._name}"

    def next_line(self) -> None:
        """Count a line."""
        self._line += 1

    async def records(self) -> AsyncIterator[list[bytes]]:
        """Yield lists of the records' input texts. Raises MalformedRecord for a text that is too long."""
        if not self._files:
            async for lines in self._lines_of(sys.stdin.buffer):
                yield lines
        for path in self._files:
            self._name, self._line = str(path), 0
            if self._whole_files:
                yield [await asyncio.to_thread(_whole, path)]
                continue
            with path.open("rb") as source:
                async for lines in self._lines_of(source):
                    yield lines

    async def _lines_of(self, source: BinaryIO) -> AsyncIterator[list[bytes]]:
        try:
            async for lines in read_lines(source, self._delimiter, self._bytes_max):
                yield lines
        except MalformedRecord:
            self.next_line()  # The line that is too long is the next one.
            raise


async def _produce(arguments: argparse.Namespace, read: LineReader) -> Deliveries:
    deliveries, source = Deliveries(), Input(arguments)
    began = time.monotonic()
    loud = not arguments.quiet and sys.stderr.isatty()
    async with Producer(
        **connection_of(arguments),
        acks=ACKS[arguments.acks],
        compression_type=None if arguments.compression == "none" else arguments.compression,
        linger_ms=arguments.linger_ms,
        max_block_ms=5_000,
    ) as producer:
        try:
            await _send(arguments.topic, producer, read, source, deliveries, loud=loud)
        except (MalformedRecord, KafkaError) as error:
            if isinstance(error, KafkaError) and not deliveries.sent:
                raise  # The cluster is not ready for any record.
            await _settled(producer)
            reason = refusal(error) if isinstance(error, KafkaError) else str(error)
            raise CommandFailed(f"{source.place}: {reason}; {deliveries}") from error
        await _settled(producer)
    if loud:
        seconds = time.monotonic() - began
        show_progress(f"{deliveries.sent:,} records in {seconds:.1f} s", last=True)
    return deliveries


async def _send(
    topic: str, producer: Producer, read: LineReader, source: Input, deliveries: Deliveries, *, loud: bool
) -> None:
    """Send all records of the input. Raises MalformedRecord, and KafkaError for a record that cannot be sent."""
    began = shown = time.monotonic()
    async for lines in source.records():
        for line in lines:
            source.next_line()
            record = read(line)
            delivery = await producer.send(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
            delivery.add_done_callback(deliveries.settle)
            deliveries.sent += 1
        now = time.monotonic()
        if loud and now - began > PROGRESS_AFTER_S and now - shown > 0.5:
            shown = now
            show_progress(f"{deliveries.sent:,} records")


async def _settled(producer: Producer) -> None:
    """Wait until every record is delivered or failed, and counted."""
    await producer.flush()
    await asyncio.sleep(0)  # Let the callbacks of the last deliveries run.


def _whole(path: Path) -> bytes:
    if path.stat().st_size > MAX_LINE_BYTES:
        raise MalformedRecord(f"it is larger than {MAX_LINE_BYTES} bytes, which is the largest record")
    return path.read_bytes()


async def read_lines(
    source: BinaryIO, delimiter: bytes = b"\n", bytes_max: int = MAX_LINE_BYTES
) -> AsyncIterator[list[bytes]]:
    """Yield the lines of each read from `source`, without their ends. Reading does not block the event loop.

    Raises MalformedRecord for a line of more than `bytes_max` bytes, after the lines before it.
    """
    rest = b""
    read = getattr(source, "read1", source.read)
    await _until_readable(source)
    while chunk := await asyncio.to_thread(read, READ_BYTES):
        *lines, rest = (rest + chunk).split(delimiter)
        if lines:
            yield lines
        if len(rest) > bytes_max:
            raise MalformedRecord(f"the line is longer than {bytes_max} bytes, which is the most")
        await _until_readable(source)
    if rest:
        yield [rest]


async def _until_readable(source: BinaryIO) -> None:
    """Wait until a terminal, pipe or socket has input; return at once for a file.

    A thread that waited in `read` would keep the command from ending at Control-C.
    """
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    try:
        number = source.fileno()
        loop.add_reader(number, readable.set)
    except OSError:  # Regular files cannot be watched, and never block.
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(number)
