"""Arguments that several commands share, and running a command's coroutine with its failures in plain
words.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..client.failures import NoBrokerReachable
from ..protocol.errors import KafkaError
from .failures import CommandFailed, UsageError

DEFAULT_BOOTSTRAP = "localhost:9092"
ResultT = TypeVar("ResultT")


def command_parser(name: str, description: str, examples: str) -> argparse.ArgumentParser:
    """A parser whose help ends in examples."""
    return argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog=f"examples\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_bootstrap(options: argparse.ArgumentParser, *, repeats: bool = False) -> None:
    """-b: where the cluster is. An action of a command `repeats` what may stand before it, too."""
    options.add_argument(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        default=argparse.SUPPRESS if repeats else os.environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
        help=f"brokers to begin with (OTTLA_BOOTSTRAP, or {DEFAULT_BOOTSTRAP})",
    )


def add_output(options: argparse.ArgumentParser, *flags: str) -> None:
    """-o json: output for machines."""
    options.add_argument(
        *flags,
        "--output",
        choices=("table", "json"),
        default="table",
        help="a table for people or JSON for machines",
    )


def run_client(coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a command on an event loop of its own. Raises CommandFailed for what the cluster refuses."""
    try:
        return asyncio.run(coroutine)
    except NoBrokerReachable as error:
        raise CommandFailed(
            f"{error.message}. Is the cluster up? -b HOST:PORT or OTTLA_BOOTSTRAP says where"
        ) from error
    except KafkaError as error:
        raise CommandFailed(f"{error.message} ({error.code.name})") from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def key_values(pairs: list[str], flag: str) -> dict[str, str]:
    """``key=value`` arguments of `flag` as a mapping. Raises UsageError."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{flag} takes key=value, not {pair!r}")
        values[key] = value
    return values
