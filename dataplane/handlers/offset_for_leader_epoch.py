"""OffsetForLeaderEpoch (2-4): the end of a leader epoch in the leader's log (KIP-101, KIP-320)."""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import KafkaError
from ...protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ..replication.replicas.replicas import Replicas
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access
from ..security.authorization.needs import handler_asks
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles
from ..server.replica_identity import is_proven, unproven


class OffsetForLeaderEpochHandlers:
    """Looks up epochs in the partitions that this broker leads."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    @handles(
        OffsetForLeaderEpochRequest,
        2,
        4,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=handler_asks("CLUSTER_ACTION Cluster, or DESCRIBE Topic"),
    )
    async def offset_for_leader_epoch(
        self, request: ClientRequest, message: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Return the ends of leader epochs in leaders' logs. Clients and followers detect truncation by them."""
        access = request.access
        among_nodes = access.allows_cluster(AclOperation.CLUSTER_ACTION, quiet=True)
        proven = is_proven(request, message.replica_id)
        answers = [OffsetForLeaderTopicResult(topic=topic.topic) for topic in message.topics]
        parts = (
            (answer, part)
            for topic, answer in zip(message.topics, answers, strict=True)
            for part in topic.partitions
        )
        async for answer, part in in_time_slices(parts):
            answer.partitions.append(
                self._end_of_epoch(None if among_nodes else access, answer.topic, part, proven=proven)
            )
        return OffsetForLeaderEpochResponse(topics=answers)

    def _end_of_epoch(
        self, access: Access | None, topic: str, part: OffsetForLeaderPartition, *, proven: bool
    ) -> EpochEndOffset:
        try:
            if access is not None:
                access.check_topic(AclOperation.DESCRIBE, topic)
            if not proven:
                raise unproven()
            partition = self._replicas.get(topic, part.partition)
            partition.leading(part.current_leader_epoch)
        except KafkaError as error:
            return EpochEndOffset(partition=part.partition, error_code=error.code)
        epoch, end_offset = partition.end_of_epoch(part.leader_epoch)
        return EpochEndOffset(partition=part.partition, leader_epoch=epoch, end_offset=end_offset)
