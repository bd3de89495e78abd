"""Full disks: the disk of one broker is full for a while, and other brokers must not wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from ottla.dataplane.log.partition_log import PartitionLog
from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.cluster import Node, SimulatedCluster
from tests.simulation.cluster.deafness import are_linked, can_commit
from tests.simulation.machine.process import Process

SHARE = 0.15
LASTS_S = (0.8, 2.2)
SLACK_S = 0.3
"""Seconds until the quorum has committed new leaders; less than `replica.lag.time.max.ms`, which must not be needed."""
LOOKS_EVERY_S = 0.005
PROMISE = "others go on while a disk is full"

_Place = tuple[int, str, int]
"""Broker, topic and partition."""


def has_full(seed: int) -> bool:
    """Return whether a disk is full for a while in the run of a seed, beside all other faults."""
    return Random(f"fullness {seed}").random() < SHARE


def fill(cluster: SimulatedCluster, seed: int, seconds: float) -> None:
    """Fill the disk of one broker up, and make room again."""
    chance, machine = Random(f"fullness of whom {seed}"), cluster.machine
    start_s, lasts_s = chance.uniform(0.1, 0.8), chance.uniform(*LASTS_S)
    number = chance.choice(list(cluster.brokers))
    until_s = machine.now + min(start_s + lasts_s, seconds)

    def begin() -> None:
        disk = cluster.brokers[number].host.disk
        machine.trace.note(machine.now, cluster.brokers[number].name, "has a full disk")
        disk.capacity_bytes = disk.used_bytes

        def mend() -> None:
            machine.trace.note(machine.now, cluster.brokers[number].name, "has room again")
            disk.capacity_bytes = None

        machine.at(until_s, mend)

    machine.after(start_s, begin)


class FullGiveWay:
    """An invariant: a broker whose full disk refused a record soon leaves every shared ISR, and no leader waits for it.

    Checked while the quorum's leader stays, can commit, and hears the broker well.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._machine = cluster.machine
        self._look_at_s = 0.0
        self._refused: dict[int, Process] = {}
        """Processes whose full disk has refused a record, by broker."""
        self._waits_since_s: dict[_Place, float] = {}
        self._stands_since_s: dict[Partition, float] = {}
        self.gave_way = 0
        """Number of times a broker with a full disk was out of all shared ISRs when it had to be."""
        self._counted: set[Process] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note each broker whose log refuses a record."""
        undo = PartitionLog._undo_write

        def refused(log: PartitionLog, *arguments: Any) -> None:
            thread = self._machine.running
            if thread is not None:
                for number, node in self._cluster.brokers.items():
                    if node.process is thread.process and node.host.disk.capacity_bytes is not None:
                        self._refused.setdefault(number, thread.process)
            undo(log, *arguments)

        with patch.object(PartitionLog, "_undo_write", refused):
            yield

    def observe(self, node: Node) -> None:
        """Check the full brokers, and the partitions that this node leads, every few milliseconds."""
        self._look_for_standstill(node)
        now = self._machine.now
        if now < self._look_at_s:
            return
        self._look_at_s = now + LOOKS_EVERY_S
        leader = self._cluster.quorum_leader
        image = None if leader is None else leader.image()
        for number, process in list(self._refused.items()):
            broker = self._cluster.brokers[number]
            if broker.process is not process or broker.host.disk.capacity_bytes is None:
                del self._refused[number]
        able = {
            number
            for number in self._refused
            if leader is not None
            and can_commit(self._cluster, leader)
            and self._is_heard(self._cluster.brokers[number], leader)
        }
        for place in list(self._waits_since_s):
            if place[0] not in able:
                del self._waits_since_s[place]
        if image is not None:
            for number in able:
                self._judge(number, image)

    def _is_heard(self, broker: Node, leader: Node) -> bool:
        return broker.stays and not broker.host.disk.slow and are_linked(self._machine, broker, leader)

    def _judge(self, number: int, image: ClusterImage) -> None:
        now = self._machine.now
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                place = number, topic.name, index
                if not _is_waited_for(number, state, image):
                    self._waits_since_s.pop(place, None)
                elif now > self._waits_since_s.setdefault(place, now) + SLACK_S:
                    what = f"broker {number} is still in the ISR of {topic.name}-{index}: {state}"
                    self._machine.failures.append(InvariantBroken(PROMISE, what))
        process = self._refused[number]
        if process not in self._counted and not any(place[0] == number for place in self._waits_since_s):
            self._counted.add(process)
            self.gave_way += 1

    def _look_for_standstill(self, node: Node) -> None:
        """Check that a leader with followers in the ISR or offline commits all records that the ISR has."""
        image = node.image()
        for partition in node.moved():
            leader = partition.leader
            topic = None if image is None else image.topics_by_id.get(partition.topic_id)
            state = None if topic is None else topic.partitions.get(partition.index)
            if leader is None or state is None or state.leader_epoch != leader.leader_epoch:
                continue
            members = leader.in_sync.maximal
            others = leader.followers.keys() - members
            if not others or not others <= {*state.offline_replicas} or leader.under_min_in_sync:
                continue
            ends = [follower.log_end_offset for key, follower in leader.followers.items() if key in members]
            if leader.high_watermark < min([leader.durable_offset, *ends]):
                what = f"{node.name} waits for {sorted(others)}, which are offline, in {partition!r}"
                self._machine.failures.append(InvariantBroken(PROMISE, what))


def _is_waited_for(number: int, state: PartitionState, image: ClusterImage) -> bool:
    """Return whether the partition could go on without the broker, and does not."""
    others = [
        member
        for member in state.isr
        if member != number and member in image.brokers and image.brokers[member].usable
    ]
    return number in state.isr and bool(others)
