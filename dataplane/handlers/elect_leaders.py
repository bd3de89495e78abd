"""ElectLeaders (0-2): elections of preferred leaders, or of any leader for partitions without a leader (KIP-460)."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.cluster_image import NO_LEADER, ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import partition_commands
from ...protocol.messages.leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ..quorum.access import Quorum
from ..runtime.time_slices import in_time_slices, pieces
from ..security.authorization.needs import cluster
from ..server.error_answers import ErrorAnswers
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles

# A limit, so that one entry of the quorum's log does not hold it up for long, and is not too large: the quorum's leader
# adds the log ends of each partition's replicas.
_PARTITIONS_PER_COMMAND = 1000
_OVERTAKEN = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Errors that are left out for unnamed partitions: the partition has changed between its selection and the election."""


class ElectLeadersHandlers:
    """The handler of ElectLeaders, which has the quorum elect partitions' leaders."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(
        ElectLeadersRequest,
        0,
        2,
        errors=ErrorAnswers(
            arrays={"topic_partitions": "replica_election_results", "partitions": "partition_result"},
            in_elements_too=True,
        ),
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=cluster(AclOperation.ALTER),
    )
    async def elect(self, request: ClientRequest, message: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect preferred leaders, or any leader for partitions without a leader."""
        image = self._quorum.image
        topics = message.topic_partitions
        if topics is None:
            wanted = await _in_need(image, message.election_type)
        else:
            wanted = [
                partition_commands.ElectionPartition(topic_id=image.topics[topic.topic].id, partition=index)
                for topic in topics
                if topic.topic in image.topics
                for index in topic.partitions
            ]
        names = {topic.id: topic.name for topic in image.topics.values()}
        results: dict[str, list[PartitionResult]] = {}
        for elected in await self._elected(wanted, message):
            if topics is None and elected.error_code in _OVERTAKEN:
                continue
            results.setdefault(names.get(elected.topic_id, ""), []).append(
                PartitionResult(
                    partition_id=elected.partition,
                    error_code=elected.error_code,
                    error_message=elected.error_message if elected.error_code else None,
                )
            )
        for topic in topics or ():
            if topic.topic not in image.topics:
                results[topic.topic] = [_no_such_topic(topic.topic, index) for index in topic.partitions]
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(topic=name, partition_result=partitions)
                for name, partitions in results.items()
            ]
        )

    async def _elected(
        self, wanted: Sequence[partition_commands.ElectionPartition], message: ElectLeadersRequest
    ) -> list[partition_commands.ElectedPartition]:
        """Return the outcome of each partition, in order. Partitions after a failure have its error."""
        found: list[partition_commands.ElectedPartition] = []
        # An election without partitions is a command, too.
        for some in pieces(wanted, _PARTITIONS_PER_COMMAND) or [()]:
            command = partition_commands.ElectLeaders(
                election_type=message.election_type, partitions=list(some)
            )
            try:
                outcome = await self._quorum.submit(command, timeout_ms=message.timeout_ms)
            except KafkaError as error:
                if not found:
                    raise
                found += [
                    partition_commands.ElectedPartition(
                        topic_id=partition.topic_id,
                        partition=partition.partition,
                        error_code=error.code,
                        error_message=error.message,
                    )
                    for partition in wanted[len(found) :]
                ]
                break
            found += outcome.partitions
        return found


async def _in_need(image: ClusterImage, election_type: int) -> list[partition_commands.ElectionPartition]:
    """Return all partitions whose leader an election of this type would change: preferred, or unclean for leaderless
    partitions."""
    unclean = election_type == partition_commands.ElectionType.UNCLEAN
    wanted: list[partition_commands.ElectionPartition] = []
    async for topic in in_time_slices(
        list(image.topics.values()), weight=lambda topic: len(topic.partitions)
    ):
        wanted += [
            partition_commands.ElectionPartition(topic_id=topic.id, partition=index)
            for index, state in topic.partitions.items()
            if (state.leader == NO_LEADER if unclean else state.leader != state.replicas[0])
        ]
    return wanted


def _no_such_topic(name: str, index: int) -> PartitionResult:
    return PartitionResult(
        partition_id=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"No such topic as {name}",
    )
