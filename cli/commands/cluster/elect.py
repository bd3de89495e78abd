"""`ottla cluster elect`: elects preferred leaders, or unclean leaders of partitions without a leader."""

from __future__ import annotations

import argparse

from ....client.admin import Admin
from ....client.records import TopicPartition
from ....protocol.errors import ErrorCode, KafkaError
from ...arguments.selection import named_partitions
from ...connection.precedence import connection_of
from ...run_client import raise_refusals, run_client
from ...terminal.confirmation import confirm, is_asked
from ...terminal.output import print_json, print_table
from ...terminal.shades import state


def elect(arguments: argparse.Namespace) -> None:
    """Elect leaders of the partitions of the named topics, or of all topics, and print the result for each
    partition."""
    if arguments.unclean:
        if is_asked(yes=arguments.yes):
            run_client(_named(arguments))
        where = ", ".join(arguments.topic) or "every topic"
        confirm(
            f"Let out-of-sync replicas lead partitions of {where} that have no leader? Records may be lost",
            yes=arguments.yes,
        )
    results = run_client(_elect(arguments))
    rows = [(*partition, _result(error)) for partition, error in sorted(results.items())]
    if arguments.output == "json":
        print_json([{"topic": topic, "partition": index, "result": word} for topic, index, word in rows])
    else:
        print_table(
            ("TOPIC", "PARTITION", "RESULT"),
            [(topic, index, state(word)) for topic, index, word in rows],
            empty="There is nothing to elect.",
            wide=arguments.output == "wide",
        )
    raise_refusals(
        {
            f"{partition[0]}-{partition[1]}": e
            for partition, e in results.items()
            if e is not None and not _needless(e)
        }
    )


def _result(error: KafkaError | None) -> str:
    if error is None:
        return "elected"
    return "needed none" if _needless(error) else "failed"


def _needless(error: KafkaError) -> bool:
    return error.code == ErrorCode.ELECTION_NOT_NEEDED


async def _named(arguments: argparse.Namespace) -> list[TopicPartition] | None:
    """Return the named partitions; None stands for all. Raises CommandFailed for a partition that does not exist."""
    if not arguments.topic:
        return None
    async with Admin(**connection_of(arguments)) as admin:
        existing = {topic.name: topic.partitions for topic in await admin.describe_topics()}
    return [TopicPartition(*partition) for partition in named_partitions(arguments.topic, existing)]


async def _elect(arguments: argparse.Namespace) -> dict[TopicPartition, KafkaError | None]:
    partitions = await _named(arguments)
    async with Admin(**connection_of(arguments)) as admin:
        return await admin.elect_leaders(partitions, unclean=arguments.unclean)
