"""Keys that are given for one listener, or for one of its mechanisms, and the security protocol of each listener.

`listener.name.NAME.KEY` is for the listener NAME, and `listener.name.NAME.MECHANISM.KEY` for one of the mechanisms by
which clients log in there. NAME and MECHANISM are in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from .config_key import ConfigError, ConfigKey, Scope
from .config_sasl import KEYS_OF_MECHANISMS, MECHANISM_NAMES, ONLY_OF_MECHANISMS, SASL_KEYS_OF_LISTENERS
from .config_tls import RELOADED_KEYS, TLS_KEYS_OF_LISTENERS
from .security_protocol import SecurityProtocol

LISTENER_PREFIX: Final = "listener.name."
PROTOCOL_MAP: Final = "listener.security.protocol.map"

_MECHANISM = "|".join(MECHANISM_NAMES)
_FORM = re.compile(
    rf"{re.escape(LISTENER_PREFIX)}(?P<listener>[^.]+)\.(?:(?P<mechanism>{_MECHANISM})\.)?(?P<key>.+)"
)
_CONNECTION_KEYS: Final = frozenset({"max.connections", "max.connection.creation.rate"})
_OF_METRICS = re.compile(r"metrics\.(?P<key>ssl\..+)")
_OF_LISTENERS = TLS_KEYS_OF_LISTENERS | SASL_KEYS_OF_LISTENERS - ONLY_OF_MECHANISMS | _CONNECTION_KEYS


def key_of_listener(name: str, keys: Mapping[str, ConfigKey]) -> ConfigKey | None:
    """Return the key that `listener.name...` names, under that name; None if no key has that form."""
    form = _FORM.fullmatch(name)
    if form is None:
        return None
    allowed = KEYS_OF_MECHANISMS if form["mechanism"] else _OF_LISTENERS
    if form["key"] not in allowed:
        return None
    key = keys[form["key"]]
    return replace(
        key, name=name, scope=key.scope | Scope.DYNAMIC if key.name in RELOADED_KEYS else key.scope
    )


def key_of_metrics(name: str, keys: Mapping[str, ConfigKey]) -> ConfigKey | None:
    """Return the key of the HTTP endpoint that `metrics.ssl...` names, under that name; None if no key has that
    form."""
    form = _OF_METRICS.fullmatch(name)
    if form is None or form["key"] not in RELOADED_KEYS:
        return None
    return replace(keys[form["key"]], name=name, scope=Scope.BROKER | Scope.QUORUM)


def listener_of(name: str) -> str | None:
    """Return the listener, in lower case, of a key `listener.name.NAME...`; None for other keys."""
    form = _FORM.fullmatch(name)
    return form["listener"] if form is not None else None


def without_prefix(name: str) -> str:
    """Return the key without the prefix of its listener and mechanism."""
    form = _FORM.fullmatch(name)
    return form["key"] if form is not None else name


def is_tls_of_listener(name: str) -> bool:
    """Return whether the name is a TLS key of one listener."""
    return listener_of(name) is not None and without_prefix(name) in TLS_KEYS_OF_LISTENERS


def mapped_protocols(properties: Mapping[str, str]) -> dict[str, SecurityProtocol]:
    """Return the security protocol of each listener in `listener.security.protocol.map`. A listener that the map leaves
    out may be named like its protocol. Raises ConfigError."""
    protocols, told = tuple(SecurityProtocol), dict[str, SecurityProtocol]()
    for entry in filter(None, map(str.strip, properties.get(PROTOCOL_MAP, "").split(","))):
        name, colon, protocol = entry.partition(":")
        if not (name and colon) or protocol not in protocols:
            raise ConfigError(
                f"{PROTOCOL_MAP}: {entry!r} is not of the form NAME:protocol, with {', '.join(protocols)}"
            )
        if name in told:
            raise ConfigError(f"{PROTOCOL_MAP}: the listener {name} stands there twice")
        told[name] = SecurityProtocol(protocol)
    return told
