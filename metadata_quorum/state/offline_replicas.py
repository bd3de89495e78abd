"""Replicas that a live broker cannot use, because a data folder failed (KIP-112).

Kafka's controllers learn the folder of each replica (KIP-858) and deduce the rest; here brokers name the replicas
themselves. An offline replica leaves the ISR as a fenced broker does, and likewise remains in an ELR, or alone in an
ISR. It leaves both when its broker registers after a stop that cannot have been clean for that folder. No election and
no ISR includes it. It stays offline until its broker registers again, or until it is moved away. It also returns when
its broker finds its log damaged while other replicas have the data, and recreates it empty.

A replica on a full disk is complete and readable. It is offline only while another broker leads, and until its broker
reports free space again.
"""

from __future__ import annotations

from dataclasses import replace

from ...protocol.cluster.cluster_image import NO_LEADER, ClusterImage, PartitionState
from ...protocol.messages.command import PlainResult
from ...protocol.messages.offline_replica_commands import (
    OfflineReplica,
    RenewReplicas,
    RenewReplicasResult,
    ReportOfflineReplicas,
    ReportWritability,
)
from . import election
from .brokers import current
from .election import Electorate
from .workspace import Workspace


def report(work: Workspace, command: ReportOfflineReplicas) -> PlainResult:
    """Mark a broker's replicas as offline, which the command names. Partitions without a replica on this broker are
    ignored."""
    broker_id = current(work, command.broker_id, command.broker_epoch).broker_id
    for lost in command.partitions:
        state = _found(work.image, lost)
        if state is not None and broker_id in state.replicas and broker_id not in state.offline_replicas:
            new = _without_replica(state, broker_id, work.electorate(lost.topic_id))
            work.set_partition(lost.topic_id, lost.partition, new)
    return PlainResult()


def _without_replica(state: PartitionState, broker_id: int, electorate: Electorate) -> PartitionState:
    members = {*state.offline_replicas, broker_id}
    offline = replace(state, offline_replicas=election.in_replica_order(state.replicas, members))
    new = election.without(offline, broker_id, electorate)
    return new if new is not offline else replace(offline, partition_epoch=state.partition_epoch + 1)


def report_writability(work: Workspace, command: ReportWritability) -> PlainResult:
    """Mark a broker's replicas as offline because their disk is full, or as usable again. Partitions without a replica
    on this broker are ignored."""
    broker_id = current(work, command.broker_id, command.broker_epoch).broker_id
    change = _writable_again if command.writable else _unwritable
    for named in command.partitions:
        state = _found(work.image, named)
        if state is not None and broker_id in state.replicas:
            new = change(state, broker_id, work.electorate(named.topic_id))
            if new is not state:
                work.set_partition(named.topic_id, named.partition, new)
    return PlainResult()


def _found(image: ClusterImage, named: OfflineReplica) -> PartitionState | None:
    topic = image.topics_by_id.get(named.topic_id)
    return None if topic is None else topic.partitions.get(named.partition)


def _unwritable(state: PartitionState, broker_id: int, electorate: Electorate) -> PartitionState:
    """Return the partition's state without the replica on the broker's full disk; the same object if there would be no
    leader, or only an unclean one.

    The replica is readable, and accepts records again once there is space. A loss of records would be worse.
    """
    if broker_id in state.offline_replicas:
        return state
    new = _without_replica(state, broker_id, replace(electorate, unclean_allowed=False))
    is_led_cleanly = new.leader != NO_LEADER and (new.leader == state.leader or not new.unclean)
    return new if is_led_cleanly else state


def _writable_again(state: PartitionState, broker_id: int, electorate: Electorate) -> PartitionState:
    """Return the partition's state once the broker's disk has space again: the replica may join the ISR, and leads at
    once if there is no leader."""
    if broker_id not in state.offline_replicas:
        return state
    left = tuple([member for member in state.offline_replicas if member != broker_id])
    back = replace(state, offline_replicas=left)
    new = back if back.leader != NO_LEADER else election.elect(back, electorate)
    return new if new is not back else replace(back, partition_epoch=state.partition_epoch + 1)


def renew(work: Workspace, command: RenewReplicas) -> RenewReplicasResult:
    """Take back replicas that were recreated empty, in partitions that another broker leads.

    They leave the ELR, since their former records are given up. A new leader epoch invalidates earlier fetches, by
    which the leader would overestimate the new replica. In a partition without a leader, or with the replica alone in
    the ISR, the replica may be the last one, so it stays offline unchanged.
    """
    broker_id = current(work, command.broker_id, command.broker_epoch).broker_id
    result = RenewReplicasResult()
    for lost in command.partitions:
        state = _found(work.image, lost)
        if state is not None and _is_renewable(state, broker_id):
            work.set_partition(lost.topic_id, lost.partition, _renewed(state, broker_id))
            result.renewed.append(lost)
    return result


def _is_renewable(state: PartitionState, broker_id: int) -> bool:
    return (
        broker_id in state.offline_replicas
        and broker_id not in state.isr
        and state.leader not in (NO_LEADER, broker_id)
    )


def _renewed(state: PartitionState, broker_id: int) -> PartitionState:
    def others(members: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([member for member in members if member != broker_id])

    return replace(
        state,
        elr=others(state.elr),
        last_known_elr=others(state.last_known_elr),
        offline_replicas=others(state.offline_replicas),
        leader_epoch=state.leader_epoch + 1,
        partition_epoch=state.partition_epoch + 1,
    )
