"""Clients go on although brokers are killed and come back after seconds: no call hangs for good.

librdkafka removes a broker that Metadata no longer names, and forgets a request that waits for it. Then
`send_offsets_to_transaction` never returns, or a member never joins its group. franz-go and Sarama do neither. Each
copies a topic exactly once here, in a group of two members.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Node, RunningCluster, wait_until
from tests.faults.actors import SETTLE_S
from tests.faults.faults import HEAL_S, Faults
from tests.faults.go_copiers import GoCopiers
from tests.faults.group_copiers import Copier, Feeder, Joiner
from tests.faults.workload import make_topic
from tests.integration.foreign_builds import franz, needs_go, sarama

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

PARTITIONS = 3
RUN_S, GO_RUN_S = 40.0, 10.0
AWAY_S = (2.0, 8.0)
"""Range of seconds that a killed broker is down."""
BACK_S = (0.5, 3.0)
"""Range of seconds without faults after its return."""


def test_transactional_copiers_and_joining_members_of_librdkafka(cluster: RunningCluster, seed: int) -> None:
    source, target = f"outlived-{seed}", f"outlived-copies-{seed}"
    for topic in (source, target):
        make_topic(cluster.bootstrap, topic, PARTITIONS)
    copiers = [Copier(cluster.bootstrap, source, target, f"c{n}") for n in range(PARTITIONS)]
    joiners = [Joiner(cluster.bootstrap, source, f"j{n}") for n in range(2)]
    actors = [Feeder(cluster.bootstrap, source, PARTITIONS), *copiers, *joiners]
    with Faults(cluster, (source, target), seed=seed) as faults:
        try:
            for actor in actors:
                actor.start()
            wait_for_more(copiers, joiners, 1)
            kill_leaders(faults, (source, target), copiers[0].group, random.Random(seed), RUN_S)
            faults.heal()
            wait_for_more(copiers, joiners, 2)
        finally:
            for actor in actors:
                actor.abandoned = True
                actor.tell_to_stop()
        for actor in actors:
            actor.join()


@needs_go
@pytest.mark.parametrize("program", [franz, sarama])
def test_transactional_copiers_of_go_clients(
    cluster: RunningCluster, seed: int, tmp_path: Path, program: Callable[[], str]
) -> None:
    source, target = f"{program.__name__}-{seed}", f"{program.__name__}-copies-{seed}"
    for topic in (source, target):
        make_topic(cluster.bootstrap, topic, PARTITIONS)
    argv = [program(), "outlive", cluster.bootstrap, source, target, f"g-{source}", str(PARTITIONS)]
    with Faults(cluster, (source, target), seed=seed) as faults, GoCopiers(argv, tmp_path) as copiers:
        copiers.wait_for_more(1)
        kill_leaders(faults, (source, target), f"g-{source}", random.Random(seed), GO_RUN_S)
        faults.heal()
        copiers.wait_for_more(2)
        copiers.check(cluster.bootstrap, source, target, PARTITIONS)


def kill_leaders(
    faults: Faults, topics: tuple[str, ...], group: str, chance: random.Random, duration_s: float
) -> None:
    """Kill the leader of a partition or the coordinator of the group, one after the other."""
    until = time.monotonic() + duration_s
    while time.monotonic() < until:
        victim = choose(faults, topics, group, chance)
        faults.kill(victim)
        faults.let_pass(chance.uniform(*AWAY_S))
        faults.restart(victim)
        wait_until(lambda: victim.id in faults.cluster.taking_part(), f"broker {victim.id}", HEAL_S)  # noqa: B023
        faults.let_pass(chance.uniform(*BACK_S))


def choose(faults: Faults, topics: tuple[str, ...], group: str, chance: random.Random) -> Node:
    """Return the next broker to kill."""
    topic = chance.choice((*topics, None))
    if topic is None:
        return faults.coordinator(group)
    return faults.leader(topic, chance.randrange(PARTITIONS))


def wait_for_more(copiers: list[Copier], joiners: list[Joiner], more: int) -> None:
    """Return once each copier has committed, and each joiner has joined, `more` further times."""
    commits = [copier.committed + more for copier in copiers]
    joins = [joiner.joined + more for joiner in joiners]

    def reached() -> bool:
        for actor in (*copiers, *joiners):
            actor.raise_crash()
        return all(copier.committed >= goal for copier, goal in zip(copiers, commits, strict=True)) and all(
            joiner.joined >= goal for joiner, goal in zip(joiners, joins, strict=True)
        )

    try:
        wait_until(reached, f"{more} more commits and joins", SETTLE_S)
    except AssertionError as error:
        found = {copier.name: (copier.committed, copier.doing) for copier in copiers}
        error.add_note(f"commits: {found}; joins: {[joiner.joined for joiner in joiners]}")
        raise
