"""Every key of a broker about share groups is read, and its value holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.dataplane.broker_settings import BrokerSettings
from ottla.dataplane.configuration.config import BrokerConfig
from ottla.dataplane.share.leader.group_settings import ShareGroupSettings
from ottla.dataplane.share.state.settings import StateLimits
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.settings.config_key import ConfigError, ConfigType
from ottla.protocol.settings.config_share import SHARE_SETTINGS
from tests.dataplane.configuration.test_config import properties

STEMS = ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
"""Keys of the records of a group, which the leaders of partitions read."""


def config_with(folder: Path, settings: Mapping[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties(properties(folder) | dict(settings))


def limits_of(config: BrokerConfig, **own: str) -> tuple[int, int, int]:
    settings = BrokerSettings(config.node_id, config.properties, ClusterImage)
    of_group = {f"share.{name.replace('_', '.')}": value for name, value in own.items()}
    limits = ShareGroupSettings(settings.number, lambda _group_id: of_group, lambda: True).get("g").limits
    return limits.lock_duration_ms, limits.delivery_limit, limits.record_locks


def in_force(config: BrokerConfig) -> dict[str, int]:
    """Return the values that the parts of a broker have from its configuration."""
    groups, topic, states = config.groups.share, config.topics.share_states, StateLimits.of(config.properties)
    own = ("record_lock_duration_ms", "delivery_count_limit", "partition_max_record_locks")
    bounds = {"": limits_of(config)} | {
        bound: limits_of(config, **dict.fromkeys(own, value))
        for bound, value in (("min.", "0"), ("max.", "2000000000"))
    }
    sessions = BrokerSettings(config.node_id, config.properties, ClusterImage)
    return {
        "group.share.session.timeout.ms": groups.session_timeout_of({}),
        "group.share.min.session.timeout.ms": groups.session_timeout_of({"share.session.timeout.ms": "0"}),
        "group.share.max.session.timeout.ms": groups.session_timeout_of(
            {"share.session.timeout.ms": "999999"}
        ),
        "group.share.heartbeat.interval.ms": groups.heartbeat_interval_of({}),
        "group.share.min.heartbeat.interval.ms": groups.heartbeat_interval_of(
            {"share.heartbeat.interval.ms": "0"}
        ),
        "group.share.max.heartbeat.interval.ms": groups.heartbeat_interval_of(
            {"share.heartbeat.interval.ms": "999999"}
        ),
        "group.share.max.size": groups.max_size,
        "group.share.max.share.sessions": sessions.number("group.share.max.share.sessions"),
        "share.coordinator.snapshot.update.records.per.snapshot": states.updates_per_snapshot,
        "share.coordinator.write.timeout.ms": round(states.write_timeout_s * 1000),
        "share.coordinator.state.topic.num.partitions": topic.num_partitions,
        "share.coordinator.state.topic.replication.factor": topic.replication_factor,
        "share.coordinator.state.topic.min.isr": topic.min_isr,
        "share.coordinator.state.topic.segment.bytes": topic.segment_bytes,
        **{
            f"group.share.{bound}{stem}": value
            for bound, values in bounds.items()
            for stem, value in zip(STEMS, values, strict=True)
        },
    }


def test_every_number_of_a_file_holds(tmp_path: Path) -> None:
    numbers = {
        key.name: key
        for key in SHARE_SETTINGS.nodes
        if key.type is ConfigType.INT and key.name not in SHARE_SETTINGS.not_in_effect
    }
    wanted = {
        name: int(key.default or "0") + (-1 if int(key.default or "0") == key.most else 1)
        for name, key in numbers.items()
    }
    # Each default has to stay within its bounds, and each bound may move to one side only.
    wanted["group.share.min.session.timeout.ms"] = 44_999
    wanted["group.share.min.heartbeat.interval.ms"] = 4_999
    assert in_force(config_with(tmp_path, {name: str(value) for name, value in wanted.items()})) == wanted
    assert in_force(config_with(tmp_path, {})) == {
        name: int(key.default or "") for name, key in numbers.items()
    }


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("session.timeout.ms", "44999", "must be from 45000 to 60000"),
        ("heartbeat.interval.ms", "15001", "must be from 5000 to 15000"),
        ("record.lock.duration.ms", "14999", "must be from 15000 to 60000"),
        ("delivery.count.limit", "11", "at least 2, at most 10"),
        ("partition.max.record.locks", "4001", "must be from 100 to 4000"),
        ("max.share.sessions", "0", "at least 1"),
    ],
)
def test_numbers_that_contradict_others_are_refused_at_the_start(
    tmp_path: Path, name: str, value: str, said: str
) -> None:
    """`GroupCoordinatorConfig` and `ShareGroupConfig` of Kafka 4.4 refuse the same numbers."""
    given = {f"group.share.{name}": value}
    with pytest.raises(ConfigError, match=said) as refusal:
        config_with(tmp_path, given)
    assert f"group.share.{name}" in str(refusal.value)


def test_members_heartbeat_more_often_than_their_sessions_end(tmp_path: Path) -> None:
    given = {
        "group.share.heartbeat.interval.ms": "50000",
        "group.share.max.heartbeat.interval.ms": "50000",
    }
    with pytest.raises(
        ConfigError, match=r"heartbeat\.interval\.ms \(50000\) must be less than .* \(45000\)"
    ):
        config_with(tmp_path, given)
