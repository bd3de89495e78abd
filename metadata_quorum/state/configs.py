"""Dynamic configuration of topics and brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...protocol.config_keys import (
    CLUSTER_WIDE_KEYS,
    NODE_KEYS,
    TOPIC_KEYS,
    ConfigError,
    ConfigKey,
    ConfigType,
    check_dynamic_broker_config,
    check_topic_config,
    check_topic_configs,
)
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata_records import ConfigRecord
from ...protocol.messages.quorum_commands import (
    AlterConfigs,
    AlterConfigsResult,
    AlteredConfig,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)
from . import election
from .refusal import message_of
from .workspace import Workspace

_BROKER_ID = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def alter_configs(work: Workspace, command: AlterConfigs) -> AlterConfigsResult:
    """Each resource on its own, all its changes or none."""
    results: list[AlteredConfig] = []
    for resource in command.resources:
        result = AlteredConfig(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            values = _changed(work, resource)
            if not command.validate_only:
                _store(work, resource, values)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
        results.append(result)
    return AlterConfigsResult(resources=results)


def _changed(work: Workspace, resource: ConfigResource) -> dict[str, str | None]:
    """The new value of each key that is named; None removes it. Raises KafkaError."""
    _check_resource(work, resource)
    present = work.image.configs.get((resource.resource_type, resource.resource_name), {})
    values: dict[str, str | None] = {}
    for change in resource.changes:
        if change.name in values:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} is changed twice")
        values[change.name] = _value(resource, change, present.get(change.name))
    if resource.resource_type == ResourceType.TOPIC:
        together = {name: value for name, value in (present | values).items() if value is not None}
        try:
            check_topic_configs(together)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return values


def _check_resource(work: Workspace, resource: ConfigResource) -> None:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        if name not in work.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource.resource_type != ResourceType.BROKER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource.resource_type}")
    elif name and not _BROKER_ID.fullmatch(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Not a broker id: '{name}'")
    elif name and int(name) not in work.image.brokers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")


def _value(resource: ConfigResource, change: ConfigChange, present: str | None) -> str | None:
    if change.operation not in {int(known) for known in ConfigOperation}:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation}")
    if change.operation == ConfigOperation.DELETE:
        return None
    if change.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    of_topic = resource.resource_type == ResourceType.TOPIC
    if not of_topic and resource.resource_name and change.name in CLUSTER_WIDE_KEYS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name} cannot be set for a single broker")
    value = change.value
    if change.operation != ConfigOperation.SET:
        value = _list_changed(change, value, (TOPIC_KEYS if of_topic else NODE_KEYS), present)
    try:
        return (check_topic_config if of_topic else check_dynamic_broker_config)(change.name, value)
    except ConfigError as error:
        known = not of_topic and change.name in NODE_KEYS
        code = ErrorCode.INVALID_REQUEST if known else ErrorCode.INVALID_CONFIG
        raise KafkaError(code, str(error)) from None


def _list_changed(
    change: ConfigChange, value: str, keys: Mapping[str, ConfigKey], present: str | None
) -> str:
    key = keys.get(change.name)
    if key is None:
        return value
    if key.type is not ConfigType.LIST:
        operation = ConfigOperation(change.operation).name
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {change.name} because its type is not LIST."
        )
    old = (key.default or "") if present is None else present
    items = [item for item in old.split(",") if item]
    given = [item.strip() for item in value.split(",")]
    if change.operation == ConfigOperation.APPEND:
        return ",".join([*items, *(item for item in given if item not in items)])
    return ",".join(item for item in items if item not in given)


def _store(work: Workspace, resource: ConfigResource, values: dict[str, str | None]) -> None:
    present = work.image.configs.get((resource.resource_type, resource.resource_name), {})
    changed = {name: value for name, value in values.items() if present.get(name) != value}
    for name, value in sorted(changed.items()):
        work.emit(
            ConfigRecord(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                config_name=name,
                value=value,
            )
        )
    if changed.keys() & set(CLUSTER_WIDE_KEYS):
        _follow(work)


def _follow(work: Workspace) -> None:
    """What elections go by has changed: ELRs end and leaders are elected where that follows."""
    for topic_id, index, state in work.partitions():
        electorate = work.electorate(topic_id)
        new = election.with_min_isr(state, electorate.min_isr)
        if new.leader < 0:
            new = election.elect(new, electorate)
        work.set_partition(topic_id, index, new)
