"""`ottla topic create`, `alter`, `add-partitions` and `delete`: change topics one by one and print each result."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence

from ....client.admin import TOPIC_RESOURCE, Admin, NewTopic
from ....protocol.errors import ErrorCode, KafkaError
from ...arguments.config_values import check_keys, config_values
from ...arguments.selection import select
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...missing_names import refusal_of_names, refuse_missing
from ...run_client import run_client
from ...terminal.confirmation import confirm, is_asked
from ...terminal.output import print_json, print_table
from ...terminal.shades import state
from ...terminal.text import counted

Act = Callable[[Admin, str], Awaitable[str]]


def create(arguments: argparse.Namespace) -> None:
    """Create the named topics."""
    for flag, number in (("-p", arguments.partitions), ("-r", arguments.replication_factor)):
        if number != -1 and number < 1:
            raise UsageError(
                f"{flag} takes 1 or more, not {number}; without it the cluster's default applies"
            )
    configs = config_values(arguments.config, "--config")

    async def create_topic(admin: Admin, name: str) -> str:
        topic = NewTopic(name, arguments.partitions, arguments.replication_factor, configs=configs)
        try:
            await admin.create_topics([topic], validate_only=arguments.dry_run)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not arguments.if_not_exists:
                raise
            return "exists"
        return "checked" if arguments.dry_run else "created"

    run_client(_for_each(arguments, arguments.names, create_topic))


def alter(arguments: argparse.Namespace) -> None:
    """Set and unset settings of the named topics."""
    changes: dict[str, str | None] = {**config_values(arguments.set, "--set")}
    if not changes and not arguments.unset:
        raise UsageError("topic alter: say what to change with --set KEY=VALUE or --unset KEY")
    if both := [key for key in arguments.unset if key in changes]:
        raise UsageError(f"topic alter: {both[0]} is given with --set and with --unset")
    changes |= dict.fromkeys(arguments.unset)

    async def alter_topic(admin: Admin, name: str) -> str:
        if arguments.unset:
            entries = await admin.describe_configs(TOPIC_RESOURCE, name)
            check_keys(arguments.unset, [entry.name for entry in entries])
        await admin.alter_configs(TOPIC_RESOURCE, name, changes, validate_only=arguments.dry_run)
        return "checked" if arguments.dry_run else "altered"

    run_client(_for_each(arguments, _named(arguments), alter_topic))


def add_partitions(arguments: argparse.Namespace) -> None:
    """Raise the number of partitions of the named topics."""
    if arguments.num is not None and arguments.num < 1:
        raise UsageError(f"--num takes 1 or more, not {arguments.num}")

    async def grow(admin: Admin, name: str) -> str:
        (topic,) = await admin.describe_topics([name])
        total = arguments.to if arguments.num is None else len(topic.partitions) + arguments.num
        await admin.create_partitions(name, total, validate_only=arguments.dry_run)
        return "checked" if arguments.dry_run else counted(total, "partition")

    run_client(_for_each(arguments, arguments.names, grow))


def delete(arguments: argparse.Namespace) -> None:
    """Delete the named topics after a confirmation."""
    names = _named(arguments)
    if is_asked(yes=arguments.yes) and not arguments.if_exists:
        run_client(_refuse_missing(arguments, names))
    what = f"{counted(len(names), 'topic')} with all records: {', '.join(names)}"
    confirm(f"Delete {what}?", yes=arguments.yes)

    async def delete_topic(admin: Admin, name: str) -> str:
        try:
            await admin.delete_topics([name])
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not arguments.if_exists:
                raise
            return "absent"
        return "deleted"

    run_client(_for_each(arguments, names, delete_topic))


def _named(arguments: argparse.Namespace) -> list[str]:
    """Return the named topics.

    Patterns match existing topics, but never the cluster's internal topics.
    """
    if not arguments.regex:
        return list(dict.fromkeys(arguments.names))

    async def existing() -> list[str]:
        async with Admin(**connection_of(arguments)) as admin:
            return [topic.name for topic in await admin.describe_topics() if not topic.is_internal]

    return select(run_client(existing()), arguments.names, "topic", regex=True)


async def _refuse_missing(arguments: argparse.Namespace, names: Sequence[str]) -> None:
    async with Admin(**connection_of(arguments)) as admin:
        await refuse_missing(admin, names, "topic")


async def _for_each(arguments: argparse.Namespace, names: Sequence[str], act: Act) -> None:
    """Call `act` for every named topic, even if some fail, and print each result."""
    results: list[tuple[str, str]] = []
    failures: list[str] = []
    async with Admin(**connection_of(arguments)) as admin:
        for name in names:
            try:
                results.append((name, await act(admin, name)))
            except KafkaError as error:
                results.append((name, "failed"))
                failures.append(await refusal_of_names(admin, [name], error))
    if len(failures) < len(results):
        if arguments.output == "json":
            print_json([{"topic": name, "result": result} for name, result in results])
        else:
            print_table(("TOPIC", "RESULT"), [(name, state(result)) for name, result in results])
    if failures:
        raise CommandFailed("; ".join(failures))
