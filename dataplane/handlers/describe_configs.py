"""DescribeConfigs (1-4) and ListConfigResources (0-1): settings, and the sources of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ...protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ..cluster.topic_creation import is_valid_topic_name
from ..quorum.access import Quorum
from ..runtime.time_slices import in_time_slices
from ..security.authorization.needs import cluster, handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles
from .settings.broker_loggers import BrokerLoggers
from .settings.config_rights import check_config_right
from .settings.config_view import BackedSettings, ConfigView, EffectiveSetting


class Described(IntEnum):
    """The kinds of resources that have settings, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def _undescribed(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


class _Description:
    """The results of one DescribeConfigs request. Resources share results, since most topics have the same settings."""

    def __init__(self, view: ConfigView, message: DescribeConfigsRequest) -> None:
        self._view = view
        self._message = message
        self._shared: dict[int, DescribeConfigsResourceResult] = {}

    @cached_property
    def topics(self) -> BackedSettings:
        """The settings of any topic: a topic's own settings, and the brokers' settings and defaults behind them."""
        return self._sharing(self._view.topics())

    @cached_property
    def groups(self) -> BackedSettings:
        """The settings of any group: a group's own settings, and the brokers' settings and defaults behind them."""
        return self._sharing(self._view.groups())

    def _sharing(self, settings: BackedSettings) -> BackedSettings:
        self._shared |= {id(entry): _described(entry, self._message) for entry in settings.fallen_back}
        return settings

    def of(
        self, entries: Sequence[EffectiveSetting], keys: Sequence[str] | None
    ) -> list[DescribeConfigsResourceResult]:
        """Return the results for the settings with these keys; for all settings if there are no keys."""
        wanted = frozenset(keys or ())
        return [self._described(entry) for entry in entries if not wanted or entry.name in wanted]

    def _described(self, entry: EffectiveSetting) -> DescribeConfigsResourceResult:
        return self._shared.get(id(entry)) or _described(entry, self._message)


class DescribeConfigsHandlers:
    """Describes settings, and lists resources that have settings."""

    def __init__(self, quorum: Quorum, own_broker_id: int, view: ConfigView) -> None:
        self._quorum = quorum
        self._own_broker_id = own_broker_id
        self._view = view
        self._loggers = BrokerLoggers()

    @handles(
        DescribeConfigsRequest,
        1,
        4,
        errors=ErrorAnswers(arrays={"resources": "results"}),
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=handler_asks("DESCRIBE_CONFIGS Topic, Group or Cluster"),
    )
    async def describe_configs(
        self, request: ClientRequest, message: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        """Describe each resource separately. A resource that is named twice has one result."""
        first: dict[tuple[int, str], DescribeConfigsResource] = {}
        for resource in message.resources:
            first.setdefault((resource.resource_type, resource.resource_name), resource)
        description = _Description(self._view, message)
        results = []
        async for resource in in_time_slices(list(first.values())):
            try:
                check_config_right(
                    request.access,
                    AclOperation.DESCRIBE_CONFIGS,
                    resource.resource_type,
                    resource.resource_name,
                )
                entries = self._entries(description, resource.resource_type, resource.resource_name)
            except KafkaError as error:
                results.append(_undescribed(resource, error))
                continue
            results.append(
                DescribeConfigsResult(
                    error_message="",
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=description.of(entries, resource.configuration_keys),
                )
            )
        return DescribeConfigsResponse(results=results)

    def _entries(
        self, description: _Description, resource_type: int, name: str
    ) -> Sequence[EffectiveSetting]:
        """Return the effective settings of a resource, by its type and name. Raises KafkaError if it cannot exist, or
        does not."""
        match resource_type:
            case Described.TOPIC:
                if not is_valid_topic_name(name):
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                if name not in self._quorum.image.topics:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return description.topics.of(self._view.own(ResourceType.TOPIC, name))
            case Described.BROKER:
                if not name:
                    return self._view.all_brokers()
                self._check_broker(name)
                return self._view.broker()
            case Described.BROKER_LOGGER:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                self._check_broker(name)
                return self._loggers.entries()
            case Described.CLIENT_METRICS:
                if not name:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
                    )
                return self._view.client_metrics(name)
            case Described.GROUP:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
                return description.groups.of(self._view.own(ResourceType.GROUP, name))
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")

    def _check_broker(self, name: str) -> None:
        if name == str(self._own_broker_id):
            return
        if not name.removeprefix("-").isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {self._own_broker_id} or empty string, but received {name}",
        )

    @handles(ListConfigResourcesRequest, 0, 1, needs=cluster(AclOperation.DESCRIBE_CONFIGS))
    def list_config_resources(
        self, request: ClientRequest, message: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        """List the resources that have settings. Version 0 asks for client metrics only (KIP-1142)."""
        if request.api_version == 0:
            wanted = [Described.CLIENT_METRICS]
        elif all(number in set(Described) for number in message.resource_types):
            wanted = [Described(number) for number in dict.fromkeys(message.resource_types)]
        else:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        image = self._quorum.image
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_type=kind, resource_name=name)
                for kind in wanted or Described
                for name in _NAMES[kind](image)
            ]
        )


def _brokers(image: ClusterImage) -> Iterator[str]:
    return (str(broker.broker_id) for broker in image.brokers.values() if not broker.fenced)


def _with_settings(resource_type: Described) -> Callable[[ClusterImage], Iterator[str]]:
    return lambda image: (name for kind, name in image.configs if kind == resource_type)


_NAMES: dict[Described, Callable[[ClusterImage], Iterator[str]]] = {
    Described.TOPIC: lambda image: iter(image.topics),
    Described.BROKER: _brokers,
    Described.BROKER_LOGGER: _brokers,
    Described.CLIENT_METRICS: _with_settings(Described.CLIENT_METRICS),
    Described.GROUP: _with_settings(Described.GROUP),
}


def _described(entry: EffectiveSetting, message: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
        for synonym in (entry.synonyms if message.include_synonyms else ())
    ]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.documentation if message.include_documentation else None,
    )
