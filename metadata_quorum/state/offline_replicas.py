"""Replicas that their broker cannot use though it lives: a data folder of it failed (KIP-112).

Kafka's controllers learn which folder each replica is in (KIP-858) and conclude the rest; here brokers, who
know, name the replicas. An offline replica leaves the ISR as a fenced broker's does (and, as there, remains in
an ELR, or alone in an ISR, which it leaves when its broker registers after what cannot have been a clean stop
of that folder). No election and no ISR takes it. It stays offline until its broker registers anew, until it
is moved away; or until its broker, finding its log damaged while others have the data, makes it anew from nothing.

A replica on a full disk is whole and can be read. So it is offline only while somebody else leads, and until its
broker reports that there is room again.
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
    """Take the replicas out. What is no replica of this broker (any more) is passed over."""
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
    """Take the replicas out, or take them back. Replicas that the broker does not have are passed over."""
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
    """Return the state without the replica, or as it is where nobody would lead then, or only uncleanly.

    The replica can be read, and takes records again once there is room: neither is worth a loss of records.
    """
    if broker_id in state.offline_replicas:
        return state
    new = _without_replica(state, broker_id, replace(electorate, unclean_allowed=False))
    is_led_cleanly = new.leader != NO_LEADER and (new.leader == state.leader or not new.unclean)
    return new if is_led_cleanly else state


def _writable_again(state: PartitionState, broker_id: int, electorate: Electorate) -> PartitionState:
    """Return the state in which the replica may join the ISR, and leads at once where nobody else can."""
    if broker_id not in state.offline_replicas:
        return state
    left = tuple([member for member in state.offline_replicas if member != broker_id])
    back = replace(state, offline_replicas=left)
    new = back if back.leader != NO_LEADER else election.elect(back, electorate)
    return new if new is not back else replace(back, partition_epoch=state.partition_epoch + 1)


def renew(work: Workspace, command: RenewReplicas) -> RenewReplicasResult:
    """Take those back, as replicas that have nothing, whose partition another broker leads.

    They leave the ELR: what made them members is given up. A leader epoch of its own keeps fetches from before
    apart, by which the leader would take the new replica for as far along as the old one. Where nobody leads, or
    where the replica is alone in the ISR, it may be all that is left: it stays offline, as it is.
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
