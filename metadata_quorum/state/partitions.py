"""Changes of single partitions: ISRs by compare-and-set, requested elections, and reassignments."""

from __future__ import annotations

from dataclasses import replace

from ...protocol.cluster.cluster_image import NO_LEADER, PartitionState, TopicState
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.command import PlainResult
from ...protocol.messages.partition_commands import (
    AlteredPartition,
    AlterPartition,
    AlterPartitionChange,
    AlterPartitionResult,
    ElectedPartition,
    ElectionType,
    ElectLastKnown,
    ElectLeaders,
    ElectLeadersResult,
    IsrMember,
)
from ...protocol.messages.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    ReassignedPartition,
    WantedReplicas,
)
from . import election, reassignment
from .brokers import current
from .placement import check_replicas
from .refusal import message_of
from .workspace import Workspace


def alter_partition(work: Workspace, command: AlterPartition) -> AlterPartitionResult:
    """Apply each change of an ISR that builds on the partition's current epochs and names only eligible members
    (KIP-903)."""
    current(work, command.broker_id, command.broker_epoch)
    return AlterPartitionResult(
        partitions=[_alter(work, command.broker_id, change) for change in command.partitions]
    )


def _alter(work: Workspace, broker_id: int, change: AlterPartitionChange) -> AlteredPartition:
    outcome = AlteredPartition(topic_id=change.topic_id, partition=change.partition)
    topic = work.image.topics_by_id.get(change.topic_id)
    state = topic.partitions.get(change.partition) if topic is not None else None
    if state is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outcome.error_code = unknown
        return outcome
    error = _refusal(work, broker_id, state, change)
    if error is ErrorCode.NONE:
        isr = [member.broker_id for member in change.new_isr]
        state = election.with_isr(state, isr, work.electorate(change.topic_id).min_isr)
        ends = [(member.broker_id, member.log_end_offset) for member in change.new_isr]
        progress = reassignment.member_ends(change.leader_epoch, ends)
        state = work.set_partition(change.topic_id, change.partition, state, progress)
    outcome.error_code = error
    outcome.leader, outcome.leader_epoch = state.leader, state.leader_epoch
    outcome.isr, outcome.partition_epoch = list(state.isr), state.partition_epoch
    return outcome


def _refusal(
    work: Workspace, broker_id: int, state: PartitionState, change: AlterPartitionChange
) -> ErrorCode:
    """Return the error code for an ISR change that Kafka's checks refuse, in Kafka's order of checks; NONE if it is
    permitted."""
    members = [member.broker_id for member in change.new_isr]
    if change.leader_epoch > state.leader_epoch or change.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    if change.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if len(set(members)) != len(members) or not set(members) <= set(state.replicas):
        return ErrorCode.INVALID_REQUEST
    if broker_id not in members:
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(work, state, member) for member in change.new_isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _eligible(work: Workspace, state: PartitionState, member: IsrMember) -> bool:
    broker = work.image.brokers.get(member.broker_id)
    if broker is None or not broker.usable or member.broker_id in state.offline_replicas:
        return False
    return member.broker_epoch in (-1, broker.broker_epoch)


def elect_leaders(work: Workspace, command: ElectLeaders) -> ElectLeadersResult:
    """Elect preferred leaders, or any leader for partitions without one, each partition independently."""
    if command.election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown election type {command.election_type}")
    progress = work.by_partition(command.progress)
    if command.partitions is None:
        wanted = [(topic_id, index) for topic_id, index, _ in work.partitions()]
    else:
        wanted = [(entry.topic_id, entry.partition) for entry in command.partitions]
    results: list[ElectedPartition] = []
    for key in wanted:
        error = _elect(work, key, ElectionType(command.election_type), progress.get(key, {}))
        if error is not ErrorCode.ELECTION_NOT_NEEDED or command.partitions is not None:
            results.append(
                ElectedPartition(
                    topic_id=key[0], partition=key[1], error_code=error, error_message=error.message
                )
            )
    return ElectLeadersResult(partitions=results)


def _elect(
    work: Workspace, key: tuple[bytes, int], kind: ElectionType, progress: election.Progress
) -> ErrorCode:
    topic = work.image.topics_by_id.get(key[0])
    state = topic.partitions.get(key[1]) if topic is not None else None
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    electorate = work.electorate(key[0])
    if kind is ElectionType.PREFERRED:
        if state.leader == state.replicas[0]:
            return ErrorCode.ELECTION_NOT_NEEDED
        new = election.elect_preferred(state, electorate)
        refused = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        if state.leader >= 0:
            return ErrorCode.ELECTION_NOT_NEEDED
        new = election.elect(state, replace(electorate, unclean_allowed=True), progress)
        refused = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if new.leader == state.leader:
        return refused
    work.set_partition(*key, new)
    return ErrorCode.NONE


def elect_last_known(work: Workspace, command: ElectLastKnown) -> PlainResult:
    """Elect the last known member that is furthest along, in partitions without ISR and ELR, once all members have
    reported."""
    for (topic_id, index), progress in work.by_partition(command.progress).items():
        topic = work.image.topics_by_id.get(topic_id)
        state = topic.partitions.get(index) if topic is not None else None
        if state is not None and state.leader == NO_LEADER:
            work.set_partition(topic_id, index, election.elect(state, work.electorate(topic_id), progress))
    return PlainResult()


def alter_reassignments(
    work: Workspace, command: AlterPartitionReassignments
) -> AlterPartitionReassignmentsResult:
    """Start or cancel the reassignment of each partition independently, in order."""
    results: list[ReassignedPartition] = []
    for wanted_topic in command.topics:
        topic = work.image.topics.get(wanted_topic.name)
        for wanted in wanted_topic.partitions:
            try:
                if topic is None:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        f"Unable to find a topic named {wanted_topic.name}.",
                    )
                _reassign(work, topic, wanted, factor_may_change=command.allow_replication_factor_change)
                results.append(ReassignedPartition())
            except KafkaError as error:
                results.append(ReassignedPartition(error_code=error.code, error_message=message_of(error)))
    return AlterPartitionReassignmentsResult(partitions=results)


def _reassign(work: Workspace, topic: TopicState, wanted: WantedReplicas, *, factor_may_change: bool) -> None:
    state = topic.partitions.get(wanted.partition)
    if state is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {topic.name}:{wanted.partition}.",
        )
    electorate = work.electorate(topic.id)
    if wanted.replicas is None:
        if not state.is_moving:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        new = reassignment.cancelled(state, electorate)
    else:
        check_replicas(work.image.brokers, wanted.replicas)
        present = len(set(state.replicas).difference(state.removing_replicas))
        if not factor_may_change and present != len(wanted.replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {present} to {len(wanted.replicas)}",
            )
        new = reassignment.begun(state, tuple(wanted.replicas), electorate)
    work.set_partition(topic.id, wanted.partition, new)
