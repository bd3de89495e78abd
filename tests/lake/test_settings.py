"""The settings of topics that are written as tables."""

from __future__ import annotations

import pytest

from ottla.lake.failures import TableRefused
from ottla.lake.settings import TableSettings, check_apart, grouped, table_settings
from ottla.protocol.settings.config_key import ConfigError
from ottla.protocol.settings.config_keys import check_topic_config

ON = {"ottla.lake.enable": "true"}


def settings(topic: str, **given: str) -> TableSettings:
    found = table_settings(topic, {**ON, **{f"ottla.lake.{name}": value for name, value in given.items()}})
    assert found is not None
    return found


def test_a_topic_is_written_if_its_settings_say_so() -> None:
    assert table_settings("orders", {}) is None
    assert settings("web.clicks-1").table == "lake.web_clicks_1"
    assert settings("2026").table == "lake._2026"
    assert settings("orders", table="sales.orders").letters == "sales.orders__dlq"
    assert settings("orders", partition_by="partition, day(timestamp)").partition_by == (
        "partition",
        "day(timestamp)",
    )


def test_the_group_of_a_hold_has_the_tables_name() -> None:
    assert not settings("orders").hold
    assert settings("web.clicks", hold="true").hold
    assert settings("web.clicks").hold_group == "ottla-lake-lake.web_clicks"
    assert settings("orders", table="sales.orders").hold_group == "ottla-lake-sales.orders"


def test_tables_of_one_group_are_together_and_others_alone() -> None:
    a, b, c, d = (settings(name, group="" if name in "cd" else "bank") for name in "abcd")
    assert grouped([d, b, c, a]) == [(a, b), (c,), (d,)]


@pytest.mark.parametrize(
    ("first", "second"),
    [("a.b", "a-b"), ("orders", "orders__dlq")],
)
def test_two_topics_never_share_a_table(first: str, second: str) -> None:
    check_apart([settings(first), settings("other")])
    with pytest.raises(TableRefused, match="both name table"):
        check_apart([settings(first), settings(second)])


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("mode", "registry", "registry are not there yet"),
        ("mode", "avro", "raw, json or upsert"),
        ("table", "orders", "NAMESPACE.NAME"),
        ("table", "a.b'; drop", "NAMESPACE.NAME"),
        ("partition_by", "bucket(16, key)", "there are partition"),
        ("partition_by", "day(timestamp), hour(timestamp)", "names a column twice"),
        ("group", "../x", "letters, digits"),
        ("bad_records", "drop", "dead-letter, fail, skip"),
        ("commit.ms", "1", "at least 1000"),
        ("enable", "yes", "true or false"),
        ("hold", "maybe", "true or false"),
        ("hold.max.ms", "999", "at least 1000"),
        ("hold.max.ms", "24h", "whole number"),
    ],
)
def test_brokers_refuse_values_that_a_worker_could_not_use(name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_topic_config(f"ottla.lake.{name}", value)
