"""Legacy AlterConfigs, which replaces all settings of a resource, beside changes that this broker does not know yet."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from ottla.dataplane.broker_settings import BrokerSettings
from ottla.dataplane.handlers.alter_configs import AlterConfigsHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.security.sealing import Sealer
from ottla.dataplane.security.setting_secrets import SettingSecrets
from ottla.dataplane.server import ClientRequest
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.config_commands import (
    AlterConfigs,
    AlterConfigsResult,
    ConfigChange,
    ConfigResource,
    ResourceType,
)
from ottla.protocol.messages.configs import AlterConfigsRequest, ReplaceConfigsResource, ReplacedConfig
from tests.metadata_quorum.state.harness import ControllerWithBrokers, topic


class Behind:
    """A session with the quorum, which decides `meanwhile` just before a command of this broker."""

    def __init__(self, **configs: str) -> None:
        self.controller = ControllerWithBrokers()
        self.controller.create(topic("orders", **configs))
        self.meanwhile: Callable[[], object] = lambda: None

    @property
    def image(self) -> Any:
        return self.controller.machine.image

    async def submit(
        self, command: Command[Any], timeout_ms: int | None = None, *, author: object = None
    ) -> AlterConfigsResult:
        self.meanwhile()
        return self.controller.do(command, AlterConfigsResult)

    def set(self, **configs: str) -> None:
        changes = [ConfigChange(name=name.replace("_", "."), value=value) for name, value in configs.items()]
        resource = ConfigResource(resource_type=ResourceType.TOPIC, resource_name="orders", changes=changes)
        assert (
            self.controller.do(AlterConfigs(resources=[resource]), AlterConfigsResult).resources[0].error_code
            == 0
        )

    def settings(self) -> dict[str, str]:
        return dict(self.image.configs.get((ResourceType.TOPIC, "orders"), {}))

    async def replace(self, **configs: str) -> int:
        given = [ReplacedConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
        resource = ReplaceConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name="orders", configs=given
        )
        settings = BrokerSettings(1, {}, lambda: self.image)
        handlers = AlterConfigsHandlers(cast(Any, self), settings, SettingSecrets(Sealer([b"s"])))
        request = cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=2, session=None))
        answer = await handlers.alter_configs(request, AlterConfigsRequest(resources=[resource]))
        return answer.responses[0].error_code


async def test_the_rest_goes() -> None:
    quorum = Behind(retention_ms="1000", segment_ms="7000")
    assert await quorum.replace(retention_ms="2000") == 0
    assert quorum.settings() == {"retention.ms": "2000"}


async def test_a_setting_that_somebody_changes_meanwhile_stays() -> None:
    quorum = Behind(retention_ms="1000", segment_ms="7000", max_message_bytes="5000")
    quorum.meanwhile = lambda: quorum.set(segment_ms="9000", min_insync_replicas="2")
    assert await quorum.replace(retention_ms="2000") == 0
    assert quorum.settings() == {
        "retention.ms": "2000",
        "segment.ms": "9000",
        "min.insync.replicas": "2",
    }
