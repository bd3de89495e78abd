"""`ottla cluster reassign`: starts moves of replicas, or lists or cancels the moves under way."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence

from ....client.admin import Admin, OngoingReassignment
from ....client.records import TopicPartition
from ...arguments.selection import broker_ids, name_missing, named_partitions
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...run_client import raise_refusals, run_client
from ...terminal.confirmation import confirm
from ...terminal.output import numbers, print_json, print_table
from ...terminal.text import counted, say
from .moves import Move, Moves, carry_moves_out, read_plan


def reassign(arguments: argparse.Namespace) -> None:
    """List or cancel the replica moves under way, lift throttles, or move partitions, as the options say."""
    if arguments.list:
        _show(arguments, run_client(_ongoing(arguments)))
    elif arguments.cancel:
        _cancel(arguments)
    elif arguments.unthrottle:
        run_client(_unthrottle(arguments))
    else:
        if bool(arguments.file) == bool(arguments.topic and arguments.replicas):
            raise UsageError(
                "cluster reassign: give a FILE, or --topic and --replicas; or --list or --cancel"
            )
        carry_moves_out(arguments, run_client(_moves(arguments)))


async def _moves(arguments: argparse.Namespace) -> Moves:
    async with Admin(**connection_of(arguments)) as admin:
        topics = {topic.name: topic for topic in await admin.describe_topics()}
        if arguments.file:
            plan = read_plan(arguments.file)
        else:
            after = broker_ids(arguments.replicas, "--replicas")
            existing = {name: topic.partitions for name, topic in topics.items()}
            plan = {
                TopicPartition(*partition): after for partition in named_partitions(arguments.topic, existing)
            }
        cluster = await admin.describe_cluster()
        check_brokers(plan, {broker.id for broker in cluster.brokers} | set(cluster.fenced))
        moves: Moves = {}
        sizes = await admin.partition_sizes(plan)
        for partition, replicas in plan.items():
            if partition.topic not in topics:
                raise name_missing(partition.topic, topics, "topic")
            info = topics[partition.topic].partitions.get(partition.partition)
            if info is None:
                raise CommandFailed(f"there is no partition {partition.partition} of {partition.topic}")
            copies = sum(broker_id not in info.replicas for broker_id in replicas)
            moves[partition] = Move(info.replicas, tuple(replicas), copies * sizes.get(partition, 0))
    return moves


def check_brokers(plan: Mapping[TopicPartition, Sequence[int]], registered: Collection[int]) -> None:
    """Raise CommandFailed if the plan names a broker that is not registered."""
    for partition, replicas in plan.items():
        if absent := [broker_id for broker_id in replicas if broker_id not in registered]:
            raise CommandFailed(
                f"{partition.topic}-{partition.partition}: there is no broker {numbers(absent)}; "
                f"there are {numbers(sorted(registered))}"
            )


async def _ongoing(arguments: argparse.Namespace) -> dict[TopicPartition, OngoingReassignment]:
    async with Admin(**connection_of(arguments)) as admin:
        found = await admin.list_partition_reassignments()
    return {TopicPartition(*partition): move for partition, move in sorted(found.items())}


def _show(arguments: argparse.Namespace, ongoing: dict[TopicPartition, OngoingReassignment]) -> None:
    if arguments.output == "json":
        print_json(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": move.replicas,
                    "adding": move.adding,
                    "removing": move.removing,
                }
                for partition, move in ongoing.items()
            ]
        )
    else:
        rows = [
            (*partition, numbers(move.replicas), numbers(move.adding), numbers(move.removing))
            for partition, move in ongoing.items()
        ]
        print_table(
            ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"),
            rows,
            empty="No partition is being reassigned.",
            wide=arguments.output == "wide",
        )


def _cancel(arguments: argparse.Namespace) -> None:
    ongoing = run_client(_ongoing(arguments))
    if arguments.file:
        wanted = set(read_plan(arguments.file))
    elif arguments.topic:
        wanted = set(run_client(_named(arguments)))
    else:
        wanted = set(ongoing)
    chosen = {partition: move for partition, move in ongoing.items() if partition in wanted}
    _show(arguments, chosen)
    if not chosen or arguments.dry_run:
        return
    confirm(f"Cancel {counted(len(chosen), 'move')}?", yes=arguments.yes)
    run_client(_cancel_all(arguments, list(chosen)))
    if arguments.output != "json":
        say(f"{counted(len(chosen), 'move')} cancelled")


async def _named(arguments: argparse.Namespace) -> list[TopicPartition]:
    async with Admin(**connection_of(arguments)) as admin:
        existing = {topic.name: topic.partitions for topic in await admin.describe_topics()}
    return [TopicPartition(*partition) for partition in named_partitions(arguments.topic, existing)]


async def _cancel_all(arguments: argparse.Namespace, chosen: list[TopicPartition]) -> None:
    async with Admin(**connection_of(arguments)) as admin:
        settled = await admin.alter_partition_reassignments(dict.fromkeys(chosen))
    raise_refusals({f"{topic}-{index}": e for (topic, index), e in settled.items() if e is not None})


async def _unthrottle(arguments: argparse.Namespace) -> None:
    async with Admin(**connection_of(arguments)) as admin:
        brokers = [broker.id for broker in (await admin.describe_cluster()).brokers]
        await admin.lift_throttles(await admin.list_topics(), brokers)
