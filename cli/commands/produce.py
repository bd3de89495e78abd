"""`ottla produce`: lines of standard input or of a file become records."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from ...client.producer import Acks, Producer
from ...client.sender import RecordMetadata
from ..asking import run_client
from ..failures import CommandFailed, UsageError
from ..options import add_bootstrap, command_parser, key_values

READ_BYTES = 256 * 1024
MAX_LINE_BYTES = 1024 * 1024
"""The largest record that is sent."""
PROGRESS_AFTER_S = 2.0
Headers = list[tuple[str, bytes | None]]
ACKS: dict[str, Acks] = {"all": "all", "1": 1, "0": 0}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def parser(name: str) -> argparse.ArgumentParser:
    """Arguments of `ottla produce`."""
    options = command_parser(
        f"ottla {name}",
        "Send each line as one record.",
        "  echo hello | ottla produce greetings\n"
        "  ottla produce orders -K : < lines.txt       what stands before the first ':' is the key\n"
        "  ottla produce orders -z zstd lines.txt\n"
        "  echo hello | ottla produce orders -H origin=shell --partition 0",
    )
    options.add_argument("topic", metavar="TOPIC")
    options.add_argument("file", nargs="?", type=Path, metavar="FILE", help="standard input if not given")
    options.add_argument("-K", "--key-delimiter", metavar="DELIM", help="splits a line into key and value")
    options.add_argument("-p", "--partition", type=int, metavar="N", help="all to this partition")
    options.add_argument(
        "-H", "--header", action="append", default=[], metavar="KEY=VALUE", help="may be repeated"
    )
    options.add_argument("-z", "--compression", choices=CODECS, default="none", help="none, if not given")
    options.add_argument("--acks", choices=ACKS, default="all", help="all, if not given")
    options.add_argument(
        "--linger-ms", type=float, default=5, metavar="MS", help="how long a batch waits for more (5)"
    )
    options.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    add_bootstrap(options)
    return options


def run(arguments: argparse.Namespace) -> int:
    """Send everything; 0 when every record is acknowledged."""
    if arguments.key_delimiter == "":
        raise UsageError("-K takes at least one character")
    headers: Headers = [(key, value.encode()) for key, value in key_values(arguments.header, "-H").items()]
    try:
        if not arguments.file and sys.stdin is None:
            raise CommandFailed("standard input is closed: name a file")
        source = arguments.file.open("rb") if arguments.file else sys.stdin.buffer
    except OSError as error:
        raise CommandFailed(f"cannot read {arguments.file}: {error.strerror}") from None
    with source:
        failures = run_client(_produce(arguments, source, headers))
    if failures:
        raise CommandFailed(
            f"{failures.count} of {failures.sent} records were not delivered: {failures.last}"
        )
    return 0


class Deliveries:
    """What became of the records sent."""

    def __init__(self) -> None:
        self.sent = 0
        self.count = 0
        self.last = ""

    def __bool__(self) -> bool:
        return self.count > 0

    def settle(self, delivery: asyncio.Future[RecordMetadata]) -> None:
        """Count one delivery."""
        error = delivery.exception()
        if error is not None:
            self.count += 1
            self.last = str(error)


async def _produce(arguments: argparse.Namespace, source: BinaryIO, headers: Headers) -> Deliveries:
    delimiter = arguments.key_delimiter.encode() if arguments.key_delimiter else None
    deliveries = Deliveries()
    began = shown = time.monotonic()
    async with Producer(
        bootstrap_servers=arguments.bootstrap,
        acks=ACKS[arguments.acks],
        compression_type=None if arguments.compression == "none" else arguments.compression,
        linger_ms=arguments.linger_ms,
        max_block_ms=5_000,
    ) as producer:
        async for lines in _lines(source):
            for line in lines:
                key, value = _split(line, delimiter)
                delivery = await producer.send(
                    arguments.topic, value, key, partition=arguments.partition, headers=headers
                )
                delivery.add_done_callback(deliveries.settle)
                deliveries.sent += 1
            now = time.monotonic()
            if (
                not arguments.quiet
                and sys.stderr.isatty()
                and now - began > PROGRESS_AFTER_S
                and now - shown > 0.5
            ):
                shown = now
                print(f"\r{deliveries.sent:,} records", end="", file=sys.stderr, flush=True)
        await producer.flush()
        await asyncio.sleep(0)  # the last deliveries' callbacks
    if not arguments.quiet and sys.stderr.isatty():
        seconds = time.monotonic() - began
        print(f"\r{deliveries.sent:,} records in {seconds:.1f} s", file=sys.stderr)
    return deliveries


async def _lines(source: BinaryIO) -> AsyncIterator[list[bytes]]:
    """The lines that each read brought, without their ends; reading does not hold up the loop."""
    rest = b""
    read = getattr(source, "read1", source.read)
    while chunk := await asyncio.to_thread(read, READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise CommandFailed(f"a line is longer than {MAX_LINE_BYTES} bytes, which is the largest record")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _split(line: bytes, delimiter: bytes | None) -> tuple[bytes | None, bytes]:
    if delimiter is None:
        return None, line
    key, found, value = line.partition(delimiter)
    return (key, value) if found else (None, line)
