"""CreateTopics (2-7), DeleteTopics (1-6) and CreatePartitions (0-3): requests become commands of the quorum."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import topic_commands
from ...protocol.messages.command import Command, refusal
from ...protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ...protocol.wire.schema import ZERO_UUID
from ..cluster.topic_creation import TOPICS_PER_COMMAND, TopicDefaults
from ..quorum.access import Quorum
from ..quotas import ClientQuotas
from ..runtime.time_slices import in_time_slices, pieces
from ..security.authorization.access import Access, denial
from ..security.authorization.needs import handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles
from .settings.config_view import ConfigView, EffectiveSetting
from .settings.withheld import sent_value

_T = TypeVar("_T")

_TOPIC = AclResourceType.TOPIC
_DEFAULT = -1
# The maximum of one request, as in Kafka.
_PARTITIONS_MAX = 10_000
# From these versions on clients understand that single topics are refused for a quota (KIP-599).
_STRICT_CREATION, _STRICT_DELETION, _STRICT_PARTITIONS = 6, 5, 3


def _refused_creation(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        error_code=error.code,
        error_message=error.message,
        num_partitions=-1,
        replication_factor=-1,
    )


def _refused_deletion(topic: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
    )


def _deletions(message: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """Return the topics to delete, which are in one of two fields of the request, by its version."""
    return message.topics or [DeleteTopicState(name=name) for name in message.topic_names]


def _refused_partitions(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


class TopicHandlers:
    """The handlers that create, delete and extend topics. They check the requests themselves; the controller's state
    machine decides the rest."""

    def __init__(
        self,
        quorum: Quorum,
        defaults: TopicDefaults,
        config_view: ConfigView,
        rng: random.Random,
        *,
        delete_topic_enable: bool = True,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._quorum = quorum
        self._defaults = defaults
        self._config_view = config_view
        self._rng = rng
        self._delete_topic_enable = delete_topic_enable
        self._quotas = quotas or ClientQuotas()

    def _charge(self, request: ClientRequest, partitions: int, *, strict: bool) -> KafkaError | None:
        """Charge the client for partitions it creates or deletes; return an error if it is over its quota."""
        quota = self._quotas.mutations
        if quota is None or not request.session.is_metered:
            return None
        user, now_ms = request.session.user, request.received_at * 1000
        throttle_ms = quota.charge(user, request.client_id, max(0, partitions), now_ms, strict=strict)
        request.throttle(throttle_ms)
        return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED) if strict and throttle_ms else None

    @handles(
        CreateTopicsRequest,
        2,
        7,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=handler_asks("CREATE Cluster, or CREATE Topic; DESCRIBE_CONFIGS Topic for its settings"),
    )
    async def create_topics(
        self, request: ClientRequest, message: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        """Create topics. Each has a separate result, and a name that comes twice is refused."""
        repeated = _repeated(topic.name for topic in message.topics)
        error = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        results = [_refused_creation(name, error) for name in sorted(repeated)]
        wanted = []
        access = request.access
        creates_any = access.allows_cluster(AclOperation.CREATE, quiet=True)
        async for topic in in_time_slices(message.topics):
            if topic.name in repeated:
                continue
            if not creates_any and not access.allows(AclOperation.CREATE, _TOPIC, topic.name):
                results.append(_refused_creation(topic.name, denial(_TOPIC)))
                continue
            wanted.append(topic)
        if wanted:
            results += await self._create(request, wanted, message)
        return CreateTopicsResponse(topics=results)

    async def _create(
        self, request: ClientRequest, wanted: list[CreatableTopic], message: CreateTopicsRequest
    ) -> list[CreatableTopicResult]:
        if sum(max(0, self._partitions_of(topic)) for topic in wanted) > _PARTITIONS_MAX:
            error = KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Excessively large number of partitions per request: at most {_PARTITIONS_MAX}",
            )
            return [_refused_creation(topic.name, error) for topic in wanted]
        results = []
        charged = []
        async for topic in in_time_slices(wanted):
            over = self._charge_creation(request, topic)
            if over is None:
                charged.append(topic)
            else:
                results.append(_refused_creation(topic.name, over))
        settings = _CreatedSettings(self._config_view)
        outcomes = self._outcomes(
            charged,
            lambda some: topic_commands.CreateTopics(
                topics=[self._new_topic(topic) for topic in some],
                validate_only=message.validate_only,
                seed=self._rng.getrandbits(63),
            ),
            message.timeout_ms,
        )
        results += [
            _created(topic, result, settings if self._shows_settings(request, topic) else None)
            async for topic, result in outcomes
        ]
        return results

    def _charge_creation(self, request: ClientRequest, topic: CreatableTopic) -> KafkaError | None:
        """Charge the client for a new topic; return an error if it is over its quota.

        As in Kafka, an existing topic costs nothing, because many programs create their topics at each start.
        """
        if topic.name in self._quorum.image.topics:
            return None
        strict = request.api_version >= _STRICT_CREATION
        return self._charge(request, self._partitions_of(topic), strict=strict)

    def _shows_settings(self, request: ClientRequest, topic: CreatableTopic) -> bool:
        return request.access.allows(AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic.name, quiet=True)

    async def _outcomes(
        self, wanted: list[_T], command_for: Callable[[Sequence[_T]], Command[Any]], timeout_ms: int
    ) -> AsyncIterator[tuple[_T, Any]]:
        """Yield the outcome of each topic. The commands are small enough not to hold up the quorum for long.

        A KafkaError of a command is the outcome of all its topics, and of all later topics.
        """
        deadline_s = time.monotonic() + timeout_ms / 1000
        refused: KafkaError | None = None
        for some in pieces(wanted, TOPICS_PER_COMMAND):
            results: Iterable[Any] = itertools.repeat(refused, len(some))
            if refused is None:
                try:
                    left_ms = int((deadline_s - time.monotonic()) * 1000)
                    outcome: Any = await self._quorum.submit(command_for(some), timeout_ms=left_ms)
                    results = outcome.topics
                except KafkaError as error:
                    refused = error
                    results = itertools.repeat(refused, len(some))
            for topic, result in zip(some, results, strict=True):
                yield topic, result

    def _partitions_of(self, topic: CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return self._defaults.num_partitions if topic.num_partitions == _DEFAULT else topic.num_partitions

    def _new_topic(self, topic: CreatableTopic) -> topic_commands.NewTopic:
        assigned = bool(topic.assignments)
        partitions, factor = topic.num_partitions, topic.replication_factor
        return topic_commands.NewTopic(
            name=topic.name,
            num_partitions=self._defaults.num_partitions
            if partitions == _DEFAULT and not assigned
            else partitions,
            replication_factor=self._defaults.replication_factor
            if factor == _DEFAULT and not assigned
            else factor,
            assignments=[
                topic_commands.PartitionAssignment(
                    partition=given.partition_index, replicas=list(given.broker_ids)
                )
                for given in topic.assignments
            ],
            configs=[
                topic_commands.NewTopicConfig(
                    name=config.name, value=sent_value(_TOPIC, config.name, config.value)
                )
                for config in topic.configs
            ],
        )

    @handles(
        DeleteTopicsRequest,
        1,
        6,
        errors=ErrorAnswers(arrays={"topics": "responses", "topic_names": "responses"}),
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=handler_asks("DELETE Cluster, or DELETE Topic; DESCRIBE Topic to be told of it"),
    )
    async def delete_topics(
        self, request: ClientRequest, message: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        """Delete topics by name or, from version 6 on, by id."""
        if not self._delete_topic_enable:
            code = (
                ErrorCode.TOPIC_DELETION_DISABLED if request.api_version >= 3 else ErrorCode.INVALID_REQUEST
            )
            raise KafkaError(code, "delete.topic.enable is false on this broker")
        results: list[DeletableTopicResult] = []
        wanted: list[DeleteTopicState] = []
        seen: set[str | bytes] = set()
        access = request.access
        deletes_any = access.allows_cluster(AclOperation.DELETE, quiet=True)
        async for topic in in_time_slices(_deletions(message)):
            try:
                if not deletes_any:
                    _check_deletion(access, self._quorum.image, topic)
                name, topic_id = _resolve(self._quorum.image, topic)
                if topic_id in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic.")
                seen.add(topic_id)
                partitions = len(self._quorum.image.topics[name].partitions)
                over = self._charge(request, partitions, strict=request.api_version >= _STRICT_DELETION)
                if over is not None:
                    raise over
                wanted.append(DeleteTopicState(name=name, topic_id=topic_id))
            except KafkaError as error:
                results.append(_refused_deletion(topic, error))
        if wanted:
            outcomes = self._outcomes(
                wanted,
                lambda some: topic_commands.DeleteTopics(topic_ids=[topic.topic_id for topic in some]),
                message.timeout_ms,
            )
            results += [_deleted(topic, result) async for topic, result in outcomes]
        return DeleteTopicsResponse(responses=results)

    @handles(
        CreatePartitionsRequest,
        0,
        3,
        errors=ErrorAnswers(arrays={"topics": "results"}),
        needs=handler_asks("ALTER Topic"),
    )
    async def create_partitions(
        self, request: ClientRequest, message: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        """Raise topics' numbers of partitions, each topic separately."""
        repeated = _repeated(topic.name for topic in message.topics)
        error = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        results = [_refused_partitions(name, error) for name in sorted(repeated)]
        wanted = []
        async for topic in in_time_slices(message.topics):
            if topic.name in repeated:
                continue
            if not request.access.allows(AclOperation.ALTER, _TOPIC, topic.name):
                results.append(_refused_partitions(topic.name, denial(_TOPIC)))
                continue
            present = self._quorum.image.topics.get(topic.name)
            more = topic.count - len(present.partitions) if present is not None else 0
            if more > _PARTITIONS_MAX:
                more = 0  # not charged, since the quorum refuses such a number
            over = self._charge(request, more, strict=request.api_version >= _STRICT_PARTITIONS)
            if over is None:
                wanted.append(topic)
            else:
                results.append(_refused_partitions(topic.name, over))
        if wanted:
            outcomes = self._outcomes(
                wanted,
                lambda some: topic_commands.CreatePartitions(
                    topics=[_more_partitions(topic) for topic in some],
                    validate_only=message.validate_only,
                    seed=self._rng.getrandbits(63),
                ),
                message.timeout_ms,
            )
            results += [_enlarged(topic, result) async for topic, result in outcomes]
        return CreatePartitionsResponse(results=results)


