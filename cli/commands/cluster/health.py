"""`ottla cluster health`: missing and fenced brokers, leaderless and under-replicated partitions, and the state of the
quorum."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ....client.admin import TOPIC_RESOURCE, Admin, QuorumDescription
from ....client.connections.metadata import TopicInfo
from ....client.failures import NoBrokerReachable
from ....protocol.errors import ErrorCode, KafkaError
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...run_client import run_client
from ...terminal.output import print_json
from ...terminal.text import say

MIN_ISR = "min.insync.replicas"
QUORUM_TIMEOUT_MS = 5_000
"""Milliseconds to wait for a broker's answer about the quorum. A broker itself waits 2 s for the quorum's leader."""
LISTED_MAX = 10
"""The most partitions that a line for people names."""


@dataclass(frozen=True, slots=True)
class Health:
    """The problems of a cluster; empty lists mean that there are none. Partitions are written `topic-index`."""

    quorum_leader: int | None = None
    quorum_problem: str = ""
    """The reason for the missing leader, if a broker knows it."""
    quorum_abstaining: list[int] = field(default_factory=list)
    quorum_silent: list[int] = field(default_factory=list)
    brokers_down: list[int] = field(default_factory=list)
    brokers_fenced: list[int] = field(default_factory=list)
    offline: list[str] = field(default_factory=list)
    below_min_isr: list[str] = field(default_factory=list)
    under_replicated: list[str] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """True if the cluster has no problem."""
        return self.quorum_leader is not None and not any(
            (
                self.quorum_problem,
                self.quorum_abstaining,
                self.quorum_silent,
                self.brokers_down,
                self.brokers_fenced,
                self.offline,
                self.below_min_isr,
                self.under_replicated,
            )
        )


def assess(
    topics: Iterable[TopicInfo],
    live: Iterable[int],
    fenced: Iterable[int],
    min_isr: Mapping[str, int],
    quorum_leader: int | None,
    adding: Mapping[tuple[str, int], Collection[int]],
) -> Health:
    """Return the health of a cluster from these answers. Pure.

    A broker that holds replicas but is neither live nor fenced counts as down. Replicas that a reassignment is `adding`
    do not count as missing yet.
    """
    known = set(live)
    health = Health(quorum_leader, brokers_fenced=sorted(fenced))
    holding: set[int] = set()
    for topic in topics:
        for partition in topic.partitions.values():
            name = f"{topic.name}-{partition.index}"
            holding.update(partition.replicas)
            if partition.leader < 0:
                health.offline.append(name)
            settled = set(partition.replicas) - set(adding.get((topic.name, partition.index), ()))
            if not settled <= set(partition.isr):
                health.under_replicated.append(name)
            if len(partition.isr) < min(min_isr.get(topic.name, 1), len(settled)):
                health.below_min_isr.append(name)
    health.brokers_down.extend(sorted(holding - known - set(health.brokers_fenced)))
    return health


def health(arguments: argparse.Namespace) -> int:
    """Print the cluster's health once, repeatedly until the cluster is healthy, or until Control-C; return the exit
    code."""
    if arguments.timeout is not None and not arguments.exit_when_healthy:
        raise UsageError("--timeout goes with --exit-when-healthy")
    if arguments.interval <= 0:
        raise UsageError(f"--interval takes seconds above 0, not {arguments.interval:g}")
    deadline = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    if not arguments.watch and not arguments.exit_when_healthy:
        return _show(run_client(_look(arguments)), arguments)
    before: Health | None = None
    while True:
        now = run_client(_look_if_reachable(arguments))
        if now is not None and now != before and (arguments.watch or now.healthy):
            _show(now, arguments)
        if now is not None and now.healthy and arguments.exit_when_healthy:
            return 0
        if deadline is not None and time.monotonic() >= deadline:
            if now is None:
                raise CommandFailed(f"no broker answered within {arguments.timeout:g} s")
            return _show(now, arguments)
        before = now
        time.sleep(arguments.interval)


async def _look_if_reachable(arguments: argparse.Namespace) -> Health | None:
    """Return the cluster's health, or None while no broker answers."""
    try:
        return await _look(arguments)
    except NoBrokerReachable:
        return None


