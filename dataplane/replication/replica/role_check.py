"""Consistency of a replica's role with the cluster image."""

from __future__ import annotations

from ....protocol.cluster.cluster_image import PartitionState
from .partition import Partition


def check_role(partition: Partition, state: PartitionState, broker_id: int) -> None:
    """Check the role of this broker's replica against the image. The replica may have an older state, but never a newer
    one. Raises AssertionError otherwise."""
    if partition.leader_epoch > state.leader_epoch:
        raise AssertionError(f"{partition!r} is in leader epoch {partition.leader_epoch}: {state}")
    if partition.leader_epoch < state.leader_epoch:
        return
    leader = partition.leader
    if (leader is not None) != (state.leader == broker_id):
        raise AssertionError(f"{partition!r} {'leads' if leader else 'follows'}: {state}")
    if (
        leader is not None
        and leader.partition_epoch == state.partition_epoch
        and leader.in_sync.committed != set(state.isr)
    ):
        raise AssertionError(f"{partition!r} has the ISR {sorted(leader.in_sync.committed)}: {state}")