class _CreatedSettings:
    """The settings of new topics in the answer to CreateTopics. Topics without settings in the request share one
    list."""

    def __init__(self, view: ConfigView) -> None:
        self._settings = view.topics()
        self._plain = [_created_setting(entry) for entry in self._settings.fallen_back]

    def of(self, topic: CreatableTopic) -> list[CreatableTopicConfigs]:
        """Return all effective settings of a new topic, including defaults."""
        overrides = {config.name: config.value for config in topic.configs if config.value is not None}
        if not overrides:
            return self._plain
        return [_created_setting(entry) for entry in self._settings.of(overrides)]


def _created_setting(entry: EffectiveSetting) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name, value=entry.value, config_source=entry.source, is_sensitive=entry.is_sensitive
    )


def _created(
    topic: CreatableTopic, result: topic_commands.CreatedTopic | KafkaError, settings: _CreatedSettings | None
) -> CreatableTopicResult:
    """Return the result of a creation. `settings` is None if the client may not see them."""
    if isinstance(result, KafkaError):
        return _refused_creation(topic.name, result)
    refused = refusal(result)
    if refused is not None:
        return _refused_creation(topic.name, refused)
    if settings is None:
        return CreatableTopicResult(
            name=topic.name,
            topic_id=result.topic_id,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=result.topic_id,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=settings.of(topic),
    )


