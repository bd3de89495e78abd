"""The number of connections that a broker accepts: from its file, and from dynamic settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.dataplane.assembly.connection_limits import connection_limits
from ottla.dataplane.broker_settings import BrokerSettings
from ottla.dataplane.configuration.config import BrokerConfig
from ottla.dataplane.server.admissions import AdmissionLimits
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.messages.config_commands import ResourceType
from ottla.protocol.settings.config_key import ConfigError
from ottla.protocol.settings.config_keys import check_dynamic_broker_config

from .test_config import properties

TWO_LISTENERS = {
    "listeners": "CLIENTS://127.0.0.1:9092,BROKERS://127.0.0.1:9093",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def limits_of(folder: Path, dynamic: dict[str, str], **changes: str) -> AdmissionLimits:
    config = BrokerConfig.from_properties(properties(folder) | changes)
    image = ClusterImage()
    image.configs[(ResourceType.BROKER, "1")] = dynamic
    return connection_limits(config, BrokerSettings(config.node_id, config.properties, lambda: image))


def test_limits_of_the_file_and_those_that_are_changed(tmp_path: Path) -> None:
    given = TWO_LISTENERS | {
        "max.connections": "100",
        "max.connections.per.ip": "10",
        "max.connections.per.ip.overrides": "10.0.0.0/8:50",
        "listener.name.clients.max.connections": "90",
        "listener.name.clients.max.connection.creation.rate": "30",
    }
    changed = {
        "max.connections.per.ip.overrides": "10.1.0.0/16:5",
        "listener.name.clients.max.connections": "80",
        "listener.name.brokers.max.connection.creation.rate": "20",
        "max.connection.creation.rate": "40",
    }
    limits = limits_of(tmp_path, changed, **given)
    assert (limits.most, limits.most_of_address, limits.rate) == (100, 10, 40)
    assert [limits.most_of_addresses.of(address) for address in ("10.1.2.3", "10.2.3.4")] == [5, None]
    assert limits.most_of_listener == {"CLIENTS": 80}
    assert limits.rate_of_listener == {"CLIENTS": 30, "BROKERS": 20}
    assert limits.listener_of_brokers == "BROKERS"


def test_a_listener_that_clients_use_is_not_kept_for_brokers(tmp_path: Path) -> None:
    assert limits_of(tmp_path, {}).listener_of_brokers is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.connections.per.ip.overrides", "somewhere:5"),
        ("max.connection.creation.rate", "0"),
        ("listener.name.clients.max.connections", "-1"),
        ("listener.name.clients.max.connections.per.ip", "5"),
    ],
)
def test_what_limits_nothing_is_refused_while_brokers_run_and_at_their_start(
    name: str, value: str, tmp_path: Path
) -> None:
    if not name.endswith(".per.ip"):
        with pytest.raises(ConfigError, match=name):
            check_dynamic_broker_config(name, value)
    with pytest.raises(ConfigError, match=name):
        BrokerConfig.from_properties(properties(tmp_path) | TWO_LISTENERS | {name: value})
