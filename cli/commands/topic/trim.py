"""`ottla topic trim`: deletes the records below an offset of each partition, after a confirmation."""

from __future__ import annotations

import argparse
import time

from ....client.admin import Admin
from ....client.admin.records import EARLIEST, LATEST, TO_THE_END, Found
from ....client.admin.trim import CannotTrim, check_within_ends
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...arguments.selection import named_partitions, partition_offsets, timestamp_ms
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...run_client import raise_refusals, run_client
from ...terminal.confirmation import confirm
from ...terminal.output import print_json, print_table
from ...terminal.text import counted


def trim(arguments: argparse.Namespace) -> None:
    """Delete the records of topics below an offset or older than a time, after a confirmation."""
    has_offsets = any("=" in name for name in arguments.names)
    if has_offsets == (arguments.offset is not None or arguments.timestamp is not None):
        raise UsageError(
            "topic trim: say up to where, either with --offset or --timestamp, or as TOPIC:PARTITION,...=OFFSET"
        )
    end = arguments.offset in ("end", "latest")
    if arguments.offset is not None and not end and not arguments.offset.isdecimal():
        raise UsageError(f"--offset takes a number or end, not {arguments.offset!r}")
    stamp = (
        None if arguments.timestamp is None else timestamp_ms(arguments.timestamp, int(time.time() * 1000))
    )
    starts, before = run_client(_offsets(arguments, end, stamp))
    raise_refusals(
        {_name(partition): at for partition, at in (starts | before).items() if isinstance(at, KafkaError)}
    )
    first = {partition: at for partition, at in starts.items() if isinstance(at, int)}
    wanted = {partition: at for partition, at in before.items() if isinstance(at, int)}
    deleted = sum(max(0, at - first[partition]) for partition, at in wanted.items())
    if not arguments.dry_run:
        topics = ", ".join(dict.fromkeys(partition.topic for partition in wanted))
        if deleted:
            confirm(
                f"Delete up to {counted(deleted, 'record')} from {counted(len(wanted), 'partition')} of {topics}?",
                yes=arguments.yes,
            )
        wanted = run_client(
            _delete(
                arguments,
                {partition: at for partition, at in wanted.items() if at > first[partition]},
                wanted,
            )
        )
    rows = [
        (partition.topic, partition.partition, first[partition], at)
        for partition, at in sorted(wanted.items())
    ]
    if arguments.output == "json":
        print_json(
            [
                {"topic": topic, "partition": index, "old_start": old, "new_start": new}
                for topic, index, old, new in rows
            ]
        )
    else:
        columns = ("TOPIC", "PARTITION", "OLD-START", "NEW-START")
        print_table(columns, rows, wide=arguments.output == "wide")


async def _offsets(arguments: argparse.Namespace, end: bool, stamp: int | None) -> tuple[Found, Found]:
    async with Admin(**connection_of(arguments)) as admin:
        existing = {topic.name: topic.partitions for topic in await admin.describe_topics()}
        named = partition_offsets(arguments.names, existing)
        partitions = [
            TopicPartition(*partition) for partition in named or named_partitions(arguments.names, existing)
        ]
        starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        if stamp is None and not end:
            below = {
                partition: named[partition] if named else int(arguments.offset) for partition in partitions
            }
            known = {partition: at for partition, at in ends.items() if isinstance(at, int)}
            try:
                check_within_ends({partition: below[partition] for partition in known}, known)
            except CannotTrim as error:
                raise CommandFailed(str(error)) from None
            return starts, {**below}
        if stamp is None:
            return starts, ends
        found = await admin.list_offsets(dict.fromkeys(partitions, stamp))
        return starts, {
            partition: ends[partition] if at == TO_THE_END else at for partition, at in found.items()
        }


async def _delete(
    arguments: argparse.Namespace, before: dict[TopicPartition, int], asked: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete the records below the offsets `before`, and return the new start offset of every partition in `asked`.

    No request is sent for a partition that has no records below its offset.
    """
    async with Admin(**connection_of(arguments)) as admin:
        answers = await admin.delete_records(before) if before else {}
        starts = await admin.list_offsets(dict.fromkeys(asked, EARLIEST))
    raise_refusals({_name(partition): at for partition, at in answers.items() if isinstance(at, KafkaError)})
    return {partition: at for partition, at in (starts | answers).items() if isinstance(at, int)}


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
