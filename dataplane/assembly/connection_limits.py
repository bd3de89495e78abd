"""Limits on the number and rate of a broker's connections, from its settings in force."""

from __future__ import annotations

from ...protocol.settings.address_limits import AddressLimits
from ..broker_settings import BrokerSettings
from ..configuration.config import BrokerConfig
from ..server.admissions import AdmissionLimits


def connection_limits(config: BrokerConfig, settings: BrokerSettings) -> AdmissionLimits:
    """Return the limits on the number and rate of connections: of all listeners together, of each listener, and of
    addresses.
    """
    names = [listener.name for listener in config.listeners]
    own = config.inter_broker_listener if len(names) > 1 else None
    return AdmissionLimits(
        most=settings.number("max.connections"),
        most_of_address=settings.number("max.connections.per.ip"),
        most_of_addresses=AddressLimits(settings.text("max.connections.per.ip.overrides") or ""),
        most_of_listener=_given(settings, names, "max.connections"),
        rate=settings.number("max.connection.creation.rate"),
        rate_of_listener=_given(settings, names, "max.connection.creation.rate"),
        listener_of_brokers=own,
    )


def _given(settings: BrokerSettings, listeners: list[str], key: str) -> dict[str, int]:
    found = {name: settings.number_of_listener(name, key) for name in listeners}
    return {name: number for name, number in found.items() if number is not None}
