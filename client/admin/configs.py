"""Configs of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ...protocol.messages.config_resources import ListConfigResourcesRequest
from ...protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterConfigsRequest,
)
from ...protocol.wire.schema import Message, Request
from ..bounds import INT32_MAX
from ..failures import ConnectionLost
from .admin_base import AdminBase
from .session import check
from .values import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CONFIG_SOURCES,
    TOPIC_RESOURCE,
    ConfigEntry,
    ConfigValue,
    ResourceType,
    config_text,
)

_SET, _DELETE = 0, 1
ResponseT = TypeVar("ResponseT", bound=Message)


class ConfigAdmin(AdminBase):
    """The methods that describe and change configs.

    Resource types are the `..._RESOURCE` constants. A broker's resource name is its id; the empty name stands for all
    brokers.
    """

    async def describe_configs(self, resource_type: ResourceType, name: str) -> list[ConfigEntry]:
        """Return all configs of a resource."""
        _check_name(resource_type, name)
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        response = await self._ask_owner(resource_type, name, request)
        entries: list[ConfigEntry] = []
        what = _subject(resource_type, name)
        for result in response.results:
            check(result.error_code, what, result.error_message, operation="DESCRIBE_CONFIGS", name=name)
            entries += [_entry(config) for config in result.configs]
        return entries

    async def alter_configs(
        self,
        resource_type: ResourceType,
        name: str,
        changes: Mapping[str, ConfigValue | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set configs of a resource; other configs remain unchanged.

            await admin.alter_configs(TOPIC_RESOURCE, "orders", {"retention.ms": 3_600_000, "segment.ms": None})

        None removes a setting, so that its default applies.
        """
        _check_name(resource_type, name)
        configs = [
            AlterableConfig(
                name=key,
                config_operation=_DELETE if value is None else _SET,
                value=None if value is None else config_text(value),
            )
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        try:
            response = await self._ask_owner(resource_type, name, request)
        except ConnectionLost:
            if resource_type != BROKER_RESOURCE:
                raise
            # The broker is down. The quorum keeps the settings, so any other broker can take them; brokers of Apache
            # Kafka refuse that. To set them twice does no harm.
            response = await self.session.cluster.ask_any(request)
        what = _subject(resource_type, name)
        for result in response.responses:
            check(result.error_code, what, result.error_message, operation="ALTER_CONFIGS", name=name)

    async def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[tuple[int, str]]:
        """Return (type, name) of all resources that have a configuration, of these types or of all types."""
        response = await self.session.cluster.ask_any(ListConfigResourcesRequest(resource_types=list(types)))
        check(response.error_code, "config resources", None)
        return sorted(
            (resource.resource_type, resource.resource_name) for resource in response.config_resources
        )

    async def _ask_owner(self, resource_type: int, name: str, request: Request[ResponseT]) -> ResponseT:
        if resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE) and name:
            return await self.session.cluster.ask(int(name), request)
        return await self.session.cluster.ask_any(request)


def _subject(resource_type: int, name: str) -> str:
    """Return the name of a resource for errors: `broker 1` for the broker of this id, else the name itself."""
    is_broker = resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE) and name
    return f"broker {name}" if is_broker else name


def _check_name(resource_type: int, name: str) -> None:
    """Raise ValueError for a topic without a name, and for a broker whose name is no id."""
    if resource_type == TOPIC_RESOURCE and not name:
        raise ValueError("name is the name of a topic, not ''")
    if resource_type not in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE) or not name:
        return
    if not (name.isascii() and name.isdecimal() and int(name) <= INT32_MAX):
        raise ValueError(f"name is the id of a broker, as in '1', or '' for all brokers, not {name!r}")


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    source = CONFIG_SOURCES.get(config.config_source, "unknown")
    return ConfigEntry(
        config.name,
        config.value,
        source,
        source == "default",
        config.is_sensitive,
        config.read_only,
        tuple(
            (synonym.name, synonym.value, CONFIG_SOURCES.get(synonym.source, "unknown"))
            for synonym in config.synonyms
        ),
    )
