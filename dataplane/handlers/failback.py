"""DescribeLineages (0) and FailBackMirror (0), Ottla's own: topics become copies of their former copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.cluster_image import TopicState
from ...protocol.cluster.mirror_table import OF_THE_BROKERS, MirrorPartition
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.failback import (
    DescribedLineage,
    DescribeLineagesRequest,
    DescribeLineagesResponse,
    FailBackMirrorRequest,
    FailBackMirrorResponse,
    FailedBackPartition,
    FailedBackTopic,
    LineageTopic,
)
from ...protocol.messages.failback_commands import FailBackMirror, ReturningPartition, ReturningTopic
from ...protocol.messages.mirror_records import SourceEpoch
from ...protocol.wire.schema import ZERO_UUID
from ..mirroring import first_cut
from ..mirroring.common_point import PlannedTopic, check_is_new, merged, planned, promoted_offset
from ..mirroring.source_check import SourceCheck
from ..mirroring.topic_history import topic_histories
from ..patterns import compile_pattern
from ..quorum.access import Quorum
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..runtime.matching import matching
from ..runtime.time_slices import in_time_slices
from ..security.authorization.needs import cluster, handler_asks
from ..server.handler import ClientRequest, as_kafka_error, handles

_NAMED_MAX: Final = 20


class FailbackHandlers:
    """The handlers that describe the lineages of this broker's logs (which leader epochs their records are from), and
    turn topics into copies of another cluster's."""

    def __init__(self, quorum: Quorum, replicas: Replicas, trial: SourceCheck) -> None:
        self._quorum = quorum
        self._replicas = replicas
        self._trial = trial

    @handles(
        DescribeLineagesRequest,
        0,
        0,
        needs=handler_asks("DESCRIBE Topic for each topic that is told"),
    )
    async def describe(
        self, request: ClientRequest, message: DescribeLineagesRequest
    ) -> DescribeLineagesResponse:
        """Return the topics whose names match the request's pattern, with the lineages of the partitions that this
        broker leads."""
        pattern = compile_pattern(message.topics, "the pattern of topics")
        image = self._quorum.image
        visible = [
            name
            for name in sorted(image.topics)
            if not name.startswith(OF_THE_BROKERS)
            and request.access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=True)
        ]
        topics = []
        async for name in in_time_slices(await matching(pattern, visible)):
            topic = self._quorum.image.topics.get(name)
            if topic is not None:
                topics.append(self._topic(topic))
        return DescribeLineagesResponse(cluster_id=image.cluster_id, topics=topics)

    def _topic(self, topic: TopicState) -> LineageTopic:
        mirrors = self._quorum.image.mirrors
        copied = mirrors.topics.get(topic.id)
        mirror = None if copied is None else mirrors.by_name.get(copied.mirror)
        return LineageTopic(
            name=topic.name,
            topic_id=topic.id,
            partition_count=len(topic.partitions),
            is_copy=mirrors.mirror_of(topic.id) is not None,
            mirror="" if mirror is None else mirror.name,
            source_cluster_id="" if mirror is None else mirror.source_cluster_id,
            source_topic_id=ZERO_UUID if copied is None else copied.source_topic_id,
            partitions=[
                _lineage(partition, mirrors.partition(topic.id, index) or MirrorPartition())
                for index in sorted(topic.partitions)
                if (partition := self._replicas.find_by_id(topic.id, index)) is not None
                and partition.leader is not None
            ],
        )

    @handles(FailBackMirrorRequest, 0, 0, needs=cluster(AclOperation.ALTER))
    async def fail_back(
        self, request: ClientRequest, message: FailBackMirrorRequest
    ) -> FailBackMirrorResponse:
        """Have the quorum turn topics into copies, if no records are lost by that, or the request permits the loss."""
        compile_pattern(message.topics, "the pattern of topics")
        if message.groups:
            compile_pattern(message.groups, "the pattern of groups")
        ours = merged([message.logs])
        check_is_new(message.name, self._quorum.image.mirrors.by_name, ours.values())
        async with self._trial.reached(message.name, message.bootstrap_servers, message.options) as reached:
            theirs = await topic_histories(reached.source, message.topics)
            awaits_cuts = await first_cut.is_to_come(
                reached.source, reached.metadata, with_offsets=bool(message.groups)
            )
        topics: list[PlannedTopic] = []
        answers: list[FailedBackTopic] = []
        for name, topic in ours.items():
            try:
                plan = planned(topic, theirs.get(name), self._quorum.image.cluster_id)
            except KafkaError as error:
                answers.append(FailedBackTopic(name=name, error_code=error.code, error_message=error.message))
            else:
                topics.append(plan)
                answers.append(_failed_back(plan))
        answer = FailBackMirrorResponse(source_cluster_id=reached.cluster_id, topics=answers)
        refusal = _refusal(answers) or (None if message.discards else _loss(topics))
        if refusal is not None:
            if not message.validate_only:
                answer.error_code, answer.error_message = refusal.code, refusal.message
            return answer
        command = FailBackMirror(
            name=message.name,
            source_cluster_id=reached.cluster_id,
            bootstrap_servers=message.bootstrap_servers,
            topics=message.topics,
            groups=message.groups,
            options=reached.options,
            copies=[_returning(topic) for topic in topics],
            discards=message.discards,
            is_checked_only=message.validate_only,
            bandwidth=message.bandwidth,
            acls=message.acls,
            awaits_cuts=awaits_cuts,
        )
        await self._quorum.submit(command, author=request.session)
        return answer


