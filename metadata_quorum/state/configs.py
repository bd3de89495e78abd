"""Dynamic configuration of topics and brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...protocol.credentials.sealed_text import sealed_bytes
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.config_commands import (
    AlterConfigs,
    AlterConfigsResult,
    AlteredConfig,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)
from ...protocol.messages.metadata_records import ConfigRecord
from ...protocol.settings.config_key import INT_MAX
from ...protocol.settings.config_keys import (
    CLUSTER_WIDE_KEYS,
    NODE_KEYS,
    TOPIC_KEYS,
    ConfigError,
    ConfigKey,
    ConfigType,
    check_dynamic_broker_config,
    check_topic_config,
    check_topic_configs,
    is_dynamic,
    is_sensitive,
)
from ...protocol.settings.config_resources import CLIENT_METRICS_KEYS, GROUP_KEYS
from ...protocol.settings.config_share import BY_KEY, ORDERING
from ...protocol.wire.primitives import STRING_BYTES_MAX
from . import election
from .features import check_ordering, check_security
from .refusal import message_of
from .workspace import Workspace

_OPERATIONS = frozenset(int(known) for known in ConfigOperation)
_BROKER_ID = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_WHOLE = re.compile(r"-?\d+")


def alter_configs(work: Workspace, command: AlterConfigs) -> AlterConfigsResult:
    """Change the settings of each resource (topic or broker) independently: all changes of a resource or none of
    them."""
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
    """Return the new value of each setting that the resource's changes name; None removes the setting. Raises
    KafkaError."""
    _check_resource(work, resource)
    present = work.image.configs.get((resource.resource_type, resource.resource_name), {})
    values: dict[str, str | None] = {}
    for change in resource.changes:
        if change.name in values:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        if change.replaces is not None and present.get(change.name) != change.replaces:
            continue
        values[change.name] = _value(work, resource, change, present.get(change.name))
    if resource.resource_type == ResourceType.TOPIC:
        together = {name: value for name, value in (present | values).items() if value is not None}
        try:
            check_topic_configs(together)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return values


def _check_resource(work: Workspace, resource: ConfigResource) -> None:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            if name not in work.image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        case ResourceType.BROKER:
            if name and not _BROKER_ID.fullmatch(name):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
            if name and int(name) not in work.image.brokers:
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")
        case ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


_KEYS: Mapping[int, Mapping[str, ConfigKey]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.BROKER: NODE_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}


def _check_sealed(work: Workspace, change: ConfigChange) -> None:
    """Refuse a secret that is not encrypted. Raises KafkaError."""
    check_security(work, "secrets among the settings of brokers need")
    if sealed_bytes(change.value or "") is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} came unencrypted, which no broker does")


def _value(
    work: Workspace, resource: ConfigResource, change: ConfigChange, present: str | None
) -> str | None:
    if change.operation not in _OPERATIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation}")
    if change.operation == ConfigOperation.DELETE:
        return None
    if change.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    kind = resource.resource_type
    if kind == ResourceType.BROKER and is_dynamic(change.name) and is_sensitive(change.name):
        _check_sealed(work, change)
    if kind == ResourceType.BROKER and resource.resource_name and change.name in CLUSTER_WIDE_KEYS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name} cannot be set for a single broker")
    value = change.value
    if change.operation != ConfigOperation.SET:
        value = _list_changed(change, value, _KEYS[kind], present)
    try:
        kept = _checked(kind, change.name, value)
        if kind == ResourceType.GROUP and (change.name, kept) == (ORDERING, BY_KEY):
            check_ordering(work)
        if len(kept.encode()) > STRING_BYTES_MAX:
            raise ConfigError(f"{change.name} is too long: at most {STRING_BYTES_MAX} bytes are allowed")
        return kept
    except ConfigError as error:
        # Kafka's error codes: invalid values of brokers make the request invalid, and so do numbers out of bounds for
        # client metrics.
        invalid = kind == ResourceType.BROKER or (kind == ResourceType.CLIENT_METRICS and _is_int(value))
        code = ErrorCode.INVALID_REQUEST if invalid else ErrorCode.INVALID_CONFIG
        raise KafkaError(code, str(error)) from None


def _is_int(text: str) -> bool:
    return _WHOLE.fullmatch(text) is not None and abs(int(text[:12])) <= INT_MAX


def _checked(kind: int, name: str, value: str) -> str:
    """Return a setting's value in the form in which it is stored. Raises ConfigError for an invalid value."""
    if kind == ResourceType.TOPIC:
        return check_topic_config(name, value)
    if kind == ResourceType.BROKER:
        return check_dynamic_broker_config(name, value)
    what = "group config name" if kind == ResourceType.GROUP else "client metrics configuration"
    key = _KEYS[kind].get(name)
    if key is None:
        # These resources have few settings, so the error lists them.
        raise ConfigError(f"Unknown {what}: {name}; allowed are {', '.join(sorted(_KEYS[kind]))}")
    return key.normal(value)


def _list_changed(
    change: ConfigChange, value: str, keys: Mapping[str, ConfigKey], present: str | None
) -> str:
    key = keys.get(change.name)
    if key is None and keys is not NODE_KEYS:
        return value
    if key is None or key.type is not ConfigType.LIST:
        operation = ConfigOperation(change.operation).name
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {change.name} because its type is not LIST."
        )
    old = (key.default or "") if present is None else present
    items = dict.fromkeys(item for item in old.split(",") if item)
    given = dict.fromkeys(item.strip() for item in value.split(","))
    if change.operation == ConfigOperation.APPEND:
        return ",".join(items | given)
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
        topic = resource.resource_name if resource.resource_type == ResourceType.TOPIC else None
        _follow(work, topic)


def _follow(work: Workspace, topic: str | None) -> None:
    """Update the partitions of a topic, or of all topics, after their election settings have changed: ELRs end and
    leaders are elected where possible."""
    for topic_id, index, state in work.partitions() if topic is None else work.partitions_of(topic):
        electorate = work.electorate(topic_id)
        new = election.with_min_isr(state, electorate.min_isr)
        if new.leader < 0:
            new = election.elect(new, electorate)
        work.set_partition(topic_id, index, new)
