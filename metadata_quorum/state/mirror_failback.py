"""A failback: topics that another cluster copied become copies of that cluster's topics.

It is one command: either all topics stop accepting records, or all continue to accept them. The mirror is paused until
the last record of the command. No broker therefore copies anything into a log before the log has entered its new leader
epoch, and was truncated if it must be.
"""

from __future__ import annotations

from dataclasses import replace

from ...protocol.cluster.cluster_image import TopicState
from ...protocol.cluster.mirror_table import (
    MirrorPartition,
    MirrorPhase,
    Resumption,
    ResumptionKind,
    mirror_partition_record,
    mirror_record,
)
from ...protocol.cluster.transaction_table import Phase
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import MIRROR, MIRROR_WITH_FAILBACK, finalized
from ...protocol.messages.command import PlainResult
from ...protocol.messages.failback_commands import FailBackMirror, ReturningPartition, ReturningTopic
from ...protocol.messages.mirror_commands import CreateMirror
from ...protocol.messages.mirror_records import MirrorTopicRecord
from . import mirror_cuts
from .copies import check_is_no_copy
from .mirrors import new_mirror
from .topics import PARTITIONS_PER_COMMAND_MAX
from .transaction_decisions import abort_by_itself
from .transaction_markers import topic_goes
from .workspace import Workspace


def fail_back(work: Workspace, command: FailBackMirror) -> PlainResult:
    """Make the command's topics copies of the topics of the cluster that copied them. Each partition continues after
    the common part of both logs. Raises KafkaError."""
    if finalized(work.image.features)[MIRROR] < MIRROR_WITH_FAILBACK:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"a failback needs the feature {MIRROR} at level {MIRROR_WITH_FAILBACK}, so that no node is left that does "
            "not know it",
        )
    mirror = new_mirror(
        work,
        CreateMirror(
            name=command.name,
            source_cluster_id=command.source_cluster_id,
            bootstrap_servers=command.bootstrap_servers,
            topics=command.topics,
            groups=command.groups,
            options=command.options,
            bandwidth=command.bandwidth,
            acls=command.acls,
        ),
    )
    returning = [(_topic(work, described), described) for described in command.copies]
    _check_number(command)
    if not command.discards:
        for topic, _ in returning:
            _check_nothing_is_committed(work, topic)
    if command.is_checked_only:
        return PlainResult()
    kind = ResumptionKind.CUT if command.discards else ResumptionKind.KEPT
    work.emit(mirror_record(replace(mirror, phase=MirrorPhase.PAUSED)))
    if command.awaits_cuts:
        mirror_cuts.await_first(work, mirror.name)
    for topic, described in returning:
        _end_transactions(work, topic)
        work.emit(
            MirrorTopicRecord(
                topic_id=topic.id, mirror=mirror.name, source_topic_id=described.source_topic_id
            )
        )
        for part in sorted(described.partitions, key=lambda partition: partition.partition):
            _becomes_copy(work, topic, part, kind)
    work.emit(mirror_record(mirror))
    return PlainResult()


def _topic(work: Workspace, described: ReturningTopic) -> TopicState:
    """Return the topic of this cluster if its partitions' leader epochs still equal those that the command's sender
    checked. Raises KafkaError."""
    topic = work.image.topics_by_id.get(described.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {described.topic_id.hex()} any more")
    check_is_no_copy(work.image, topic)
    seen = {part.partition: part.leader_epoch for part in described.partitions}
    if len(seen) != len(described.partitions) or any(part.common_offset < 0 for part in described.partitions):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"what is told of topic {topic.name!r} cannot be")
    if seen != {index: state.leader_epoch for index, state in topic.partitions.items()}:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"topic {topic.name!r} has other leaders by now than those that told of its logs",
        )
    return topic


def _check_number(command: FailBackMirror) -> None:
    number = sum(len(topic.partitions) for topic in command.copies)
    if not 0 < number <= PARTITIONS_PER_COMMAND_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{number} partitions: a failback is of 1 to {PARTITIONS_PER_COMMAND_MAX}. Name fewer topics",
        )
    if len({topic.topic_id for topic in command.copies}) != len(command.copies):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named twice")


def _check_nothing_is_committed(work: Workspace, topic: TopicState) -> None:
    """Raise KafkaError while commit markers are missing in a topic: the committed records would be lost."""
    for index in sorted(topic.partitions):
        for transaction in work.image.transactions.at((topic.id, index)).values():
            if transaction.phase is Phase.PREPARE_COMMIT:
                raise KafkaError(
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    f"transaction {transaction.number} of {transaction.transactional_id!r} is committed, and its "
                    f"marker is not in {topic.name}-{index} yet",
                )


def _end_transactions(work: Workspace, topic: TopicState) -> None:
    """End all transactions in a topic that becomes a copy, where the source writes the markers from now on.

    Open transactions are aborted in other topics, too, since a part of them is lost.
    """
    open_here = {
        transaction.transactional_id
        for index in topic.partitions
        for transaction in work.image.transactions.at((topic.id, index)).values()
        if transaction.phase is Phase.ONGOING
    }
    topic_goes(work, topic.id, sorted(topic.partitions))
    for name in sorted(open_here):
        transaction = work.image.transactions.by_id[name]
        if transaction.phase is Phase.ONGOING:
            abort_by_itself(work, transaction)


def _becomes_copy(work: Workspace, topic: TopicState, part: ReturningPartition, kind: ResumptionKind) -> None:
    state = topic.partitions[part.partition]
    epoch = state.leader_epoch + 1
    copy = MirrorPartition(
        lineage=tuple((epoch_start.epoch, epoch_start.start_offset) for epoch_start in part.lineage),
        resumption=Resumption(epoch, part.common_offset, kind),
    )
    work.emit(mirror_partition_record(topic.id, part.partition, copy))
    work.set_partition(
        topic.id,
        part.partition,
        replace(state, leader_epoch=epoch, partition_epoch=state.partition_epoch + 1),
    )
