"""`ottla mirror create` and `reconnect`: read the connection options of the source cluster; `create --wait` waits for
the copies."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path

from ....client.admin import Admin, MirrorDescription
from ....client.foreign_names import JAVA, LIBRDKAFKA, is_secret
from ....client.security.foreign_options import is_about_connections
from ....client.security.options import SecurityOptions
from ...arguments.options import key_values
from ...arguments.selection import bytes_of, timestamp_ms
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...nodes.config_providers import resolve
from ...nodes.settings import parse_properties, read_text
from ...run_client import run_client
from ...terminal.output import print_json, print_table
from ...terminal.progress import ProgressLine
from ...terminal.text import note
from .report import progress, stopped

LOOK_AGAIN_S = 0.5
NEAR_MS = 1_000
"""Milliseconds of delay below which a copy counts as caught up, since a busy topic's copy is never complete."""


def create(arguments: argparse.Namespace) -> None:
    """Create a mirror; with `--wait`, wait until its copies have caught up."""
    start = _start(arguments.start)
    options = source_options(arguments.source_option, arguments.source_options_file)
    source_id = run_client(_create(arguments, start, options), waits_for=source_asked(arguments))
    result = "checked" if arguments.dry_run else "created"
    if arguments.wait and not arguments.dry_run:
        try:
            run_client(_follow(arguments), waits_for=None)
        except KeyboardInterrupt:
            note(f"the mirror goes on: 'ottla mirror status {arguments.name}' shows it")
            raise
        result = "caught up"
    if arguments.output == "json":
        print_json({"name": arguments.name, "source_cluster_id": source_id, "result": result})
    else:
        print_table(("MIRROR", "SOURCE-CLUSTER", "RESULT"), [(arguments.name, source_id, result)])


def reconnect(arguments: argparse.Namespace) -> None:
    """Replace the address or the connection options with which brokers reach a mirror's source cluster."""
    options = source_options(arguments.source_option, arguments.source_options_file)
    run_client(_reconnect(arguments, options), waits_for=source_asked(arguments))
    if arguments.output == "json":
        print_json({"name": arguments.name, "result": "reconnected"})
    else:
        print_table(("MIRROR", "RESULT"), [(arguments.name, "reconnected")])


async def _reconnect(arguments: argparse.Namespace, options: dict[str, str]) -> None:
    async with Admin(**connection_of(arguments)) as admin:
        await admin.reconnect_mirror(arguments.name, source=arguments.source, options=options)


async def _create(arguments: argparse.Namespace, start: str | int, options: dict[str, str]) -> str:
    async with Admin(**connection_of(arguments)) as admin:
        return await admin.create_mirror(
            arguments.name,
            source=arguments.source,
            topics=arguments.topics,
            groups=arguments.groups,
            start=start,  # type: ignore[arg-type]
            options=options,
            bandwidth=bandwidth_of(arguments.bandwidth),
            acls=arguments.acls,
            validate_only=arguments.dry_run,
        )


async def _follow(arguments: argparse.Namespace) -> None:
    """Wait until each copy of the mirror has once caught up with its source.

    Raises CommandFailed if a fault stops a copy.
    """
    caught_up: set[tuple[str, int]] = set()
    with ProgressLine() as line:
        async with Admin(**connection_of(arguments)) as admin:
            while True:
                (mirror,) = await admin.describe_mirrors([arguments.name])
                if faults := stopped(mirror):
                    line.end(progress(mirror))
                    raise CommandFailed(
                        f"{len(faults)} partitions have stopped: 'ottla mirror status {mirror.name}' shows why"
                    )
                copies = {
                    (topic.name, partition.partition)
                    for topic in mirror.topics
                    for partition in topic.partitions
                }
                caught_up |= _near(mirror)
                if copies and copies <= caught_up:
                    line.end(progress(mirror))
                    return
                line.show(progress(mirror))
                await asyncio.sleep(LOOK_AGAIN_S)


def source_asked(arguments: argparse.Namespace) -> str:
    """Return the name of the source cluster for people: a broker connects to it before it answers."""
    where = f" at {arguments.source}" if arguments.source else ""
    return f"the source{where}, which a broker of the cluster asks"


def _near(mirror: MirrorDescription) -> set[tuple[str, int]]:
    return {
        (topic.name, partition.partition)
        for topic in mirror.topics
        for partition in topic.partitions
        if partition.lag == 0 or (partition.behind_ms is not None and partition.behind_ms <= NEAR_MS)
    }


def _start(text: str) -> str | int:
    if text in ("earliest", "latest"):
        return text
    try:
        return timestamp_ms(text, int(time.time() * 1000))
    except UsageError as error:
        raise UsageError(f"--start takes earliest, latest or a time: {error}") from None


def bandwidth_of(text: str) -> int:
    """Parse `--bandwidth` of a mirror into bytes/s; 0, no limit, for `none`. Raises UsageError."""
    if text == "none":
        return 0
    found = bytes_of(text, "--bandwidth")
    if not found:
        raise UsageError("--bandwidth 0: pause the mirror to copy nothing, or write none for no limit")
    return found


def source_options(pairs: list[str], file: Path | None) -> dict[str, str]:
    """Return the options of the brokers' connections to a mirror's source cluster.

    `pairs` override those in `file`. Raises UsageError and CommandFailed.
    """
    given = key_values(pairs, "--source-option")
    for name in given:
        if is_secret(name):
            raise UsageError(
                f"--source-option {name}: other users could see it in the list of processes. "
                "--source-options-file takes secrets"
            )
    return (_of_file(file) if file is not None else {}) | given


def _of_file(file: Path) -> dict[str, str]:
    properties = resolve(parse_properties(read_text(file), file), os.environ, note).values
    others = sorted(name for name in properties if not _is_option(name))
    if others:
        note(f"{file}: ignored, since not about connections: {', '.join(others)}")
    return {name: value for name, value in properties.items() if name not in others}


def _is_option(name: str) -> bool:
    if {**LIBRDKAFKA, **JAVA}.get(name) in ("bootstrap_servers", "client_id"):
        return False
    return name in (*SecurityOptions.__dataclass_fields__, *LIBRDKAFKA) or is_about_connections(name)
