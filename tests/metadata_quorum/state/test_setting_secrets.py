"""Secrets among the settings of brokers in the controller: kept encrypted alone, and once every broker opens them."""

from __future__ import annotations

import pytest

from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.credentials.sealed_text import as_text
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SECURITY
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.config_commands import (
    AlterConfigs,
    AlterConfigsResult,
    AlteredConfig,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)
from ottla.protocol.messages.quorum_commands import decode_result, encode_command
from ottla.protocol.messages.quota_commands import FeatureLevel, UpdateFeatures

KEY = "listener.name.clients.ssl.key.password"
SEALED = as_text(b"encrypted")


def formed(level: int = 1) -> Controller:
    controller = Controller()
    features = [InitialFeature(feature=SECURITY, level=level)] if level else []
    controller.apply(1, 1, encode_command(None, FormCluster(cluster_id="c", features=features)))
    return controller


def alter(controller: Controller, *changes: ConfigChange) -> AlteredConfig:
    resource = ConfigResource(resource_type=ResourceType.BROKER, resource_name="", changes=list(changes))
    command = AlterConfigs(resources=[resource])
    result = decode_result(command, controller.apply(1, 1, encode_command(None, command)).result)
    assert isinstance(result, AlterConfigsResult)
    return result.resources[0]


def kept(controller: Controller) -> str | None:
    return controller.image.configs.get((ResourceType.BROKER, ""), {}).get(KEY)


@pytest.mark.parametrize("operation", [ConfigOperation.SET, ConfigOperation.APPEND])
def test_what_came_unencrypted_is_not_kept(operation: ConfigOperation) -> None:
    controller = formed()
    refused = alter(controller, ConfigChange(name=KEY, operation=operation, value="hunter2"))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "hunter2" not in refused.error_message
    assert kept(controller) is None


def test_an_encrypted_secret_is_kept_and_removed() -> None:
    controller = formed()
    assert alter(controller, ConfigChange(name=KEY, value=SEALED)).error_code == ErrorCode.NONE
    assert kept(controller) == SEALED
    assert alter(controller, ConfigChange(name=KEY, operation=ConfigOperation.DELETE)).error_code == 0
    assert kept(controller) is None


def test_none_is_kept_while_a_broker_may_not_open_it() -> None:
    controller = formed(level=0)
    refused = alter(controller, ConfigChange(name=KEY, value=SEALED))
    assert (refused.error_code, SECURITY in refused.error_message) == (ErrorCode.UNSUPPORTED_VERSION, True)


def test_the_feature_stays_while_there_are_secrets() -> None:
    controller = formed()
    alter(controller, ConfigChange(name=KEY, value=SEALED))
    command = UpdateFeatures(updates=[FeatureLevel(feature=SECURITY, level=0, upgrade_type=2)])
    refused = decode_result(command, controller.apply(1, 1, encode_command(None, command)).result)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "1 secrets among the settings" in refused.error_message
