"""DescribeProducers (0): the producers that a replica remembers; any replica answers, not only the leader."""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ..log.producers.producer_state import ProducerEntry
from ..replication.replicas.replicas import Replicas
from ..runtime.time_slices import MOVED_PER_TURN, in_time_slices
from ..security.authorization.access import Access
from ..security.authorization.needs import handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles


class DescribeProducersHandlers:
    """Reads the producer states of this broker's replicas."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    @handles(
        DescribeProducersRequest,
        0,
        0,
        errors=ErrorAnswers(arrays={"partition_indexes": "partitions"}),
        needs=handler_asks("READ Topic"),
    )
    async def describe(
        self, request: ClientRequest, message: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        """Return one answer for each partition, even if it is named twice.

        The error is NOT_LEADER_OR_FOLLOWER if this broker has no replica.
        """
        asked: dict[str, dict[int, None]] = {}
        for topic in message.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        answers = {name: TopicResponse(name=name) for name in asked}
        partitions = ((name, index) for name, indexes in asked.items() for index in indexes)
        async for name, index in in_time_slices(partitions):
            answers[name].partitions.append(await self._partition(request.access, name, index))
        return DescribeProducersResponse(topics=list(answers.values()))

    async def _partition(self, access: Access, topic: str, index: int) -> PartitionResponse:
        try:
            access.check_topic(AclOperation.READ, topic)
            producers = self._replicas.get(topic, index).log.producers
        except KafkaError as error:
            return PartitionResponse(
                partition_index=index, error_code=error.code, error_message=error.message
            )
        # A partition remembers each producer that wrote within a day, perhaps a hundred thousand.
        entries = in_time_slices(list(producers.entries()), MOVED_PER_TURN)
        return PartitionResponse(
            partition_index=index, active_producers=[_producer(entry) async for entry in entries]
        )


def _producer(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.batches[-1].timestamp if entry.batches else entry.last_seen_ms,
        coordinator_epoch=entry.marker_number,
        current_txn_start_offset=entry.transaction_first_offset,
    )
