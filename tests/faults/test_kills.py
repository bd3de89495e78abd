"""SIGKILL to one or two processes, chosen by their role: no acknowledged record is lost, and all clients go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster import Node, RunningCluster
from tests.faults.faults import Faults
from tests.faults.workload import Workload, make_topic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

Choice = Callable[[Faults, str], list[Node]]
VICTIMS: dict[str, Choice] = {
    "leader": lambda faults, topic: [faults.leader(topic, 0)],
    "follower": lambda faults, topic: [faults.follower(topic, 0)],
    "quorum-leader": lambda faults, _: [faults.quorum_leader()],
    "quorum-follower": lambda faults, _: [faults.quorum_follower()],
    "classic-coordinator": lambda faults, topic: [faults.coordinator(f"classic-{topic}")],
    "consumer-coordinator": lambda faults, topic: [faults.coordinator(f"consumer-{topic}")],
    "leader-and-quorum-leader": lambda faults, topic: [faults.quorum_leader(), faults.leader(topic, 0)],
}
SHORT = {"leader-and-quorum-leader"}


@pytest.mark.parametrize(
    "victims", [pytest.param(name, marks=[pytest.mark.short] * (name in SHORT)) for name in VICTIMS]
)
def test_some_die_and_the_others_go_on(cluster: RunningCluster, victims: str) -> None:
    topic = f"killed-{victims}"
    make_topic(cluster.bootstrap, topic)
    with Faults(cluster, (topic,)) as faults, Workload(cluster.bootstrap, topic) as workload:
        workload.wait_acknowledged(100)
        workload.wait_read(100)
        faults.kill(*VICTIMS[victims](faults, topic))
        workload.wait_acknowledged(150)  # with the victims dead
        workload.wait_read(150)
        faults.heal()
        workload.wait_acknowledged(50)
    workload.check(faults)