def _lineage(partition: Partition, copy: MirrorPartition) -> DescribedLineage:
    """Return the lineage of a partition's log: its leader epochs, the epochs of the cluster that it was copied from,
    and its ends.

    The leadership has to be settled, since a leader that is being replaced may be wrong.
    """
    lineage = DescribedLineage(partition=partition.index)
    try:
        leader = partition.leading()
        if leader.high_watermark < leader.epoch_start_offset:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        partition.log.check_usable()
    except KafkaError as error:
        lineage.error_code = as_kafka_error(error, repr(partition)).code
        return lineage
    log = partition.log
    epochs = log.leader_epochs.entries
    lineage.leader_epoch = leader.leader_epoch
    lineage.log_start_offset, lineage.log_end_offset = log.log_start_offset, log.log_end_offset
    lineage.epochs = [SourceEpoch(epoch=epoch, start_offset=start) for epoch, start in epochs]
    lineage.lineage = [SourceEpoch(epoch=epoch, start_offset=start) for epoch, start in copy.lineage]
    lineage.promoted_offset = promoted_offset(epochs, copy.promoted_epoch)
    return lineage


def _failed_back(topic: PlannedTopic) -> FailedBackTopic:
    return FailedBackTopic(
        name=topic.name,
        partitions=[
            FailedBackPartition(
                partition=partition.partition,
                common_offset=partition.common_offset,
                log_end_offset=partition.log_end_offset,
                lost=partition.lost,
            )
            for partition in topic.partitions
        ],
    )


def _returning(topic: PlannedTopic) -> ReturningTopic:
    return ReturningTopic(
        topic_id=topic.topic_id,
        source_topic_id=topic.source_topic_id,
        partitions=[
            ReturningPartition(
                partition=partition.partition,
                leader_epoch=partition.leader_epoch,
                common_offset=partition.common_offset,
                lineage=[SourceEpoch(epoch=epoch, start_offset=start) for epoch, start in partition.lineage],
            )
            for partition in topic.partitions
        ],
    )


def _refusal(answers: Sequence[FailedBackTopic]) -> KafkaError | None:
    """Return an error with the reasons why topics cannot become copies, or that no topic matches; None if all can."""
    if not answers:
        return KafkaError(
            ErrorCode.INVALID_REQUEST,
            "no topic here matches: a new mirror is made with 'ottla mirror create'",
        )
    refused = [topic for topic in answers if topic.error_code]
    if not refused:
        return None
    code = ErrorCode.of(refused[0].error_code)
    hint = "" if code.retriable else ". Name the other topics alone, by their pattern"
    return KafkaError(code, _listed(topic.error_message or "" for topic in refused) + hint)


def _loss(topics: Iterable[PlannedTopic]) -> KafkaError | None:
    """Return an error that lists the records that topics would lose by becoming copies; None if they would lose
    none."""
    parts = [(topic.name, partition) for topic in topics for partition in topic.partitions if partition.cuts]
    if not parts:
        return None
    total = sum(partition.lost for _, partition in parts)
    each = _listed(
        f"{name}-{partition.partition} {partition.lost:,} "
        f"(offsets {partition.common_offset} to {partition.log_end_offset - 1})"
        for name, partition in parts
    )
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"this cluster has {total:,} records that the source does not have, and would lose them: {each}",
    )


def _listed(texts: Iterable[str]) -> str:
    found = list(texts)
    more = f", and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return ", ".join(found[:_NAMED_MAX]) + more
