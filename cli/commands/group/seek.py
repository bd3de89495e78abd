"""`ottla group seek`: computes, prints and stores the offset at which a group continues to read each partition."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from ....client.admin import Admin
from ....client.admin.group_seek import (
    CannotSeek,
    Offsets,
    Target,
    check_has_no_members,
    kept_offsets,
    move_offsets,
    offsets_after,
)
from ....client.records import TopicPartition
from ....protocol.nearest import nearest
from ...arguments.selection import named_partitions, partition_offsets, timestamp_ms
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...run_client import raise_refusals, run_client
from ...terminal.output import print_json, print_table


def parse_target(text: str, now_ms: int) -> Target:
    """Parse the target of committed offsets: `start`, `end`, `17`, `+5`, `-5` or `@TIME`. Raises UsageError."""
    if text in ("start", "beginning", "earliest"):
        return Target("start")
    if text in ("end", "latest"):
        return Target("end")
    if text.startswith("@"):
        return Target("timestamp", timestamp_ms(text[1:], now_ms))
    if text[:1] in ("+", "-") and text[1:].isdecimal():
        return Target("shift", int(text))
    if text.isdecimal():
        return Target("offset", int(text))
    raise UsageError(f"--to takes start, end, an offset, +N, -N or @TIME, not {text!r}")


def parse_offsets(lines: Iterable[str], where: str) -> Offsets:
    """Parse offsets by partition from lines `TOPIC PARTITION OFFSET`, separated by blanks or commas.

    Raises CommandFailed, which names the source `where` and the number of the malformed line.
    """
    offsets: Offsets = {}
    for number, line in enumerate(lines, 1):
        fields = line.replace(",", " ").split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 3 or not fields[1].isdecimal() or not fields[2].isdecimal():
            raise CommandFailed(
                f"{where}, line {number}: expected TOPIC PARTITION OFFSET, found {line.strip()!r}"
            )
        offsets[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
    if not offsets:
        raise CommandFailed(f"{where} holds no offsets")
    return offsets


def seek(arguments: argparse.Namespace) -> None:
    """Print a group's committed offsets, or a share group's start offsets, before and after the move. Move them unless
    it is a dry run."""
    named = [text for text in arguments.topic if "=" in text]
    ways = [way for way in (arguments.to, arguments.to_group, arguments.to_file) if way is not None]
    if bool(named) == bool(ways):
        raise UsageError(
            "group seek: say where to, either with --to, --to-group or --to-file, or as "
            "--topic TOPIC:PARTITION,...=OFFSET"
        )
    now_ms = int(time.time() * 1000)
    target = None if arguments.to is None else parse_target(arguments.to, now_ms)
    from_file = None if arguments.to_file is None else _read(arguments.to_file)
    before, after = run_client(_seek(arguments, target, from_file))
    rows = [(*partition, before.get(partition), offset) for partition, offset in sorted(after.items())]
    if arguments.output == "json":
        print_json(
            [
                {"topic": topic, "partition": index, "prior_offset": old, "current_offset": new}
                for topic, index, old, new in rows
            ]
        )
    else:
        shown = [(topic, index, "-" if old is None else old, new) for topic, index, old, new in rows]
        columns = ("TOPIC", "PARTITION", "PRIOR-OFFSET", "CURRENT-OFFSET")
        print_table(columns, shown, wide=arguments.output == "wide")


def _read(name: str) -> Offsets:
    if name == "-":
        if sys.stdin is None:
            raise CommandFailed("standard input is closed: name a file")
        return parse_offsets(sys.stdin, "standard input")
    try:
        return parse_offsets(Path(name).read_text(encoding="utf-8").splitlines(), name)
    except UnicodeDecodeError:
        raise CommandFailed(f"{name} is not a text file") from None


async def _seek(
    arguments: argparse.Namespace, target: Target | None, from_file: Offsets | None
) -> tuple[Offsets, Offsets]:
    async with Admin(**connection_of(arguments)) as admin:
        try:
            await check_has_no_members(admin, arguments.group)
            before = await kept_offsets(admin, arguments.group)
            to = target or from_file
            if arguments.to_group is not None:
                to = await kept_offsets(admin, arguments.to_group)
                if not to:
                    raise CommandFailed(f"group {arguments.to_group!r} keeps no offsets")
            if to is None:
                to = await _named_offsets(admin, arguments)
            partitions = await _partitions(admin, arguments, before if isinstance(to, Target) else to)
            after = await offsets_after(admin, to, partitions, before)
        except CannotSeek as error:
            raise CommandFailed(str(error)) from None
        if not arguments.dry_run and after:
            settled = await move_offsets(admin, arguments.group, after)
            raise_refusals(
                {
                    f"{partition.topic}-{partition.partition}": e
                    for partition, e in settled.items()
                    if e is not None
                }
            )
    return before, after


async def _named_offsets(admin: Admin, arguments: argparse.Namespace) -> Offsets:
    """Return the offsets by partition that options such as `--topic orders:0=42` give."""
    offsets = partition_offsets(arguments.topic, await _existing(admin)) or {}
    return {TopicPartition(*partition): offset for partition, offset in offsets.items()}


async def _partitions(admin: Admin, arguments: argparse.Namespace, known: Offsets) -> list[TopicPartition]:
    """Return the partitions named by `--topic`, or else the partitions with committed offsets (`known`)."""
    if not arguments.topic:
        if not known:
            meant = nearest(arguments.group, [group.group_id for group in await admin.list_groups()])
            hint = f"; did you mean {meant!r}?" if meant else ""
            raise CommandFailed(f"group {arguments.group!r} keeps no offsets: name topics with --topic{hint}")
        return sorted(known)
    names = [text.partition("=")[0] for text in arguments.topic]
    return [TopicPartition(*partition) for partition in named_partitions(names, await _existing(admin))]


async def _existing(admin: Admin) -> dict[str, Collection[int]]:
    return {topic.name: topic.partitions for topic in await admin.describe_topics()}
