"""Compares one group of many consumers in Ottla and Apache Kafka: the time until all have joined, and until the group
is stable after one of them leaves.

    python -m benchmarks.group_members [FIGURE ...] [--members N] [--partitions N] [--leaves N]
                                       [--only ottla|kafka] [--rounds N] [--record FILE]

FIGURES: classic classic-at-once consumer (all of them without arguments). Three brokers. The members run in this
process, which is the same load for both clusters (`group_loads`). They join at once over connections that are open.
They are settled when all have the latest generation or epoch, and the partitions are divided evenly among them.

A new group of `classic` waits for more members (`group.initial.rebalance.delay.ms`), 3,000 ms on both sides, which is
the default of both. In `classic-at-once` it does not wait, so that the members rebalance several times. `consumer` has
no such wait. Members of the classic protocol learn of a rebalance by a heartbeat, every 3 s. In the consumer protocol
the broker's default is 5 s. So the times have such intervals, which the time after the last JoinGroup and the CPU do
not. The heartbeats are those of all members together, without any other load.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from .clusters import Cluster
from .compare import admin_of, cpu_seconds, new_topic
from .group_loads import ClassicMember, ConsumerMember, Fleet, Link, Member, linked
from .rounds import Goal, Launch, Row, command_line, compare, parsed, percentile

FIGURES: Final = ("classic", "classic-at-once", "consumer")
DELAY_MS: Final = 3_000
"""Default of both products."""
GROUP: Final = "many"
DEADLINE_S: Final = 300.0
STABLE_S: Final = 10.0
HEARTBEAT_S: Final = 5.0
"""The longest heartbeat interval. A member leaves at a random moment within it."""
ALL_S, STABLE_AGAIN_S = "join: all have their partitions, s", "one leaves: stable again, s"
GOALS = {ALL_S: Goal(0.5, is_least=False), STABLE_AGAIN_S: Goal(0.5, is_least=False)}


class Load(NamedTuple):
    """The size of the group, and the number of members that leave, one after the other."""

    members: int
    partitions: int
    leaves: int


MakeMember = Callable[[Fleet, int, Link, str], Member]


def figure(load: Load, make: MakeMember, delay_ms: int, launch: Launch, data: Path) -> Row:
    """Start a cluster, and measure a group in it."""
    with launch(data, settings={"group.initial.rebalance.delay.ms": str(delay_ms)}) as cluster:
        topic = new_topic(cluster, admin_of(cluster), load.partitions, replicas=1)
        return uvloop.run(measure(cluster, topic, load, make))


async def measure(cluster: Cluster, topic: str, load: Load, make: MakeMember) -> Row:
    """Measure the members' join, some seconds in which nothing happens, and members that leave one after the other."""
    fleet = Fleet(load.partitions)
    async with linked(cluster.bootstrap, GROUP, load.members) as links, asyncio.TaskGroup() as running:
        members = [make(fleet, n, link, topic) for n, link in enumerate(links)]
        cpu_s, began_s = cpu_seconds(cluster.brokers), time.monotonic()
        tasks = [running.create_task(member.run(load.partitions)) for member in members]
        ended_s = await fleet.settled(load.members, DEADLINE_S)
        row = {ALL_S: ended_s - began_s} | _after_last_join(fleet, ended_s, "join")
        row["join: CPU of brokers, s"] = cpu_seconds(cluster.brokers) - cpu_s
        row |= await _stable(cluster, fleet)
        row |= await _leaves(cluster, fleet, load, members, tasks)
        for task in tasks:
            task.cancel()
    return row | {"refused for the moment": float(fleet.refused)}


def _after_last_join(fleet: Fleet, ended_s: float, what: str) -> Row:
    """Return the time since the last JoinGroup request, if there was any."""
    return {f"{what}: after the last JoinGroup, s": ended_s - fleet.last_join_s} if fleet.last_join_s else {}


async def _stable(cluster: Cluster, fleet: Fleet) -> Row:
    """Measure the heartbeats of a stable group."""
    fleet.heartbeats_s.clear()
    cpu_s = cpu_seconds(cluster.brokers)
    await asyncio.sleep(STABLE_S)
    cpu = (cpu_seconds(cluster.brokers) - cpu_s) / STABLE_S
    row = {f"stable: heartbeat p{p}, ms": percentile(fleet.heartbeats_s, p) * 1e3 for p in (50, 99)}
    return row | {"stable: CPU of brokers, % of a core": cpu * 100}


async def _leaves(
    cluster: Cluster, fleet: Fleet, load: Load, members: list[Member], tasks: list[asyncio.Task[None]]
) -> Row:
    """Let members leave, each when the group is settled; return the medians over them, and the worst time."""
    chance = random.Random(7)
    rows: list[Row] = []
    fleet.heartbeats_s.clear()
    for count, number in enumerate(chance.sample(range(load.members), load.leaves), 1):
        await asyncio.sleep(chance.uniform(0, HEARTBEAT_S))
        tasks[number].cancel()
        cpu_s, began_s = cpu_seconds(cluster.brokers), time.monotonic()
        await members[number].leave()
        ended_s = await fleet.settled(load.members - count, DEADLINE_S)
        row = {STABLE_AGAIN_S: ended_s - began_s} | _after_last_join(fleet, ended_s, "one leaves")
        rows.append(row | {"one leaves: CPU of brokers, s": cpu_seconds(cluster.brokers) - cpu_s})
    found = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    found["one leaves: worst, s"] = max(row[STABLE_AGAIN_S] for row in rows)
    return found | {"one leaves: slowest heartbeat, ms": max(fleet.heartbeats_s) * 1e3}


def main() -> int:
    """Run the benchmark; see the module's documentation."""
    parser = command_line(__doc__, FIGURES, rounds=2)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=1_000, help="of the topic, at least one a member")
    parser.add_argument("--leaves", type=int, default=5, help="members that leave, one after the other")
    args = parsed(parser, FIGURES)
    load = Load(args.members, args.partitions, args.leaves)
    if load.partitions < load.members or not 0 < load.leaves < load.members:
        parser.error("each member needs a partition, and some members have to leave, but not all")
    made: dict[str, tuple[MakeMember, int]] = {
        "classic": (ClassicMember, DELAY_MS),
        "classic-at-once": (ClassicMember, 0),
        "consumer": (ConsumerMember, DELAY_MS),
    }
    figures = {name: partial(figure, load, make, delay_ms) for name, (make, delay_ms) in made.items()}
    compare(args, figures, goals=GOALS, load=load._asdict())
    return 0


if __name__ == "__main__":
    sys.exit(main())
