"""Configs of topics and brokers."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from .session import AdminSession, check
from .values import BROKER_RESOURCE, CONFIG_SOURCES, ConfigEntry

_SET, _DELETE = 0, 1


class ConfigAdmin(AdminSession):
    """Describes and changes configs."""

    async def describe_configs(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """All configs of a topic (TOPIC_RESOURCE) or broker (BROKER_RESOURCE, by id)."""
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource])
        asked = int(name) if resource_type == BROKER_RESOURCE and name else None
        response = await (
            self._cluster.ask_any(request) if asked is None else self._cluster.ask(asked, request)
        )
        entries: list[ConfigEntry] = []
        for result in response.results:
            check(result.error_code, name, result.error_message)
            for config in result.configs:
                source = CONFIG_SOURCES.get(config.config_source, "unknown")
                is_default = source == "default"
                entries.append(
                    ConfigEntry(
                        config.name, config.value, source, is_default, config.is_sensitive, config.read_only
                    )
                )
        return entries

    async def alter_configs(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of a topic or broker; None takes a setting back to what applies without it."""
        configs = [
            AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        response = await self._cluster.ask_any(IncrementalAlterConfigsRequest(resources=[resource]))
        for result in response.responses:
            check(result.error_code, name, result.error_message)
