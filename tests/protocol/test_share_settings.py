"""Settings of share groups at each level that a program may serve, compared with Kafka 4.4."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from ottla.protocol.features import FEATURES, OURS, SHARE, SHARE_ABILITIES, SHARE_SERVED
from ottla.protocol.iso_times import iso_duration_ms
from ottla.protocol.settings.config_key import ConfigError, ConfigKey, Scope
from ottla.protocol.settings.config_keys import NODE_KEYS, TOPIC_KEYS, why_ignored
from ottla.protocol.settings.config_resources import GROUP_KEYS, bounds_of_group_key, check_group_bounds
from ottla.protocol.settings.config_share import ShareSettings, reset_duration_ms, share_settings

WHOLE = share_settings(2)
LEVELS = [share_settings(0), share_settings(1), WHOLE]

# Default, lowest and highest value, as the `ConfigDef` of Kafka 4.4 has them.
KAFKA_NODE_KEYS = {
    "errors.deadletterqueue.auto.create.topics.enable": ("false", None, None),
    "errors.deadletterqueue.topic.name.prefix": ("dlq.", None, None),
    "group.share.assignors": ("simple", None, None),
    "group.share.delivery.count.limit": ("5", 2, 10),
    "group.share.heartbeat.interval.ms": ("5000", 1, None),
    "group.share.max.delivery.count.limit": ("10", 5, 25),
    "group.share.max.heartbeat.interval.ms": ("15000", 1, None),
    "group.share.max.partition.max.record.locks": ("4000", 2000, 10000),
    "group.share.max.record.lock.duration.ms": ("60000", 30000, 3600000),
    "group.share.max.session.timeout.ms": ("60000", 1, None),
    "group.share.max.share.sessions": ("2000", 1, None),
    "group.share.max.size": ("200", 1, 1000),
    "group.share.min.delivery.count.limit": ("2", 2, 5),
    "group.share.min.heartbeat.interval.ms": ("5000", 1, None),
    "group.share.min.partition.max.record.locks": ("100", 100, 2000),
    "group.share.min.record.lock.duration.ms": ("15000", 1000, 30000),
    "group.share.min.session.timeout.ms": ("45000", 1, None),
    "group.share.partition.max.record.locks": ("2000", 100, 10000),
    "group.share.record.lock.duration.ms": ("30000", 1000, 3600000),
    "group.share.session.timeout.ms": ("45000", 1, None),
    "share.coordinator.snapshot.update.records.per.snapshot": ("500", 0, 500),
    "share.coordinator.state.topic.min.isr": ("2", 1, 32767),
    "share.coordinator.state.topic.num.partitions": ("50", 1, None),
    "share.coordinator.state.topic.replication.factor": ("3", 1, 32767),
    "share.coordinator.state.topic.segment.bytes": ("104857600", 1048576, None),  # Kafka: at least 1
    "share.coordinator.write.timeout.ms": ("5000", 1, None),
}
KAFKA_GROUP_KEYS = {
    "errors.deadletterqueue.copy.record.enable": ("false", None, None),
    "errors.deadletterqueue.topic.name": ("", None, None),
    "share.auto.offset.reset": ("latest", None, None),
    "share.delivery.count.limit": ("5", 2, None),
    "share.heartbeat.interval.ms": ("5000", 1, None),
    "share.isolation.level": ("read_uncommitted", None, None),
    "share.partition.max.record.locks": ("2000", 100, None),
    "share.record.lock.duration.ms": ("30000", 1000, None),
    "share.renew.acknowledge.enable": ("true", None, None),
    "share.session.timeout.ms": ("45000", 1, None),
}


def declared(keys: Iterable[ConfigKey]) -> dict[str, tuple[str | None, float | None, float | None]]:
    return {key.name: (key.default, key.least, key.most) for key in keys}


def test_defaults_and_bounds_are_those_of_kafka() -> None:
    assert declared(WHOLE.nodes) == KAFKA_NODE_KEYS
    groups = declared(WHOLE.groups)
    assert groups.pop("ottla.share.ordering") == ("none", None, None)
    assert groups == KAFKA_GROUP_KEYS
    assert declared(WHOLE.topics) == {"errors.deadletterqueue.group.enable": ("false", None, None)}


def test_running_brokers_take_kafkas_dynamic_keys_alone() -> None:
    dynamic = {key.name for key in WHOLE.nodes if Scope.DYNAMIC in key.scope}
    # The rest of Kafka's dynamic keys of share groups have no effect.
    assert dynamic | WHOLE.ignored.keys() == {
        "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.topic.name.prefix",
        "group.share.assignment.interval.ms",
        "group.share.assignor.offload.enable",
        "share.coordinator.cached.buffer.max.bytes",
    }


@pytest.mark.parametrize("known", LEVELS, ids=["level 0", "level 1", "level 2"])
def test_every_key_of_kafka_is_known_at_each_level(known: ShareSettings) -> None:
    names = (Path(__file__).parent / "kafka_node_keys.txt").read_text().split()
    of_share = [
        name for name in names if name.startswith(("group.share.", "share.", "errors.deadletterqueue."))
    ]
    assert len(of_share) > 35
    nodes = {key.name for key in known.nodes}
    ignored = known.ignored.keys() | known.ignored_at_start.keys()
    families = tuple(known.ignored_families)
    for name in of_share:
        assert (name in nodes) + (name in ignored) + name.startswith(families) == 1, name
    assert known.not_in_effect.keys() <= nodes


def test_a_level_adds_the_keys_of_its_function() -> None:
    none, groups, whole = ({key.name for key in (*known.groups, *known.nodes)} for known in LEVELS)
    assert none == set()
    assert {"share.session.timeout.ms", "ottla.share.ordering"} <= groups
    assert {name.startswith("errors.deadletterqueue.") for name in whole - groups} == {True}


def test_this_program_knows_the_keys_of_what_it_serves() -> None:
    """Clients see the feature and its settings together, or neither."""
    for feature in (SHARE, SHARE_ABILITIES):
        assert (feature in FEATURES) == (feature in OURS) == (SHARE_SERVED > 0)
    assert ("group.share.max.size" in NODE_KEYS) == (SHARE_SERVED > 0)
    assert ("share.session.timeout.ms" in GROUP_KEYS) == (SHARE_SERVED > 0)
    assert ("errors.deadletterqueue.group.enable" in TOPIC_KEYS) == (SHARE_SERVED > 1)
    assert why_ignored("share.coordinator.threads")


def test_the_bounds_of_a_groups_setting_are_keys_of_brokers() -> None:
    nodes = {key.name for key in WHOLE.nodes}
    bounded = {key.name: bounds for key in WHOLE.groups if (bounds := bounds_of_group_key(key)) is not None}
    assert bounded.keys() == {key.name for key in WHOLE.groups if key.synonyms}
    assert len(bounded) == 5
    for key in WHOLE.groups:
        assert {*key.synonyms, *bounded.get(key.name, ())} <= nodes
    assert bounded["share.delivery.count.limit"] == (
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    )


def test_every_key_says_what_it_means_and_accepts_its_default() -> None:
    for key in (*WHOLE.groups, *WHOLE.nodes, *WHOLE.topics):
        assert key.doc.endswith("."), key.name
        assert key.default is not None
        assert key.normal(key.default) == key.default


GROUP = {key.name: key for key in WHOLE.groups}


# Accepted and refused by `GroupConfig.validate` of Kafka 4.4.
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.auto.offset.reset", " earliest "),
        ("share.isolation.level", "read_committed"),
        ("share.renew.acknowledge.enable", "TRUE"),
        ("errors.deadletterqueue.topic.name", ""),
        ("errors.deadletterqueue.topic.name", "letters"),
        ("ottla.share.ordering", "key"),
    ],
)
def test_values_that_are_accepted(name: str, value: str) -> None:
    GROUP[name].normal(value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("share.isolation.level", "READ_COMMITTED", "one of read_committed, read_uncommitted"),
        ("share.delivery.count.limit", "1", "at least 2"),
        ("share.delivery.count.limit", "2147483648", "a whole number of 32 bits"),
        ("share.record.lock.duration.ms", "999", "at least 1000"),
        ("share.partition.max.record.locks", "99", "at least 100"),
        ("share.renew.acknowledge.enable", "yes", "true or false"),
        ("errors.deadletterqueue.topic.name", "__letters", "may not begin with '__'"),
        ("ottla.share.ordering", "partition", "one of none, key"),
        ("share.auto.offset.reset", "none", "latest, earliest or by_duration:PnDTnHnMn.nS"),
    ],
)
def test_values_that_are_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value .*{name}.*{said}"):
        GROUP[name].normal(value)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("latest", None),
        ("earliest", None),
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1D", 86_400_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:pt1h", 3_600_000),
        ("by_duration:PT0S", 0),
        ("by_duration:PT1H-1M", 3_540_000),
        ("by_duration:PT1,5S", 1_500),
        ("by_duration:PT1.S", 1_000),
        ("by_duration:+PT+1H", 3_600_000),
        ("by_duration:-PT-1H", 3_600_000),
        ("by_duration:PT9223372036854775807S", (2**63 - 1) * 1000),
    ],
)
def test_resets_that_are_accepted(text: str, ms: int | None) -> None:
    assert reset_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "LATEST",
        "BY_DURATION:PT1H",
        "by_duration",
        "by_duration:",
        "by_duration: PT1H",
        "by_duration:-PT1H",
        "by_duration:PT-1H",
        "by_duration:PT-0.0001S",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:PT.5S",
        "by_duration:P1W",
        "by_duration:P1M",
        "by_duration:P1Y",
        "by_duration:PT\u06611H",
        "by_duration:PT9223372036854775808S",
        "by_duration:PT" + "9" * 5000 + "S",
    ],
)
def test_resets_that_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="it must be latest, earliest or by_duration"):
        reset_duration_ms(text)


def test_a_duration_may_be_negative() -> None:
    assert iso_duration_ms("-PT1.5S") == iso_duration_ms("PT-1.5S") == -1_500
    with pytest.raises(ValueError, match="less than 2\\^63 seconds"):
        iso_duration_ms("-PT9223372036854775808S")


def test_a_groups_setting_keeps_the_bounds_of_the_broker() -> None:
    bounds = {
        "group.consumer.min.session.timeout.ms": "45000",
        "group.consumer.max.session.timeout.ms": "60000",
    }
    check_group_bounds("consumer.session.timeout.ms", "60000", bounds)
    check_group_bounds("consumer.session.timeout.ms", "60001", {})
    for value in ("44999", "60001"):
        with pytest.raises(ConfigError, match="must be in the range 45000 to 60000 inclusive"):
            check_group_bounds("consumer.session.timeout.ms", value, bounds)
