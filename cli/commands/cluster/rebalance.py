"""`ottla cluster rebalance` and `ottla cluster decommission`: plan and carry out moves of replicas."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from ....client.admin import Admin, ClusterDescription
from ....client.admin.reassignment_plan import NoPlan, plan
from ....client.connections.metadata import TopicInfo
from ....client.records import TopicPartition
from ...connection.precedence import connection_of
from ...failures import CommandFailed
from ...run_client import run_client
from ...terminal.confirmation import confirm
from ...terminal.output import numbers
from ...terminal.text import say
from .moves import Move, Moves, carry_moves_out


def rebalance(arguments: argparse.Namespace) -> None:
    """Plan moves that spread replicas evenly over all live brokers, and carry them out."""
    moves, _ = run_client(_planned(arguments, None))
    carry_moves_out(arguments, moves)


def decommission(arguments: argparse.Namespace) -> None:
    """Move all replicas off a broker.

    Unregister the broker if it is down; otherwise print that it may be stopped now.
    """
    moves, is_up = run_client(_planned(arguments, arguments.broker))
    carry_moves_out(arguments, moves)
    if arguments.dry_run or (moves and arguments.no_wait):
        return
    if is_up:
        say(
            f"broker {arguments.broker} holds no replicas: stop it, then 'ottla cluster decommission "
            f"{arguments.broker}' again to forget it"
        )
        return
    confirm(f"Forget broker {arguments.broker} for good?", yes=arguments.yes)
    run_client(_unregister(arguments))
    say(f"broker {arguments.broker} is no part of the cluster any more")


async def _unregister(arguments: argparse.Namespace) -> None:
    async with Admin(**connection_of(arguments)) as admin:
        await admin.unregister_broker(arguments.broker)


async def _planned(arguments: argparse.Namespace, leaving: int | None) -> tuple[Moves, bool]:
    """Return the planned replica moves, and whether the leaving broker (None for a rebalance) is live."""
    async with Admin(**connection_of(arguments)) as admin:
        cluster = await admin.describe_cluster()
        topics = await admin.describe_topics()
        partitions = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
        sizes = await admin.partition_sizes(partitions)
        if await admin.list_partition_reassignments():
            raise CommandFailed("other moves are under way: 'ottla cluster reassign --list' shows them")
    replicas: dict[tuple[str, int], Sequence[int]] = {
        (topic.name, partition.index): partition.replicas
        for topic in topics
        for partition in topic.partitions.values()
    }
    live = {broker.id: broker.rack for broker in cluster.brokers}
    if leaving is not None:
        _refuse_unknown(replicas.values(), cluster, leaving)
    _refuse_others_down(topics, cluster, leaving)
    costs: dict[tuple[str, int], int] = {
        (partition.topic, partition.partition): size for partition, size in sizes.items()
    }
    gone = [] if leaving is None else [leaving]
    try:
        found = plan(replicas, live, leaving=gone, sizes=costs, hosts=cluster.hosts, balance=leaving is None)
    except NoPlan as error:
        raise CommandFailed(str(error)) from None
    moves = {
        TopicPartition(*key): Move(move.before, move.after, move.bytes_moved)
        for key, move in found.moves.items()
    }
    return moves, leaving in live


def _refuse_unknown(replicas: Iterable[Sequence[int]], cluster: ClusterDescription, broker_id: int) -> None:
    """Raise CommandFailed if a broker is neither registered nor holds a replica."""
    registered = {broker.id for broker in cluster.brokers} | set(cluster.fenced)
    if broker_id not in registered and not any(broker_id in placed for placed in replicas):
        raise CommandFailed(f"there is no broker {broker_id}; there are {numbers(sorted(registered))}")


def _refuse_others_down(topics: list[TopicInfo], cluster: ClusterDescription, leaving: int | None) -> None:
    """Raise CommandFailed while a broker other than `leaving` is down, since its replicas would be copied elsewhere
    needlessly."""
    live = {broker.id for broker in cluster.brokers}
    holding = {
        broker for topic in topics for partition in topic.partitions.values() for broker in partition.replicas
    }
    if down := sorted(holding - live - {leaving}):
        raise CommandFailed(
            f"broker {numbers(down)} holds replicas and is down: start it, or decommission it first"
        )
