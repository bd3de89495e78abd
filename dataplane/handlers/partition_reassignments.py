"""AlterPartitionReassignments (0-1) and ListPartitionReassignments (0): moves of replicas between brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.cluster_image import TopicState
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import reassignment_commands as moves
from ...protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from ..quorum.access import Quorum
from ..runtime.time_slices import pieces
from ..security.authorization.needs import cluster
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles

# A limit, so that one entry of the quorum's log does not hold it up for long.
_PARTITIONS_PER_COMMAND = 1000


def _alter_error(
    message: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    """Return the answer to a failed AlterPartitionReassignments.

    `server.error_answers` cannot derive it from the schema, since the answer repeats a field of the request.
    """
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_code=error.code,
        error_message=error.message,
    )


class PartitionReassignmentHandlers:
    """The handlers that pass changes of replica sets on to the quorum, and list moves of replicas that are in
    progress."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(
        AlterPartitionReassignmentsRequest,
        0,
        1,
        on_error=_alter_error,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=cluster(AclOperation.ALTER),
    )
    async def alter(
        self, request: ClientRequest, message: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Begin, change or cancel moves of replicas to other brokers, each partition separately."""
        allow_change = message.allow_replication_factor_change
        asked = [(topic, wanted) for topic in message.topics for wanted in topic.partitions]
        found: list[moves.ReassignedPartition] = []
        # An empty request is a command, too.
        for some in pieces(asked, _PARTITIONS_PER_COMMAND) or [()]:
            try:
                found += await self._move(some, message.timeout_ms, allow_change=allow_change)
            except KafkaError as error:
                if not found:
                    raise
                refused = moves.ReassignedPartition(error_code=error.code, error_message=error.message or "")
                found += [refused] * (len(asked) - len(found))
                break
        results = iter(found)
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=message.allow_replication_factor_change,
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=wanted.partition_index,
                            error_code=result.error_code,
                            error_message=result.error_message or None,
                        )
                        for wanted, result in zip(topic.partitions, results, strict=False)
                    ],
                )
                for topic in message.topics
            ],
        )

    async def _move(
        self,
        asked: Sequence[tuple[ReassignableTopic, ReassignablePartition]],
        timeout_ms: int,
        *,
        allow_change: bool,
    ) -> list[moves.ReassignedPartition]:
        """Submit one command that reassigns partitions; return the outcome of each. Raises KafkaError if the whole
        command is refused."""
        topics: list[moves.TopicReassignment] = []
        last = None
        for topic, wanted in asked:
            if topic is not last:
                topics.append(moves.TopicReassignment(name=topic.name))
                last = topic
            topics[-1].partitions.append(
                moves.WantedReplicas(partition=wanted.partition_index, replicas=wanted.replicas)
            )
        command = moves.AlterPartitionReassignments(
            topics=topics, allow_replication_factor_change=allow_change
        )
        outcome = await self._quorum.submit(command, timeout_ms=timeout_ms)
        assert isinstance(outcome, moves.AlterPartitionReassignmentsResult)
        if outcome.error_code:
            raise KafkaError(ErrorCode.of(outcome.error_code), outcome.error_message)
        return outcome.partitions

    @handles(
        ListPartitionReassignmentsRequest,
        0,
        0,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=cluster(AclOperation.DESCRIBE),
    )
    def list_ongoing(
        self, request: ClientRequest, message: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """List the partitions that are moving, among the named partitions or among all. Other partitions are left out,
        as in Kafka."""
        image = self._quorum.image
        if message.topics is None:
            asked = [(topic, iter(sorted(topic.partitions))) for _, topic in sorted(image.topics.items())]
        else:
            asked = [
                (image.topics[wanted.name], iter(wanted.partition_indexes))
                for wanted in message.topics
                if wanted.name in image.topics
            ]
        found = [(topic.name, list(_moving(topic, indexes))) for topic, indexes in asked]
        return ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment(name=name, partitions=partitions)
                for name, partitions in found
                if partitions
            ]
        )


def _moving(topic: TopicState, indexes: Iterable[int]) -> Iterator[OngoingPartitionReassignment]:
    for index in indexes:
        state = topic.partitions.get(index)
        if state is not None and state.is_moving:
            yield OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding_replicas),
                removing_replicas=list(state.removing_replicas),
            )
