"""The broker's configuration from Kafka's property names."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.dataplane.configuration.config import BrokerConfig
from ottla.protocol.config_chain import ConfigSource, topic_defaults
from ottla.protocol.config_keys import ConfigError


def properties(folder: Path, **changes: str) -> dict[str, str]:
    secret = folder / "secret"
    secret.write_text("0123456789abcdef" * 2)
    return {
        "node.id": "1",
        "cluster.id": "c",
        "cluster.secret.file": str(secret),
        "controller.quorum.voters": "101@127.0.0.1:9193",
        "log.dirs": str(folder),
        "listeners": "PLAINTEXT://127.0.0.1:9092",
    } | {name.replace("_", "."): value for name, value in changes.items()}


def test_an_ordinary_file(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(properties(tmp_path, log_retention_hours="2", num_partitions="6"))
    assert (config.node_id, config.listeners[0].advertised_port, config.topics.num_partitions) == (1, 9092, 6)
    assert topic_defaults([(ConfigSource.STATIC_BROKER, config.properties)])["retention.ms"] == "7200000"
    assert config.quorum.voters == {101: ("127.0.0.1", 9193)}


def test_followers_hear_sooner_of_the_high_watermark_where_they_are_read(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    unread, read = (
        BrokerConfig.from_properties(properties(tmp_path, **changes)).watermark_delay_s
        for changes in ({}, {"replica_selector_class": selector})
    )
    assert (unread, read) == (0.05, 0.005)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_partitions": "many"}, "num.partitions"),
        ({"node_id": "-1"}, "node.id"),
        ({"listeners": "127.0.0.1:9092"}, "listeners"),
        ({"num_partition": "3"}, "num.partitions"),
        ({"cordoned_log_dirs": "/nowhere"}, "Missing entries : /nowhere"),
        ({"controller_quorum_voters": "x"}, "controller.quorum.voters"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BrokerConfig.from_properties(properties(tmp_path, **changes))
