"""Random histories in which replicas come, go and return, and disks are lost, besides the events of
`test_replication_random`.

Brokers hear late that they are no longer replicas, or only when they are replicas again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from .harness import Node, ReplicasByHand
from .test_replication_random import SEGMENT_BYTES, History

STEPS = 300
SEEDS = range(40)


class Moving(History):
    """Four brokers, of which two to four have a replica."""

    def make(self, directory: Path) -> ReplicasByHand:
        cluster = ReplicasByHand(
            directory,
            brokers=(1, 2, 3, 4),
            min_in_sync=self.chance.choice([1, 2]),
            segment_bytes=SEGMENT_BYTES,
        )
        cluster.state = replace(cluster.state, replicas=[1, 2, 3], isr=frozenset((1, 2, 3)))
        cluster[4].leave()
        return cluster

    def actions(
        self, nodes: Sequence[Node], leaders: Sequence[Node], followers: Sequence[Node]
    ) -> list[tuple[Callable[[Node], None], Sequence[Node], float]]:
        return [
            *super().actions(nodes, leaders, followers),
            (self.add_or_remove, nodes, 4),
            (self.lose_disk, nodes, 0.5),
        ]

    def add_or_remove(self, node: Node) -> None:
        """Add or remove a replica like the quorum: a new replica is in no ISR, a removed one is fenced by a new leader
        epoch.
        """
        cluster, state, broker = self.cluster, self.cluster.state, node.broker_id
        if broker not in state.replicas:
            cluster.state = replace(
                state, replicas=[*state.replicas, broker], partition_epoch=state.partition_epoch + 1
            )
        elif len(state.replicas) > 2 and state.isr != {broker}:
            isr = state.isr - {broker}
            cluster.state = replace(
                state, replicas=[replica for replica in state.replicas if replica != broker]
            )
            leader = state.leader if state.leader != broker else self.chance.choice(sorted(isr))
            cluster.elect(leader, isr=isr, tell=())

    def lose_disk(self, node: Node) -> None:
        """Fail the folder: the replica leaves the ISR, and restarts empty when the broker has another folder."""
        if self.cluster.state.isr != {node.broker_id}:
            self.crash(node)
            if node.broker_id not in self.cluster.state.isr:
                node.leave()
                self.hear(node)

    def hear(self, node: Node) -> None:
        if node.broker_id in self.cluster.state.replicas:
            super().hear(node)
        elif node.partition.leader_epoch >= 0 or node.log.log_end_offset:
            node.leave()

    def check_all_is_there(self) -> None:
        super().check_all_is_there()
        for node in self.cluster.nodes.values():
            if node.broker_id not in self.cluster.state.replicas:
                assert node.log.log_end_offset == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_random_history_of_moving_replicas(tmp_path: Path, seed: int) -> None:
    history = Moving(tmp_path, seed)
    for _ in range(STEPS):
        history.step()
    history.heal()
