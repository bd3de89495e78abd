"""ElectLeaders (0-2): preferred leaders, or any leader where a partition has none (KIP-460)."""

from __future__ import annotations

from ...protocol.acls import AclOperation
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import partition_commands
from ...protocol.messages.leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ..quorum.access import Quorum
from ..security.authorization.needs import cluster
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles


def _refused(message: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """Version 0 has no error of its own: every partition has it then."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                    for index in topic.partitions
                ],
            )
            for topic in message.topic_partitions or ()
        ],
    )


class ElectLeadersHandlers:
    """Has the quorum elect."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(
        ElectLeadersRequest,
        0,
        2,
        on_error=_refused,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=cluster(AclOperation.ALTER),
    )
    async def elect(self, request: ClientRequest, message: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect preferred leaders, or any leader where there is none."""
        image = self._quorum.image
        command = partition_commands.ElectLeaders(
            election_type=message.election_type,
            partitions=None
            if message.topic_partitions is None
            else [
                partition_commands.ElectionPartition(topic_id=image.topics[topic.topic].id, partition=index)
                for topic in message.topic_partitions
                if topic.topic in image.topics
                for index in topic.partitions
            ],
        )
        names = {topic.id: topic.name for topic in image.topics.values()}
        outcome = await self._quorum.submit(command, timeout_ms=message.timeout_ms)
        results: dict[str, list[PartitionResult]] = {}
        for elected in outcome.partitions:
            name = names.get(elected.topic_id, "")
            results.setdefault(name, []).append(
                PartitionResult(
                    partition_id=elected.partition,
                    error_code=elected.error_code,
                    error_message=elected.error_message if elected.error_code else None,
                )
            )
        for topic in message.topic_partitions or ():
            if topic.topic not in image.topics:
                results[topic.topic] = [_no_such_topic(topic.topic, index) for index in topic.partitions]
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(topic=name, partition_result=partitions)
                for name, partitions in results.items()
            ]
        )


def _no_such_topic(name: str, index: int) -> PartitionResult:
    return PartitionResult(
        partition_id=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"No such topic as {name}",
    )
