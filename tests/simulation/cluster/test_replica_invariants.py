"""The faults that the invariants about replicas find, and the situations that they must accept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.dataplane.replication.harness import ReplicasByHand, batch
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.replica_invariants import FollowersCopyTheirLeader


class Brokers:
    """Replicas of the harness, in the form in which an invariant finds them in a simulated cluster."""

    def __init__(self, folder: Path) -> None:
        self.replicas = ReplicasByHand(folder, brokers=[1, 2], segment_bytes=100)
        self.brokers: dict[int, Any] = {
            number: SimpleNamespace(
                name=f"broker-{number}",
                broker=SimpleNamespace(replicas=[node.partition]),
                led=lambda partition=node.partition: [partition] if partition.leader else [],
                moved=lambda partition=node.partition: [partition],
            )
            for number, node in self.replicas.nodes.items()
        }
        self.invariant = FollowersCopyTheirLeader(self)  # type: ignore[arg-type]
        self.replicas.elect(1)
        self.observe()

    def observe(self) -> None:
        for node in self.brokers.values():
            self.invariant.observe(node)

    def produce_and_copy(self, values: list[bytes]) -> None:
        leader, follower = self.replicas[1], self.replicas[2]
        for value in values:
            leader.produce(value)
        for _ in range(3):
            for answer in leader.serve(follower.ask()):
                follower.take(answer)


def test_a_follower_may_drop_by_its_own_clock_what_it_has_just_copied(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    brokers.produce_and_copy([b"one", b"two"])
    follower = brokers.replicas[2].partition
    assert follower.high_watermark == 2
    follower.log.roll(10_000)
    follower.log.advance_log_start_offset(2)
    brokers.observe()


def test_a_follower_with_another_epoch_or_more_than_its_leader_has_not_copied_it(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    brokers.produce_and_copy([b"one", b"two"])
    follower = brokers.replicas[2].partition
    follower.log.leader_epochs.clear()
    with pytest.raises(InvariantBroken, match="offset 1 of epoch -1"):
        brokers.observe()
    more = batch(b"three")
    follower.log.produced.append(memoryview(more), 1, 10_000)
    follower.log.advance_log_start_offset(3)
    with pytest.raises(InvariantBroken, match="ends at 2"):
        brokers.observe()
