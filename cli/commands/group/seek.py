"""What `ottla group seek` does: computes the offset at which each partition continues, shows it, and commits it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....client.admin import Admin
from ....client.admin.records import EARLIEST, LATEST, Found
from ....client.records import TopicPartition
from ....protocol.errors import ErrorCode, KafkaError
from ...arguments.selection import named_partitions, timestamp_ms
from ...asking import raise_refusals, run_client
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...terminal.output import print_json, print_table

Offsets = dict[TopicPartition, int]
MOVABLE_STATES = ("Empty", "Dead")


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: `kind` is start, end, offset, shift or timestamp."""

    kind: str
    number: int = 0


def parse_target(text: str, now_ms: int) -> Target:
    """`start`, `end`, `17`, `+5`, `-5` or `@TIME`. Raises UsageError."""
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
    """Lines of `TOPIC PARTITION OFFSET`, with blanks or commas between. Raises CommandFailed naming the
    line.
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


def within(
    wanted: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Offsets:
    """The offsets, moved to the nearest one that exists. Pure."""
    return {one: min(max(offset, starts[one]), ends[one]) for one, offset in wanted.items()}


def seek(arguments: argparse.Namespace) -> None:
    """Show before and after, and commit unless it is a dry run."""
    now_ms = int(time.time() * 1000)
    target = None if arguments.to is None else parse_target(arguments.to, now_ms)
    from_file = None if arguments.to_file is None else _read(arguments.to_file)
    before, after = run_client(_seek(arguments, target, from_file))
    rows = [(*one, before.get(one), offset) for one, offset in sorted(after.items())]
    if arguments.output == "json":
        print_json(
            [
                {"topic": topic, "partition": index, "prior_offset": old, "current_offset": new}
                for topic, index, old, new in rows
            ]
        )
    else:
        shown = [(topic, index, "-" if old is None else old, new) for topic, index, old, new in rows]
        print_table(("TOPIC", "PARTITION", "PRIOR-OFFSET", "CURRENT-OFFSET"), shown)


def _read(name: str) -> Offsets:
    if name == "-":
        return parse_offsets(sys.stdin, "standard input")
    try:
        return parse_offsets(Path(name).read_text(encoding="utf-8").splitlines(), name)
    except UnicodeDecodeError:
        raise CommandFailed(f"{name} is not a text file") from None


async def _seek(
    arguments: argparse.Namespace, target: Target | None, from_file: Offsets | None
) -> tuple[Offsets, Offsets]:
    async with Admin(**connection_of(arguments)) as admin:
        await _refuse_with_members(admin, arguments.group)
        before = await admin.committed_offsets(arguments.group)
        given = from_file
        if arguments.to_group is not None:
            given = await admin.committed_offsets(arguments.to_group)
            if not given:
                raise CommandFailed(f"group {arguments.to_group!r} keeps no offsets")
        partitions = await _partitions(admin, arguments, before if given is None else given)
        starts = _known(await admin.list_offsets(dict.fromkeys(partitions, EARLIEST)))
        ends = _known(await admin.list_offsets(dict.fromkeys(partitions, LATEST)))
        if given is not None:
            wanted = {one: given[one] for one in partitions if one in given}
        else:
            assert target is not None
            wanted = await _wanted(admin, target, partitions, before, (starts, ends))
        after = within(wanted, starts, ends)
        if not arguments.dry_run and after:
            settled = await admin.alter_offsets(arguments.group, after)
            raise_refusals({f"{one.topic}-{one.partition}": e for one, e in settled.items() if e is not None})
    return before, after


async def _refuse_with_members(admin: Admin, name: str) -> None:
    """Offsets of a living group are its members' business; a group that does not exist comes into being."""
    try:
        (group,) = await admin.describe_groups([name])
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if group.members or group.state not in MOVABLE_STATES:
        raise CommandFailed(
            f"group {name!r} is {group.state} with {len(group.members)} members: stop them first, "
            "they would commit over it"
        )


async def _partitions(admin: Admin, arguments: argparse.Namespace, known: Offsets) -> list[TopicPartition]:
    """What was named, or what there are offsets of."""
    if not arguments.topic:
        if not known:
            raise CommandFailed(f"group {arguments.group!r} keeps no offsets: name topics with --topic")
        return sorted(known)
    existing = {topic.name: topic.partitions for topic in await admin.describe_topics()}
    return [TopicPartition(*one) for one in named_partitions(arguments.topic, existing)]


async def _wanted(
    admin: Admin,
    target: Target,
    partitions: list[TopicPartition],
    before: Offsets,
    bounds: tuple[Offsets, Offsets],
) -> Offsets:
    starts, ends = bounds
    if target.kind == "start":
        return {one: starts[one] for one in partitions}
    if target.kind == "end":
        return {one: ends[one] for one in partitions}
    if target.kind == "offset":
        return dict.fromkeys(partitions, target.number)
    if target.kind == "shift":
        if lost := [one for one in partitions if one not in before]:
            one = lost[0]
            raise CommandFailed(f"the group has no offset of {one.topic}-{one.partition} to count from")
        return {one: before[one] + target.number for one in partitions}
    found = _known(await admin.list_offsets(dict.fromkeys(partitions, target.number)))
    return {one: ends[one] if offset < 0 else offset for one, offset in found.items()}


def _known(found: Found) -> Offsets:
    """Raises CommandFailed where a leader did not tell."""
    raise_refusals(
        {f"{one.topic}-{one.partition}": at for one, at in found.items() if isinstance(at, KafkaError)}
    )
    return {one: at for one, at in found.items() if isinstance(at, int)}
