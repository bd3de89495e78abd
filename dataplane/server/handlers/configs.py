"""DescribeConfigs (1-4), IncrementalAlterConfigs (0-1) and AlterConfigs (0-2) of topics and brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import quorum_commands as commands
from ....protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ReplaceConfigsResource,
    ReplaceConfigsResourceResponse,
)
from ..handler import Request, handles
from .cluster_access import BROKER_RESOURCE, TOPIC_RESOURCE, Quorum
from .config_view import ConfigEntry, ConfigView

_OPERATIONS = frozenset(commands.ConfigOperation)


class _Resource(Protocol):
    resource_type: int
    resource_name: str


def _describe_error(message: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_undescribed(resource, error) for resource in message.resources])


def _undescribed(resource: _Resource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _incremental_error(
    message: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return _incremental_response(message.resources, [error] * len(message.resources))


def _incremental_response(
    resources: Sequence[_Resource], errors: Iterable[KafkaError | None]
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(resources, errors, strict=True)
        ]
    )


def _replace_error(message: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return _replace_response(message.resources, [error] * len(message.resources))


def _replace_response(
    resources: Sequence[_Resource], errors: Iterable[KafkaError | None]
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            ReplaceConfigsResourceResponse(
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(resources, errors, strict=True)
        ]
    )


class ConfigHandlers:
    """Shows settings with where they come from, and passes changes to the quorum, which validates them."""

    def __init__(self, quorum: Quorum, own_broker_id: int, view: ConfigView) -> None:
        self._quorum = quorum
        self._own_broker_id = own_broker_id
        self._view = view

    @handles(DescribeConfigsRequest, 1, 4, on_error=_describe_error)
    def describe_configs(self, request: Request, message: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """Each resource has its own result."""
        results = []
        for resource in message.resources:
            try:
                entries = self._entries(resource)
            except KafkaError as error:
                results.append(_undescribed(resource, error))
                continue
            keys = resource.configuration_keys
            results.append(
                DescribeConfigsResult(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[
                        _described(entry, message)
                        for entry in entries
                        if keys is None or entry.name in keys
                    ],
                )
            )  # fmt: skip
        return DescribeConfigsResponse(results=results)

    def _entries(self, resource: DescribeConfigsResource) -> list[ConfigEntry]:
        name = resource.resource_name
        if resource.resource_type == TOPIC_RESOURCE:
            if name not in self._quorum.image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return self._view.topic(name)
        if resource.resource_type == BROKER_RESOURCE:
            if name not in ("", str(self._own_broker_id)):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unexpected broker id, expected {self._own_broker_id} or empty string, "
                    f"but received {name}",
                )
            return self._view.broker(name)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")

    @handles(IncrementalAlterConfigsRequest, 0, 1, on_error=_incremental_error)
    async def incremental_alter_configs(
        self, request: Request, message: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Set, delete, append to and subtract from single settings."""
        changes = [
            commands.ConfigResource(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                changes=[
                    commands.ConfigChange(name=c.name, operation=c.config_operation, value=c.value)
                    for c in resource.configs
                ],
            )
            for resource in message.resources
        ]
        errors = await self._alter(changes, validate_only=message.validate_only)
        return _incremental_response(message.resources, errors)

    @handles(AlterConfigsRequest, 0, 2, on_error=_replace_error)
    async def alter_configs(self, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse:
        """Replace all dynamic settings of a resource by the given ones."""
        changes = [
            commands.ConfigResource(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                changes=self._replacement(resource),
            )
            for resource in message.resources
        ]
        errors = await self._alter(changes, validate_only=message.validate_only)
        return _replace_response(message.resources, errors)

    def _replacement(self, resource: ReplaceConfigsResource) -> list[commands.ConfigChange]:
        """Set what is named, delete what is set now and not named."""
        operations = commands.ConfigOperation
        named = {config.name for config in resource.configs}
        present = self._quorum.image.configs.get((resource.resource_type, resource.resource_name), {})
        return [
            *(
                commands.ConfigChange(name=c.name, operation=operations.SET, value=c.value)
                for c in resource.configs
            ),
            *(
                commands.ConfigChange(name=name, operation=operations.DELETE)
                for name in present
                if name not in named
            ),
        ]

    async def _alter(
        self, changes: list[commands.ConfigResource], *, validate_only: bool
    ) -> list[KafkaError | None]:
        """What became of each; those that are wrong in themselves do not reach the quorum."""
        times = Counter((change.resource_type, change.resource_name) for change in changes)
        errors = [
            KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if times[change.resource_type, change.resource_name] > 1
            else _mistake(change)
            for change in changes
        ]
        sound = [change for change, error in zip(changes, errors, strict=True) if error is None]
        if not sound:
            return errors
        outcome = await self._quorum.submit(
            commands.AlterConfigs(resources=sound, validate_only=validate_only)
        )
        assert isinstance(outcome, commands.AlterConfigsResult)
        results = iter(outcome.resources)
        return [error if error is not None else _failure(next(results)) for error in errors]


def _failure(result: commands.AlteredConfig) -> KafkaError | None:
    return KafkaError(ErrorCode.of(result.error_code), result.error_message) if result.error_code else None


def _mistake(resource: commands.ConfigResource) -> KafkaError | None:
    if resource.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE):
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
    names = Counter(change.name for change in resource.changes)
    repeated = sorted(name for name, count in names.items() if count > 1)
    if repeated:
        return KafkaError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(repeated)}"
        )
    for change in resource.changes:
        if change.operation not in _OPERATIONS:
            return KafkaError(
                ErrorCode.INVALID_REQUEST, f"{change.name}: unknown operation {change.operation}"
            )
        if change.value is None and change.operation != commands.ConfigOperation.DELETE:
            return KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    return None


def _described(entry: ConfigEntry, message: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
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
