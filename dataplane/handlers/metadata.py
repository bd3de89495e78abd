"""Metadata (0-13): the brokers and topics of the cluster as this broker's image has them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ...protocol.cluster_image import ClusterImage, PartitionState, TopicState
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ...protocol.schema import ZERO_UUID
from ..cluster.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR, TOPIC_OPERATIONS
from ..cluster.endpoints import Endpoint, controller_id, endpoint, live_endpoints, registered_endpoint
from ..cluster.internal_topics import INTERNAL_TOPICS
from ..cluster.listed_brokers import ListedBrokers
from ..cluster.topic_creation import TopicCreator, is_valid_topic_name
from ..quorum.access import Quorum
from ..runtime.time_slices import ITEMS_PER_TURN, in_time_slices
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles


def _metadata_error(message: MetadataRequest, error: KafkaError) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error_code=int(error.code), name=topic.name or "", topic_id=topic.topic_id)
        for topic in message.topics or ()
    ]
    return MetadataResponse(topics=topics, controller_id=-1)


class MetadataHandlers:
    """Answers from the image, and creates missing topics where that is allowed."""

    def __init__(
        self, quorum: Quorum, own_broker_id: int, creator: TopicCreator, listed: ListedBrokers
    ) -> None:
        self._quorum = quorum
        self._own_broker_id = own_broker_id
        self._creator = creator
        self._listed = listed
        self._tasks: set[asyncio.Task[None]] = set()

    @handles(MetadataRequest, 0, 13, on_error=_metadata_error, elements_max=WHOLE_CLUSTER_ELEMENTS)
    def metadata(self, request: ClientRequest, message: MetadataRequest) -> MetadataResponse | None:
        """Describe topics by name or id, or all topics. Replies later if topics are created first."""
        _check_identifiers(request.api_version, message)
        missing = self._to_create(request.api_version, message)
        if missing or self._is_long(message):
            task = asyncio.get_running_loop().create_task(self._reply_later(request, message, missing))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return None
        return self._respond(request, message, list(self._topics(request, message, {})))

    def _is_long(self, message: MetadataRequest) -> bool:
        topics = message.topics or self._quorum.image.topics
        return len(topics) > ITEMS_PER_TURN

    def _to_create(self, version: int, message: MetadataRequest) -> list[str]:
        allowed = message.allow_auto_topic_creation and self._creator.defaults.auto_create
        if not allowed or message.topics is None:
            return []
        topics = self._quorum.image.topics
        names = (topic.name for topic in message.topics)
        return [
            name for name in names if name is not None and name not in topics and is_valid_topic_name(name)
        ]

    async def _reply_later(
        self, request: ClientRequest, message: MetadataRequest, missing: list[str]
    ) -> None:
        try:
            errors = await self._creator.create(missing) if missing else {}
            topics = [topic async for topic in in_time_slices(self._topics(request, message, errors))]
            await request.reply_when_encoded(self._respond(request, message, topics))
        except Exception:
            request.close_connection()
            raise

    def _topics(
        self, request: ClientRequest, message: MetadataRequest, creation_errors: dict[str, ErrorCode]
    ) -> Iterator[MetadataResponseTopic]:
        """Those that were asked for, each of them once."""
        image, version = self._quorum.image, request.api_version
        view = _TopicView(image, request.listener, version, message.include_topic_authorized_operations)
        everything = message.topics is None or (version == 0 and not message.topics)
        if everything:
            yield from map(view.topic, list(image.topics.values()))
        else:
            asked = dict.fromkeys((topic.name, topic.topic_id) for topic in message.topics or ())
            for name, topic_id in asked:
                yield view.find(name, topic_id, creation_errors)

    def _respond(
        self, request: ClientRequest, message: MetadataRequest, topics: list[MetadataResponseTopic]
    ) -> MetadataResponse:
        image = self._quorum.image
        reachable = list(live_endpoints(image, request.listener)) or self._own_endpoint(request.listener)
        listed = (registered_endpoint(broker, request.listener) for broker in self._listed.in_order(image))
        told = {found.broker_id: found for found in (*listed, *reachable) if found is not None}
        operations = OPERATIONS_NOT_ASKED_FOR
        if message.include_cluster_authorized_operations:
            operations = CLUSTER_OPERATIONS
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=found.broker_id, host=found.host, port=found.port, rack=found.rack
                )
                for found in told.values()
            ],
            cluster_id=image.cluster_id,
            controller_id=controller_id(reachable, self._own_broker_id),
            topics=topics,
            cluster_authorized_operations=operations,
        )

    def _own_endpoint(self, listener: str) -> list[Endpoint]:
        """This broker, which is reachable even when all are fenced: a client that is told of no broker at all
        has nobody left to ask."""
        own = self._quorum.image.brokers.get(self._own_broker_id)
        found = None if own is None else registered_endpoint(own, listener)
        return [] if found is None else [found]


def _check_identifiers(version: int, message: MetadataRequest) -> None:
    for topic in message.topics or ():
        if topic.name is None and topic.topic_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has neither name nor id")
        if version >= 12:
            continue
        if topic.name is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"a null topic name is not allowed in version {version}"
            )
        if topic.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic ids are not supported in version {version}")


class _TopicView:
    """Topics as one request is shown them."""

    def __init__(self, image: ClusterImage, listener: str, version: int, with_operations: bool) -> None:
        self._image = image
        self._version = version
        self._operations = TOPIC_OPERATIONS if with_operations else OPERATIONS_NOT_ASKED_FOR
        self._live = {
            broker_id
            for broker_id, broker in image.brokers.items()
            if endpoint(broker, listener) is not None
        }  # fmt: skip

    def find(
        self, name: str | None, topic_id: bytes, creation_errors: dict[str, ErrorCode]
    ) -> MetadataResponseTopic:
        """One topic that was asked for, found or not."""
        if topic_id != ZERO_UUID:
            topic = self._image.topics_by_id.get(topic_id)
            if topic is None:
                return self._missing(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
            return self.topic(topic)
        assert name is not None, "a request with neither name nor id has been refused"
        topic = self._image.topics.get(name)
        if topic is not None:
            return self.topic(topic)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not is_valid_topic_name(name):
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif creation_errors.get(name) == ErrorCode.INVALID_REPLICATION_FACTOR:
            error = ErrorCode.INVALID_REPLICATION_FACTOR
        return self._missing(name, ZERO_UUID, error)

    def topic(self, topic: TopicState) -> MetadataResponseTopic:
        """A topic that exists."""
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self._partition(i, state) for i, state in sorted(topic.partitions.items())],
            topic_authorized_operations=self._operations,
        )

    def _missing(self, name: str | None, topic_id: bytes, error: ErrorCode) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=self._operations,
        )

    def _partition(self, index: int, state: PartitionState) -> MetadataResponsePartition:
        live = self._live
        replicas, isr = list(state.replicas), list(state.isr)
        offline = [one for one in replicas if one not in live or one in state.offline_replicas]
        error, leader = ErrorCode.NONE, state.leader
        if leader not in live:
            error, leader = ErrorCode.LEADER_NOT_AVAILABLE, -1
            if (
                self._version >= 6
                and state.leader in self._image.brokers
                and not self._is_fenced(state.leader)
            ):
                error = ErrorCode.LISTENER_NOT_FOUND
        if self._version == 0 and offline:
            replicas = [replica for replica in replicas if replica in live]
            isr = [replica for replica in isr if replica in live]
            if error == ErrorCode.NONE:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline,
        )

    def _is_fenced(self, broker_id: int) -> bool:
        return self._image.brokers[broker_id].fenced
