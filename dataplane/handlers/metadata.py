"""Metadata (0-13): the brokers and topics of the cluster in this broker's image."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.cluster_image import TopicState
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from ...protocol.wire.schema import ZERO_UUID, EncodedArray
from ..cluster.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR, TOPIC_OPERATIONS
from ..cluster.endpoints import Endpoint, controller_id, live_endpoints, registered_endpoint
from ..cluster.internal_topics import is_internal
from ..cluster.listed_brokers import ListedBrokers
from ..cluster.lost_brokers import LostBrokers
from ..cluster.topic_creation import TopicCreator, is_valid_topic_name
from ..cluster.topic_views import TopicView, TopicViews
from ..quorum.access import Quorum
from ..runtime.time_slices import ITEMS_PER_TURN, in_time_slices
from ..security.authorization.access import Access, cluster_operations
from ..security.authorization.needs import handler_asks
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles

_PARTITIONS_OF_ITEM = 5
_BYTES_OF_ITEM = 200
"""Size of an item of work when answers are split into turns. A topic takes longer the more partitions it has:
`_PARTITIONS_OF_ITEM` partitions count as one more item, and take about this number of bytes."""


def _metadata_error(message: MetadataRequest, error: KafkaError) -> MetadataResponse:
    """Return the answer to a failed Metadata request, with the error for each topic.

    `server.error_answers` cannot derive it from the schema: no version has the error at the top, and a topic that is
    named by its id has an empty name.
    """
    topics = [
        MetadataResponseTopic(error_code=int(error.code), name=topic.name or "", topic_id=topic.topic_id)
        for topic in message.topics or ()
    ]
    return MetadataResponse(topics=topics, controller_id=-1)


class MetadataHandlers:
    """The handler of Metadata, which answers from the image, and creates missing topics if that is allowed."""

    def __init__(
        self,
        quorum: Quorum,
        own_broker_id: int,
        creator: TopicCreator,
        listed: ListedBrokers,
        lost: LostBrokers,
    ) -> None:
        self._quorum = quorum
        self._own_broker_id = own_broker_id
        self._creator = creator
        self._listed = listed
        self._lost = lost
        self._views = TopicViews()
        self._tasks: set[asyncio.Task[None]] = set()

    @handles(
        MetadataRequest,
        0,
        13,
        on_error=_metadata_error,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=handler_asks("DESCRIBE Topic; CREATE Cluster or Topic for topics that it creates"),
    )
    def metadata(self, request: ClientRequest, message: MetadataRequest) -> MetadataResponse | None:
        """Describe topics by name or id, or all topics.

        The reply comes later if topics are created first, or if news of their leaders is awaited.
        """
        _check_identifiers(request.api_version, message)
        missing, errors = self._to_create(request.access, message)
        if missing or self._is_long(request.api_version, message) or self._awaits_news(message):
            task = asyncio.get_running_loop().create_task(
                self._reply_later(request, message, missing, errors)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return None
        return self._respond(request, message, list(filter(None, self._topics(request, message, errors))))

    def _is_long(self, version: int, message: MetadataRequest) -> bool:
        topics, named = self._quorum.image.topics, _named(version, message)
        if named is None:
            items, found = len(topics), iter(topics.values())
        else:
            items, found = len(named), self._existing(named)
        if items > ITEMS_PER_TURN:
            return True
        return items + sum(len(topic.partitions) // _PARTITIONS_OF_ITEM for topic in found) > ITEMS_PER_TURN

    def _existing(self, topics: list[MetadataRequestTopic]) -> Iterator[TopicState]:
        """Yield those of the requested topics, by name or id, that exist in the image."""
        image = self._quorum.image
        for topic in topics:
            found = (
                image.topics_by_id.get(topic.topic_id) if topic.name is None else image.topics.get(topic.name)
            )
            if found is not None:
                yield found

    def _awaits_news(self, message: MetadataRequest) -> bool:
        """Return whether a requested partition's leader is a broker that may be dead, so that news of another leader is
        awaited."""
        lost = self._lost.ids
        if not lost or message.topics is None:
            return bool(lost)
        return any(
            state.leader in lost
            for topic in self._existing(message.topics)
            for state in topic.partitions.values()
        )

    def _to_create(self, access: Access, message: MetadataRequest) -> tuple[list[str], dict[str, ErrorCode]]:
        """Return the topics to create, and the errors of topics that the client may not create."""
        wanted = message.allow_auto_topic_creation and self._creator.defaults.auto_create
        if not wanted or message.topics is None:
            return [], {}
        topics = self._quorum.image.topics
        missing = [
            topic.name
            for topic in message.topics
            if topic.name is not None and topic.name not in topics and is_valid_topic_name(topic.name)
        ]
        if access.grants is None or not missing:
            return missing, {}
        missing = [name for name in missing if _may_describe(access, name, quiet=True)]
        if access.allows_cluster(AclOperation.CREATE, quiet=True):
            return missing, {}
        denied = access.denied_topics(AclOperation.CREATE, missing)
        errors = dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return [name for name in missing if name not in denied], errors

    async def _reply_later(
        self,
        request: ClientRequest,
        message: MetadataRequest,
        missing: list[str],
        errors: dict[str, ErrorCode],
    ) -> None:
        try:
            if missing:
                errors = errors | await self._creator.create(missing)
            if self._awaits_news(message):
                await self._lost.settled()
            looked_at = in_time_slices(self._topics(request, message, errors), weight=_weight)
            topics = [topic async for topic in looked_at if topic is not None]
            await request.reply_when_encoded(self._respond(request, message, topics))
        except Exception:
            request.close_connection()
            raise

    def _topics(
        self, request: ClientRequest, message: MetadataRequest, creation_errors: dict[str, ErrorCode]
    ) -> Iterator[bytes | None]:
        """Yield the encoded entry of each requested topic once; None for a topic that the client may not see."""
        image, version = self._quorum.image, request.api_version
        view = self._views.of(image, request.listener, version)
        answers = _TopicAnswers(request.access, view, message.include_topic_authorized_operations)
        named = _named(version, message)
        if named is None:
            topics = list(image.topics.values())
            names = [topic.name for topic in topics]
            describable = request.access.allows_each(AclOperation.DESCRIBE, AclResourceType.TOPIC, names)
            for topic, is_visible in zip(topics, describable, strict=True):
                yield answers.topic(topic) if is_visible else None
            return
        for name, topic_id in dict.fromkeys((topic.name, topic.topic_id) for topic in named):
            if topic_id != ZERO_UUID:
                yield answers.by_id(image.topics_by_id.get(topic_id), topic_id)
            else:
                assert name is not None, "a request with neither name nor id has been refused"
                yield answers.by_name(image.topics.get(name), name, creation_errors.get(name))

    def _respond(
        self, request: ClientRequest, message: MetadataRequest, topics: list[bytes]
    ) -> MetadataResponse:
        image = self._quorum.image
        reachable = list(live_endpoints(image, request.listener)) or self._own_endpoint(request.listener)
        listed = (registered_endpoint(broker, request.listener) for broker in self._listed.in_order(image))
        brokers = {found.broker_id: found for found in (*listed, *reachable) if found is not None}
        operations = OPERATIONS_NOT_ASKED_FOR
        if message.include_cluster_authorized_operations:
            operations = cluster_operations(request.access) & CLUSTER_OPERATIONS
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=found.broker_id, host=found.host, port=found.port, rack=found.rack
                )
                for found in brokers.values()
            ],
            cluster_id=image.cluster_id,
            controller_id=controller_id(reachable, self._own_broker_id),
            topics=cast(list[MetadataResponseTopic], EncodedArray(topics)),
            cluster_authorized_operations=operations,
        )

    def _own_endpoint(self, listener: str) -> list[Endpoint]:
        """Return this broker, which is reachable even when all are fenced. A client that gets no broker at all has none
        to ask."""
        own = self._quorum.image.brokers.get(self._own_broker_id)
        found = None if own is None else registered_endpoint(own, listener)
        return [] if found is None else [found]


def _named(version: int, message: MetadataRequest) -> list[MetadataRequestTopic] | None:
    """Return the requested topics; None for all topics, which version 0 requests by an empty list."""
    return None if version == 0 and not message.topics else message.topics


def _weight(encoded: bytes | None) -> int:
    return 1 if encoded is None else 1 + len(encoded) // _BYTES_OF_ITEM


def _may_describe(access: Access, name: str, *, quiet: bool = False) -> bool:
    return access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=quiet)


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


class _TopicAnswers:
    """The encoded entries of topics for the answer to one Metadata request, within the client's permissions."""

    def __init__(self, access: Access, view: TopicView, with_operations: bool) -> None:
        self._access = access
        self._view = view
        self._with_operations = with_operations

    def by_id(self, topic: TopicState | None, topic_id: bytes) -> bytes:
        """Return the encoded entry of a topic that was requested by its id; an error entry if `topic` is None or
        denied."""
        if topic is None:
            return self._missing(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return self.topic(topic) if _may_describe(self._access, topic.name) else self._denied(None, topic_id)

    def by_name(self, topic: TopicState | None, name: str, creation_error: ErrorCode | None) -> bytes:
        """Return the encoded entry of a topic that was requested by its name; an error entry if `topic` is None or
        denied."""
        if not _may_describe(self._access, name):
            return self._denied(name, ZERO_UUID)
        if topic is not None:
            return self.topic(topic)
        if creation_error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return self._denied(name, ZERO_UUID)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not is_valid_topic_name(name):
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif creation_error == ErrorCode.INVALID_REPLICATION_FACTOR:
            error = ErrorCode.INVALID_REPLICATION_FACTOR
        return self._missing(name, ZERO_UUID, error)

    def topic(self, topic: TopicState) -> bytes:
        """Return the encoded entry of a topic that exists."""
        return self._view.encoded(topic, self._operations(topic.name))

    def _operations(self, name: str) -> int:
        if not self._with_operations:
            return OPERATIONS_NOT_ASKED_FOR
        return self._access.operations(AclResourceType.TOPIC, name) & TOPIC_OPERATIONS

    def _denied(self, name: str | None, topic_id: bytes) -> bytes:
        """Return an encoded entry with the error TOPIC_AUTHORIZATION_FAILED, which is identical for existing and
        missing topics."""
        return self._view.encoded_message(
            MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                name=name,
                topic_id=topic_id,
                topic_authorized_operations=OPERATIONS_NOT_ASKED_FOR,
            )
        )

    def _missing(self, name: str | None, topic_id: bytes, error: ErrorCode) -> bytes:
        return self._view.encoded_message(
            MetadataResponseTopic(
                error_code=error,
                name=name,
                topic_id=topic_id,
                is_internal=name is not None and is_internal(name),
                topic_authorized_operations=self._operations(name or ""),
            )
        )