def _deleted(
    topic: DeleteTopicState, result: topic_commands.TopicResult | KafkaError
) -> DeletableTopicResult:
    if isinstance(result, KafkaError):
        return _refused_deletion(topic, result)
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=result.error_code,
        error_message=result.error_message or None,
    )


def _enlarged(
    topic: CreatePartitionsTopic, result: topic_commands.TopicResult | KafkaError
) -> CreatePartitionsTopicResult:
    if isinstance(result, KafkaError):
        return _refused_partitions(topic.name, result)
    return CreatePartitionsTopicResult(
        name=topic.name, error_code=result.error_code, error_message=result.error_message or None
    )


def _check_deletion(access: Access, image: ClusterImage, topic: DeleteTopicState) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED. A client that may not describe a topic does not learn whether the topic
    exists."""
    if topic.topic_id != ZERO_UUID:
        known = image.topics_by_id.get(topic.topic_id)
    else:
        known = image.topics.get(topic.name or "")
        if known is None and topic.name is not None:
            access.check_topic(AclOperation.DESCRIBE, topic.name)
    if known is not None:
        access.check_topic(AclOperation.DESCRIBE, known.name)
        access.check_topic(AclOperation.DELETE, known.name)


def _resolve(image: ClusterImage, topic: DeleteTopicState) -> tuple[str, bytes]:
    if topic.name is not None and topic.topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if topic.topic_id != ZERO_UUID:
        by_id = image.topics_by_id.get(topic.topic_id)
        if by_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return by_id.name, by_id.id
    if topic.name is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    by_name = image.topics.get(topic.name)
    if by_name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return by_name.name, by_name.id


def _more_partitions(topic: CreatePartitionsTopic) -> topic_commands.MorePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [
            topic_commands.Replicas(broker_ids=list(given.broker_ids)) for given in topic.assignments
        ]
    return topic_commands.MorePartitions(name=topic.name, count=topic.count, assignments=assignments)
