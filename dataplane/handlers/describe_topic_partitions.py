"""DescribeTopicPartitions (0): topics page by page, with the replicas that could lead without loss (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.cluster_image import ClusterImage, PartitionState, TopicState
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ..cluster.authorized_operations import TOPIC_OPERATIONS
from ..cluster.endpoints import endpoint
from ..cluster.internal_topics import is_internal
from ..cluster.topic_creation import is_valid_topic_name
from ..quorum.access import Quorum
from ..security.authorization.access import Access
from ..security.authorization.needs import handler_asks
from ..server.handler import ClientRequest, handles

PARTITIONS_MAX = 2000
"""Maximum number of partitions of one page: Kafka's default of max.request.partition.size.limit."""


class DescribeTopicPartitionsHandlers:
    """Describes topics from the image."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(DescribeTopicPartitionsRequest, 0, 0, needs=handler_asks("DESCRIBE Topic"))
    def describe(
        self, request: ClientRequest, message: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        """Return topics in the order of their names, from the cursor on, until the page is full."""
        cursor = message.cursor
        if cursor is not None and cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition is {cursor.partition_index}")
        image = self._quorum.image
        names = sorted({topic.name for topic in message.topics} or image.topics)
        access = request.access
        view = _View(image, request.listener, access)
        response = DescribeTopicPartitionsResponse()
        left = max(1, min(message.response_partition_limit, PARTITIONS_MAX))
        for name in names:
            if cursor is not None and name < cursor.topic_name:
                continue
            if not _may_describe(access, name, quiet=not message.topics):
                if message.topics:
                    response.topics.append(
                        DescribeTopicPartitionsResponseTopic(
                            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name
                        )
                    )
                continue
            topic = image.topics.get(name)
            if topic is None:
                response.topics.append(_missing(name))
                continue
            if left == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            page = [index for index in sorted(topic.partitions) if index >= first]
            response.topics.append(view.topic(topic, page[:left]))
            if len(page) > left:
                response.next_cursor = Cursor(topic_name=name, partition_index=page[left])
                break
            left -= len(page)
        return response


def _may_describe(access: Access, name: str, *, quiet: bool) -> bool:
    return access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=quiet)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    valid = is_valid_topic_name(name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, is_internal=is_internal(name))


class _View:
    """The topics in the form in which a client of one listener gets them: brokers count as live if they have this
    listener."""

    def __init__(self, image: ClusterImage, listener: str, access: Access) -> None:
        self._access = access
        self._live = {
            broker_id for broker_id, broker in image.brokers.items() if endpoint(broker, listener) is not None
        }

    def topic(self, topic: TopicState, page: list[int]) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=list(self._partitions(topic, page)),
            topic_authorized_operations=self._access.operations(AclResourceType.TOPIC, topic.name)
            & TOPIC_OPERATIONS,
        )

    def _partitions(
        self, topic: TopicState, page: list[int]
    ) -> Iterator[DescribeTopicPartitionsResponsePartition]:
        for index in page:
            state = topic.partitions[index]
            live = state.leader in self._live
            yield DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if live else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=state.leader if live else -1,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=list(state.elr),
                last_known_elr=list(state.last_known_elr),
                offline_replicas=self._offline(state),
            )

    def _offline(self, state: PartitionState) -> list[int]:
        return [
            replica
            for replica in state.replicas
            if replica not in self._live or replica in state.offline_replicas
        ]