async def _look(arguments: argparse.Namespace) -> Health:
    async with Admin(**connection_of(arguments)) as admin:
        cluster = await admin.describe_cluster()
        topics = await admin.describe_topics()
        quorum, problem = await _quorum(admin, [broker.id for broker in cluster.brokers])
        min_isr = {
            topic.name: await _min_isr(admin, topic.name)
            for topic in topics
            if any(len(partition.isr) < len(partition.replicas) for partition in topic.partitions.values())
        }
        moving = await admin.list_partition_reassignments()
    live = [broker.id for broker in cluster.brokers]
    adding: dict[tuple[str, int], tuple[int, ...]] = {
        partition: move.adding for partition, move in moving.items()
    }
    leader = None if quorum is None else quorum.leader_id
    found = assess(topics, live, cluster.fenced, min_isr, leader, adding)
    return replace(
        found,
        quorum_problem=problem,
        quorum_abstaining=sorted(quorum.abstaining) if quorum is not None else [],
        quorum_silent=sorted(quorum.silent) if quorum is not None else [],
    )


async def _quorum(admin: Admin, brokers: Iterable[int]) -> tuple[QuorumDescription | None, str]:
    """Return the description of the metadata quorum, and its problem as text.

    Every broker is asked: perhaps only one of them knows that the quorum lost entries.
    """
    found = await asyncio.gather(*(_seen_by(admin, broker_id) for broker_id in brokers))
    problems = [answer for answer in found if isinstance(answer, str)]
    described = [answer for answer in found if isinstance(answer, QuorumDescription)]
    led = [description for description in described if description.leader_id is not None]
    return next(iter(led or described), None), next(iter(problems), "")


async def _seen_by(admin: Admin, broker_id: int) -> QuorumDescription | str | None:
    """Return the metadata quorum as this broker describes it, or the reason why the broker does not follow it.

    None if there is no timely answer.
    """
    try:
        return await admin.describe_quorum(broker_id=broker_id, timeout_ms=QUORUM_TIMEOUT_MS)
    except KafkaError as error:
        return error.message if error.code is ErrorCode.BROKER_NOT_AVAILABLE else None


async def _min_isr(admin: Admin, topic: str) -> int:
    for entry in await admin.describe_configs(TOPIC_RESOURCE, topic):
        if entry.name == MIN_ISR and entry.value is not None:
            return int(entry.value)
    return 1


def _show(found: Health, arguments: argparse.Namespace) -> int:
    if arguments.output == "json":
        print_json({"healthy": found.healthy, **asdict(found)})
        return 0 if found.healthy else 1
    say("healthy" if found.healthy else "NOT healthy")
    lines: list[tuple[str, list[Any]]] = [
        ("quorum nodes that do not vote before they have caught up", found.quorum_abstaining),
        ("quorum nodes that the quorum's leader does not hear", found.quorum_silent),
        ("brokers down", found.brokers_down),
        ("brokers fenced", found.brokers_fenced),
        ("partitions without a leader", found.offline),
        ("partitions below min.insync.replicas", found.below_min_isr),
        ("under-replicated partitions", found.under_replicated),
    ]
    if found.quorum_problem:
        say(f"  {found.quorum_problem}")
    elif found.quorum_leader is None:
        say("  the quorum has no leader")
    for label, named in lines:
        if named:
            more = f" and {len(named) - LISTED_MAX} more" if len(named) > LISTED_MAX else ""
            say(f"  {label}: {len(named)} ({', '.join(map(str, named[:LISTED_MAX]))}{more})")
    return 0 if found.healthy else 1
