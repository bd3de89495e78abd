"""Quotas and feature levels in the controller: refused and stored values, also across a snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import FEATURES, SHARE, SHARE_ABILITIES, SHARE_STATE_TOPIC, finalized
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.config_commands import (
    AlterConfigs,
    AlterConfigsResult,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)
from ottla.protocol.messages.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from ottla.protocol.messages.metadata_records import TopicRecord
from ottla.protocol.messages.quorum_commands import decode_result, encode_command
from ottla.protocol.messages.quota_commands import (
    AlterClientQuotas,
    AlterClientQuotasResult,
    EntityQuotaChanges,
    FeatureLevel,
    QuotaChange,
    QuotaEntityPart,
    UpdateFeatures,
    UpdateFeaturesResult,
)
from ottla.protocol.settings.config_share import ORDERING
from ottla.protocol.wire.schema import Message

Parts = list[tuple[str, str | None]]
NAN = float("nan")


def do(controller: Controller, command: Command[Any]) -> Message:
    return decode_result(command, controller.apply(1, 1, encode_command(None, command)).result)


def entry(parts: Parts, *changes: tuple[str, float | None]) -> EntityQuotaChanges:
    return EntityQuotaChanges(
        entity=[QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in parts],
        changes=[QuotaChange(key=key, value=value or 0.0, remove=value is None) for key, value in changes],
    )


def alter(controller: Controller, *entries: EntityQuotaChanges, validate_only: bool = False) -> list[str]:
    """Return the error message of each entity; empty for success."""
    result = do(controller, AlterClientQuotas(entries=list(entries), validate_only=validate_only))
    assert isinstance(result, AlterClientQuotasResult)
    codes = {entry.error_code for entry in result.entries if entry.error_message}
    assert codes <= {ErrorCode.INVALID_REQUEST}
    return [entry.error_message for entry in result.entries]


@pytest.mark.parametrize(
    ("parts", "change", "said"),
    [
        ([], ("producer_byte_rate", 1.0), "empty client quota entity"),
        ([("user", "")], ("producer_byte_rate", 1.0), "Empty user"),
        ([("group", "g")], ("producer_byte_rate", 1.0), "Unhandled client quota entity type: group"),
        ([("user", "a"), ("user", "b")], ("producer_byte_rate", 1.0), "duplicate entity entry user"),
        ([("user", "a"), ("ip", None)], ("producer_byte_rate", 1.0), "should not be combined"),
        ([("ip", "example.org")], ("connection_creation_rate", 1.0), "not a valid IP address"),
        ([("ip", "::1")], ("producer_byte_rate", 1.0), "Invalid configuration key"),
        ([("user", "a")], ("connection_creation_rate", 1.0), "Invalid configuration key"),
        ([("user", "a")], ("no.such", 1.0), "Invalid configuration key no.such"),
        ([("user", "a")], ("producer_byte_rate", -1.0), "must be greater than 0"),
        ([("user", "a")], ("request_percentage", NAN), "must be greater than 0"),
        ([("user", "a")], ("request_percentage", float("inf")), "must be greater than 0"),
        ([("user", "a")], ("producer_byte_rate", 1.5), "cannot be a fractional value"),
        ([("user", "a")], ("producer_byte_rate", 1e30), "too large"),
        ([("ip", None)], ("connection_creation_rate", 2.0**31), "too large"),
    ],
)
def test_what_no_entity_can_have_changes_nothing(
    parts: Parts, change: tuple[str, float | None], said: str
) -> None:
    controller = Controller()
    sound = ("consumer_byte_rate", 5.0)
    wrong, fine = alter(controller, entry(parts, change, sound), entry([("user", "ok")], sound))
    assert said in wrong
    assert fine == ""
    assert controller.image.client_quotas == {(("user", "ok"),): {"consumer_byte_rate": 5.0}}


def test_quotas_are_set_removed_and_part_of_a_snapshot() -> None:
    controller = Controller()
    both: Parts = [("user", None), ("client-id", "c")]
    assert alter(controller, entry(both, ("request_percentage", 12.5)), validate_only=True) == [""]
    assert not controller.image.client_quotas
    alter(controller, entry(both, ("request_percentage", 12.5), ("producer_byte_rate", 2.0)))
    alter(controller, entry([("ip", "::1")], ("connection_creation_rate", 3.0)))
    do(controller, UpdateFeatures(updates=[FeatureLevel(feature="group.version", level=0, upgrade_type=2)]))
    key = (("client-id", "c"), ("user", None))
    assert controller.image.client_quotas[key] == {"request_percentage": 12.5, "producer_byte_rate": 2.0}

    other = Controller()
    other.restore(list(controller.snapshot()))
    assert other.image.client_quotas == controller.image.client_quotas
    assert other.image.features == {"group.version": 0}

    offset = controller.image.offset
    alter(controller, entry(both, ("producer_byte_rate", None), ("no.such.key", None)))
    assert controller.image.client_quotas[key] == {"request_percentage": 12.5}
    assert alter(controller, entry(both, ("request_percentage", 12.5))) == [""]
    assert controller.image.offset == offset + 1
    alter(controller, entry(both, ("request_percentage", None)))
    assert key not in controller.image.client_quotas


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "said"),
    [
        ("kraft.version", 1, 1, "Brokers do not support this feature"),
        ("transaction.version", 3, 1, "only support versions 0-2"),
        ("group.version", 2, 1, "only support versions 0-1"),
        ("group.version", -1, 3, "only support versions 0-1"),
        ("group.version", 0, 1, "Can't downgrade"),
        ("group.version", 0, 9, "upgrade type"),
        ("metadata.version", 1, 3, "only support versions"),
    ],
)
def test_levels_that_cannot_be_finalized(feature: str, level: int, upgrade_type: int, said: str) -> None:
    controller = Controller()
    updates = [
        FeatureLevel(feature="eligible.leader.replicas.version", level=1),
        FeatureLevel(feature=feature, level=level, upgrade_type=upgrade_type),
    ]
    result = do(controller, UpdateFeatures(updates=updates))
    assert isinstance(result, UpdateFeaturesResult)
    assert result.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert said in result.error_message
    assert not controller.image.features


def test_a_level_falls_when_told_so_and_rises_again() -> None:
    controller = Controller()

    def update(level: int, upgrade_type: int) -> int:
        updates = [FeatureLevel(feature="group.version", level=level, upgrade_type=upgrade_type)]
        result = do(controller, UpdateFeatures(updates=updates))
        assert isinstance(result, UpdateFeaturesResult)
        return result.error_code

    assert finalized({}) == {name: feature.default for name, feature in FEATURES.items()}
    assert update(0, 2) == 0
    assert finalized(controller.image.features)["group.version"] == 0
    assert update(1, 2) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(1, 1) == 0
    assert finalized(controller.image.features)["group.version"] == 1


def test_share_groups_are_hidden_by_an_unsafe_downgrade_alone() -> None:
    controller = Controller()

    def update(level: int, upgrade_type: int) -> str:
        updates = [FeatureLevel(feature=SHARE, level=level, upgrade_type=upgrade_type)]
        result = do(controller, UpdateFeatures(updates=updates))
        assert isinstance(result, UpdateFeaturesResult)
        return result.error_message

    assert update(1, UPGRADE) == ""
    assert update(0, SAFE_DOWNGRADE) == "", "there have been no share groups"
    assert update(1, UPGRADE) == ""
    controller.image.apply(TopicRecord(topic_id=bytes(15) + b"1", name=SHARE_STATE_TOPIC))
    assert "delete the groups and then the topic" in update(0, SAFE_DOWNGRADE)
    assert finalized(controller.image.features)[SHARE] == 1
    assert update(0, UNSAFE_DOWNGRADE) == ""
    assert finalized(controller.image.features)[SHARE] == 0


def test_the_order_of_keys_takes_its_level() -> None:
    """A broker that does not know the setting would deliver records with the same key at the same time."""
    controller = Controller()

    def change(value: str, operation: ConfigOperation = ConfigOperation.SET) -> tuple[int, str]:
        changes = [ConfigChange(name=ORDERING, operation=operation, value=value)]
        resource = ConfigResource(resource_type=ResourceType.GROUP, resource_name="g", changes=changes)
        result = do(controller, AlterConfigs(resources=[resource]))
        assert isinstance(result, AlterConfigsResult)
        return result.resources[0].error_code, result.resources[0].error_message

    def update(level: int, upgrade_type: int) -> str:
        updates = [FeatureLevel(feature=SHARE_ABILITIES, level=level, upgrade_type=upgrade_type)]
        result = do(controller, UpdateFeatures(updates=updates))
        assert isinstance(result, UpdateFeaturesResult)
        return result.error_message

    assert change("none")[0] == 0
    code, said = change("key")
    assert code == ErrorCode.UNSUPPORTED_VERSION
    assert "needs the feature ottla.share.version at level 1" in said
    assert change("offset")[0] == ErrorCode.INVALID_CONFIG
    assert update(1, UPGRADE) == ""
    assert change("key") == (0, "")
    assert "1 groups have ottla.share.ordering=key, such as 'g'" in update(0, UNSAFE_DOWNGRADE)
    assert change("", ConfigOperation.DELETE)[0] == 0
    assert update(0, SAFE_DOWNGRADE) == ""
