"""Values of settings with a unit are sent as the number that clusters know."""

from __future__ import annotations

import re

import pytest

from ottla.cli.arguments.config_values import config_values, without_unit
from ottla.cli.failures import UsageError


@pytest.mark.parametrize(
    ("key", "text", "sent"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "604800000", "604800000"),
        ("log.retention.hours", "7d", "168"),
        ("log.retention.minutes", "2h", "120"),
        ("interval.ms", "500ms", "500"),
        ("retention.bytes", "50MB", "50000000"),
        ("segment.bytes", "64MiB", "67108864"),
        ("leader.replication.throttled.rate", "10MB/s", "10000000"),
        ("log.cleaner.io.max.bytes.per.second", "1.5k", "1500"),
        ("cleanup.policy", "compact", "compact"),
        ("min.insync.replicas", "2", "2"),
        ("metrics", "org.apache.kafka.", "org.apache.kafka."),
        ("retention.ms", "soon", "soon"),
    ],
)
def test_units(key: str, text: str, sent: str) -> None:
    assert without_unit(key, text) == sent


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("retention.ms", "50MB", "retention.ms takes milliseconds, such as 7d or 604800000, not '50MB'"),
        (
            "retention.bytes",
            "7d",
            "retention.bytes takes a number of bytes such as 10MB or 1048576, not '7d'",
        ),
        ("log.retention.hours", "90m", "log.retention.hours takes hours, such as 7d or 168, not '90m'"),
    ],
)
def test_units_of_another_kind(key: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        without_unit(key, text)


def test_the_sent_value_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert config_values(["retention.ms=7d", "cleanup.policy=delete"], "--config") == {
        "retention.ms": "604800000",
        "cleanup.policy": "delete",
    }
    assert capsys.readouterr().err == "retention.ms=7d is sent as 604800000\n"
