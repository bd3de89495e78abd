"""SIGSTOP for longer than the session: another node takes over, and the resumed node retracts and
confirms no record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from ottla.protocol.errors import ErrorCode
from tests.cluster import Node, RunningCluster
from tests.faults.faults import Faults
from tests.faults.raw_reader import RawReader
from tests.faults.test_kills import VICTIMS
from tests.faults.workload import Workload, make_topic
from tests.integration.raw_producer import RawProducer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

SHORT = {"leader"}


@pytest.mark.parametrize(
    "victims", [pytest.param(name, marks=[pytest.mark.short] * (name in SHORT)) for name in VICTIMS]
)
def test_some_sleep_and_the_others_go_on(cluster: RunningCluster, victims: str) -> None:
    topic = f"paused-{victims}"
    make_topic(cluster.bootstrap, topic)
    with Faults(cluster, (topic,)) as faults, Workload(cluster.bootstrap, topic) as workload:
        workload.wait_acknowledged(100)
        workload.wait_read(100)
        faults.pause(*VICTIMS[victims](faults, topic))
        workload.wait_acknowledged(200)  # with the victims asleep
        workload.wait_read(200)
        faults.heal()
        workload.wait_acknowledged(50)
    workload.check(faults)


@pytest.mark.parametrize("turns", [pytest.param(2, marks=pytest.mark.short), 10])
def test_a_leader_wakes_up_with_work_in_its_sockets(cluster: RunningCluster, turns: int) -> None:
    """Requests that were sent to a sleeping leader reach it before it hears of its successor.

    The leader may append them. But it confirms none with acks=all, and no reader of any broker sees them.
    """
    topic = f"haunted-{turns}"
    make_topic(cluster.bootstrap, topic, 1)
    readers = [RawReader(node.id, node.port, topic) for node in cluster.brokers]
    with (
        Faults(cluster, (topic,)) as faults,
        Workload(cluster.bootstrap, topic, 1, others=[*readers]) as workload,
    ):
        for turn in range(turns):
            workload.wait_acknowledged(50)
            zombie = faults.leader(topic, 0)
            with (
                closing(RawProducer(zombie.port, topic, -1)) as strict,
                closing(RawProducer(zombie.port, topic, 1)) as lax,
            ):
                faults.pause(zombie)
                for n in range(3):
                    strict.send(b"strict:%d:%d" % (turn, n))
                    lax.send(b"lax:%d:%d" % (turn, n))
                faults.wait_led_by_another(topic, 0, zombie)
                workload.wait_acknowledged(50)
                faults.heal()
                for _ in range(3):
                    assert strict.answer()[0] != ErrorCode.NONE
                    lax.answer()  # either is right: what acks=1 confirms may be lost
    workload.check(faults)
    seen = {poll.value for poll in workload.history.polls}
    assert [value for value in seen if value.startswith((b"strict", b"lax:"))] == []


@pytest.mark.parametrize("who", ["follower", "all-followers", "brokers", "quorum", "everything"])
def test_several_sleep_through_their_sessions(cluster: RunningCluster, who: str) -> None:
    """If no broker is left to take over, no record is acknowledged until the sleepers wake up."""
    topic = f"slept-{who}"
    make_topic(cluster.bootstrap, topic)
    with Faults(cluster, (topic,)) as faults, Workload(cluster.bootstrap, topic) as workload:
        for sleepers in groups(faults, topic, who):
            workload.wait_acknowledged(100)
            faults.pause(*sleepers)
            faults.let_pass(5.0)
            faults.heal()
            workload.wait_acknowledged(50)
            workload.wait_read(50)
    workload.check(faults)


def groups(faults: Faults, topic: str, who: str) -> Iterator[list[Node]]:
    """Yield the nodes to pause, twice, as leaders change."""
    for _ in range(2):
        leader = faults.leader(topic, 0)
        yield {
            "follower": [faults.follower(topic, 0)],
            "all-followers": [node for node in faults.cluster.brokers if node is not leader],
            "brokers": faults.cluster.brokers,
            "quorum": faults.cluster.quorum,
            "everything": faults.nodes,
        }[who]


def test_a_follower_restarts_while_its_leader_sleeps(cluster: RunningCluster) -> None:
    """A fetch of the follower's previous process, handled when the leader wakes up, adds no broker to the ISR."""
    topic = "stale"
    make_topic(cluster.bootstrap, topic, 1)
    with Faults(cluster, (topic,)) as faults, Workload(cluster.bootstrap, topic, 1) as workload:
        for _ in range(4):
            workload.wait_acknowledged(50)
            leader, follower = faults.leader(topic, 0), faults.follower(topic, 0)
            faults.pause(leader)
            faults.kill(follower)
            faults.restart(follower)
            faults.let_pass(0.5)  # shorter than the leader's session: it is still the leader when it wakes up
            faults.heal()
    workload.check(faults)
