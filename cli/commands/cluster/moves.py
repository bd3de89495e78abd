"""Moves of replicas between brokers: reading them from Kafka's JSON, showing, starting, throttling and awaiting
them."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....client.admin import Admin
from ....client.records import TopicPartition
from ...arguments.selection import bytes_of
from ...connection.precedence import connection_of
from ...failures import CommandFailed
from ...run_client import raise_refusals, run_client
from ...terminal.confirmation import confirm
from ...terminal.output import bytes_text, numbers, print_json, print_table
from ...terminal.progress import progress_bar
from ...terminal.text import counted, note, say

LOOK_AGAIN_S = 0.3


@dataclass(frozen=True, slots=True)
class Move:
    """A move of one partition's replicas between brokers: the brokers before and after, and the number of bytes to
    copy."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes_moved: int


Moves = dict[TopicPartition, Move]


def parse_plan(text: str, where: str) -> dict[TopicPartition, list[int]]:
    """Parse Kafka's reassignment JSON into the brokers of each partition's replicas.

    Raises CommandFailed, which names the source `where` and shows the expected form.
    """
    try:
        tree = json.loads(text)
        entries = tree["partitions"]
        plan: dict[TopicPartition, list[int]] = {}
        for entry in entries:
            key = TopicPartition(str(entry["topic"]), _number(entry["partition"]))
            if key in plan:
                raise CommandFailed(f"{where}: {key.topic}-{key.partition} stands there twice")
            plan[key] = [_number(broker_id) for broker_id in entry["replicas"]]
    except (ValueError, KeyError, TypeError) as error:
        wanted = '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}'
        raise CommandFailed(
            f"{where} is no reassignment ({error or type(error).__name__}); write {wanted}"
        ) from None
    if not plan:
        raise CommandFailed(f"{where} names no partition")
    return plan


def read_plan(path: Path) -> dict[TopicPartition, list[int]]:
    """Read the reassignment JSON in a file: the brokers of each partition's replicas. Raises CommandFailed."""
    try:
        return parse_plan(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise CommandFailed(f"{path} is not a text file") from None


def as_plan(moves: Mapping[TopicPartition, Move]) -> dict[str, Any]:
    """Return the replica moves as Kafka's reassignment JSON."""
    return {
        "version": 1,
        "partitions": [
            {"topic": partition.topic, "partition": partition.partition, "replicas": list(move.after)}
            for partition, move in sorted(moves.items())
        ],
    }


def carry_moves_out(arguments: argparse.Namespace, moves: Moves) -> None:
    """Show the replica moves, ask for confirmation, start them and, unless `--no-wait` is given, wait for their end."""
    throttle = None if arguments.throttle is None else bytes_of(arguments.throttle, "--throttle")
    if throttle is not None and throttle < 1:
        raise CommandFailed("--throttle 0 would let nothing move")
    _show_plan(arguments, moves)
    if arguments.dry_run or not moves:
        return
    copied = bytes_text(sum(move.bytes_moved for move in moves.values()))
    confirm(f"Move {counted(len(moves), 'partition')}, copying {copied}?", yes=arguments.yes)
    try:
        run_client(_begin(arguments, moves, throttle))
        if not arguments.no_wait:
            run_client(_follow(arguments, moves, throttle), waits_for=None)
    except KeyboardInterrupt:
        left = "; then lift the throttle by 'ottla cluster reassign --unthrottle'" if throttle else ""
        note(
            "the moves go on: 'ottla cluster reassign --list' shows them, "
            f"'ottla cluster reassign --cancel' stops them{left}"
        )
        raise
    word = "begun" if arguments.no_wait else "done"
    if arguments.output != "json":
        say(f"{counted(len(moves), 'move')} {word}")
    if throttle and arguments.no_wait:
        note("the throttle stays until 'ottla cluster reassign --unthrottle'")


def _show_plan(arguments: argparse.Namespace, moves: Moves) -> None:
    if arguments.output == "json":
        print_json(as_plan(moves))
        return
    rows = [
        (*partition, numbers(move.before), numbers(move.after), bytes_text(move.bytes_moved))
        for partition, move in sorted(moves.items())
    ]
    print_table(
        ("TOPIC", "PARTITION", "REPLICAS", "NEW-REPLICAS", "TO-COPY"),
        rows,
        empty="No replica has to move.",
        wide=arguments.output == "wide",
    )
    if moves:
        total = sum(move.bytes_moved for move in moves.values())
        verb = "changes" if len(moves) == 1 else "change"
        say(f"{counted(len(moves), 'partition')} {verb}, {bytes_text(total)} to copy")


async def _begin(arguments: argparse.Namespace, moves: Moves, throttle: int | None) -> None:
    async with Admin(**connection_of(arguments)) as admin:
        if throttle is not None:
            brokers = {broker.id for broker in (await admin.describe_cluster()).brokers}
            changed = {partition: (move.before, move.after) for partition, move in moves.items()}
            await admin.throttle_moves(changed, brokers, throttle)
        settled = await admin.alter_partition_reassignments(
            {partition: move.after for partition, move in moves.items()}
        )
    raise_refusals({f"{topic}-{index}": e for (topic, index), e in settled.items() if e is not None})


async def _follow(arguments: argparse.Namespace, moves: Moves, throttle: int | None) -> None:
    """Wait until none of these replica moves is under way, show the progress, then lift the throttle (bytes/s)."""
    async with Admin(**connection_of(arguments)) as admin:
        with progress_bar("moving partitions", len(moves)) as progress:
            while left := [
                partition
                for partition in await admin.list_partition_reassignments(moves)
                if partition in moves
            ]:
                progress(len(moves) - len(left))
                await asyncio.sleep(LOOK_AGAIN_S)
            progress(len(moves))
        if throttle is not None:
            brokers = [broker.id for broker in (await admin.describe_cluster()).brokers]
            await admin.lift_throttles({partition.topic for partition in moves}, brokers)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value
