"""`ottla group delete`: deletes whole groups, or their offsets of some topics."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from ....client.admin import Admin
from ....client.admin.group_seek import is_share_group, kept_offsets
from ....client.records import TopicPartition
from ...arguments.selection import select, topic_partitions
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...missing_names import refusal_of_names, refuse_missing
from ...run_client import refusal, run_client
from ...terminal.confirmation import confirm, is_asked
from ...terminal.output import print_json, print_table
from ...terminal.shades import state
from ...terminal.text import counted

Settled = list[tuple[str, str]]
"""Results by what was deleted: the text of the refusal, empty for a success."""


def delete(arguments: argparse.Namespace) -> None:
    """Delete groups, or with `--topic` their committed offsets, after a confirmation, and print each result."""
    names = run_client(_names(arguments))
    listed = ", ".join(names)
    if arguments.topic:
        topics = named(arguments.topic)
        chosen = run_client(_offsets_of(arguments, names, topics))
        confirm(f"Delete the offsets of {', '.join(arguments.topic)} in {listed}?", yes=arguments.yes)
        settled = run_client(_delete_offsets(arguments, chosen))
    else:
        what = f"{counted(len(names), 'group')} with all offsets: {listed}"
        confirm(f"Delete {what}?", yes=arguments.yes)
        settled = run_client(_delete_groups(arguments, names))
    results = [(what, "failed" if why else "deleted") for what, why in settled]
    failures = [why for _, why in settled if why]
    if len(failures) < len(results):
        if arguments.output == "json":
            print_json([{"group": what, "result": result} for what, result in results])
        else:
            print_table(("GROUP", "RESULT"), [(what, state(result)) for what, result in results])
    if failures:
        raise CommandFailed("; ".join(failures))


def named(texts: Sequence[str]) -> dict[str, list[int] | None]:
    """Parse texts such as `orders` and `orders:0,2-4` into partitions by topic.

    None stands for all partitions, even if the same topic is also named with partitions. Raises UsageError.
    """
    found: dict[str, list[int] | None] = {}
    for topic, indexes in map(topic_partitions, texts):
        known = found.get(topic, [])
        found[topic] = None if known is None or indexes is None else known + indexes
    return found


async def _names(arguments: argparse.Namespace) -> list[str]:
    """Return the named groups. A group that does not exist is refused before the question for confirmation."""
    names = list(dict.fromkeys(arguments.names))
    if not arguments.regex and not is_asked(yes=arguments.yes):
        return names
    async with Admin(**connection_of(arguments)) as admin:
        if not arguments.regex:
            await refuse_missing(admin, names, "group")
            return names
        known = [group.group_id for group in await admin.list_groups()]
    return select(known, arguments.names, "group", regex=True)


async def _delete_groups(arguments: argparse.Namespace, names: list[str]) -> Settled:
    async with Admin(**connection_of(arguments)) as admin:
        answers = await admin.delete_groups(names)
        return [
            (name, "" if error is None else await refusal_of_names(admin, [name], error))
            for name, error in answers.items()
        ]


async def _offsets_of(
    arguments: argparse.Namespace, names: list[str], topics: Mapping[str, list[int] | None]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of these topics in which each group has committed offsets, or a share group has begun.

    Raises CommandFailed if a group or topic has none, and UsageError for single partitions of a share group.
    """
    async with Admin(**connection_of(arguments)) as admin:
        for name in names if any(indexes is not None for indexes in topics.values()) else ():
            if await is_share_group(admin, name):
                raise UsageError(f"{name} is a share group, whose offsets are deleted topic by topic")
        chosen = {name: _chosen(await kept_offsets(admin, name), topics) for name in names}
        for name, partitions in chosen.items():
            if not partitions:
                raise CommandFailed(f"group {name!r} keeps no offsets of {', '.join(topics)}")
        known = {partition.topic for partitions in chosen.values() for partition in partitions}
        if missing := [topic for topic in topics if topic not in known]:
            raise CommandFailed(f"{', '.join(names)} keeps no offsets of {', '.join(missing)}")
    return chosen


async def _delete_offsets(
    arguments: argparse.Namespace, chosen: Mapping[str, list[TopicPartition]]
) -> Settled:
    """Delete the committed offsets of these partitions in each group."""
    settled: Settled = []
    async with Admin(**connection_of(arguments)) as admin:
        for name, partitions in chosen.items():
            if await is_share_group(admin, name):
                unwanted = sorted({partition.topic for partition in partitions})
                deleted = await admin.delete_share_group_offsets(name, unwanted)
                settled += [
                    (f"{name} {topic}", "" if error is None else refusal(error))
                    for topic, error in deleted.items()
                ]
                continue
            answers = await admin.delete_offsets(name, partitions)
            settled += [
                (f"{name} {partition.topic}-{partition.partition}", "" if error is None else refusal(error))
                for partition, error in answers.items()
            ]
    return settled


def _chosen(
    committed: Mapping[TopicPartition, int], topics: Mapping[str, list[int] | None]
) -> list[TopicPartition]:
    """Return the partitions in `topics` that have committed offsets; None stands for all partitions of a topic."""
    found = []
    for partition in committed:
        indexes = topics.get(partition.topic, [])
        if indexes is None or partition.partition in indexes:
            found.append(partition)
    return found
