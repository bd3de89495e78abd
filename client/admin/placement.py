"""Replicas and leaders: reassignments (KIP-455), elections (KIP-460), and brokers that leave for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...protocol.errors import KafkaError
from ...protocol.messages.broker_removal import UnregisterBrokerRequest
from ...protocol.messages.leaders import ElectLeadersRequest, TopicPartitions
from ...protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from ..bounds import BrokerId
from ..records import TopicPartition
from .admin_base import AdminBase
from .session import check, error_of


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """The replicas of a partition that is moving: those that remain or are added, then those that will be removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PlacementAdmin(AdminBase):
    """The methods that move replicas, elect leaders and remove brokers. Each change is sent to one broker, once."""

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[BrokerId] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move each partition to these replicas, preferred leader first; None cancels the current reassignment.

        Returns the result of each partition: None if the move was accepted, or the error. The move itself takes longer.

            refused = await admin.alter_partition_reassignments({TopicPartition("orders", 0): [1]})
        """
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, index), wanted in replicas.items():
            partition = ReassignablePartition(
                partition_index=index, replicas=None if wanted is None else list(wanted)
            )
            topics.setdefault(topic, []).append(partition)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self.session.timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[ReassignableTopic(name=name, partitions=wanted) for name, wanted in topics.items()],
        )
        connection = await self.session.cluster.any_connection()
        response = await connection.request(request)
        check(response.error_code, "reassignment", response.error_message, operation="ALTER")
        return {
            TopicPartition(topic.name, partition.partition_index): error_of(
                partition.error_code, partition.error_message
            )
            for topic in response.responses
            for partition in topic.partitions
        }

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Return the reassignments of replicas that are in progress, of these partitions or of all."""
        response = await self.session.cluster.ask_any(
            ListPartitionReassignmentsRequest(
                timeout_ms=self.session.timeout_ms,
                topics=None
                if partitions is None
                else [
                    ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                    for name, indexes in _by_topic(partitions).items()
                ],
            )
        )
        check(response.error_code, "reassignments", response.error_message, operation="DESCRIBE")
        return {
            TopicPartition(topic.name, partition.partition_index): OngoingReassignment(
                tuple(partition.replicas),
                tuple(partition.adding_replicas),
                tuple(partition.removing_replicas),
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect the preferred replica of each partition as leader.

        With `unclean` a partition without a leader gets any live replica as leader, and loses records. Returns the
        result of each partition: None for a new leader, or the error. Without `partitions`, those that needed no
        election are left out.
        """
        asked = None if partitions is None else _by_topic(partitions)
        request = ElectLeadersRequest(
            election_type=int(unclean),
            topic_partitions=None
            if asked is None
            else [TopicPartitions(topic=name, partitions=indexes) for name, indexes in asked.items()],
            timeout_ms=self.session.timeout_ms,
        )
        connection = await self.session.cluster.any_connection()
        response = await connection.request(request)
        check(response.error_code, "election", None, operation="ALTER")
        return {
            TopicPartition(topic.topic, result.partition_id): error_of(
                result.error_code, result.error_message
            )
            for topic in response.replica_election_results
            for result in topic.partition_result
        }

    async def unregister_broker(self, broker_id: BrokerId) -> None:
        """Remove the registration of a broker that is gone for good. The replica lists of partitions still name the
        broker."""
        connection = await self.session.cluster.any_connection()
        request = UnregisterBrokerRequest(broker_id=broker_id)
        response = await connection.request(request)
        check(response.error_code, f"broker {broker_id}", response.error_message, operation="ALTER")


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics
