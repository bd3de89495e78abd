"""Options of readers and writers. Names are accepted in any case, as Spark does; errors name the wrong option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from ..client.foreign_names import Secret, is_secret
from ..client.security.foreign_options import is_about_connections, of_java
from ..client.security.options import SecurityOptions
from ..protocol.nearest import nearest

PREFIX = "kafka."
"""Prefix of client options, as in Spark's own Kafka source and sink."""
BOOTSTRAP = "kafka.bootstrap.servers"


class Queries(Enum):
    """The queries that take an option."""

    ALL = "all"
    STREAM = "stream"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option of the source or the sink, for the check of names and for the reference."""

    name: str
    type: str
    default: str
    """The default as text; empty if the meaning tells it, or if there is none."""
    meaning: str
    unit: str = ""
    queries: Queries = Queries.ALL


class WrongOption(ValueError):
    """An unknown or missing option, or an invalid value. The message names the option and the allowed values."""


def known_only(options: Mapping[str, str], rows: Iterable[OptionRow]) -> dict[str, str]:
    """Return the options of the source or sink under their known names, without the client's `kafka.*` options. Raises
    WrongOption for an unknown option."""
    names = {row.name.lower(): row.name for row in rows}
    found: dict[str, str] = {}
    for given, value in options.items():
        name = given.lower()
        if name.startswith(PREFIX) or name in ELSEWHERE:
            continue
        if name not in names:
            meant = nearest(given, names.values())
            hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(sorted(names.values()))}"
            raise WrongOption(f"format('ottla') has no option {given!r}; {hint}")
        found[names[name]] = value
    return found


CONNECTION: Mapping[str, type] = {
    "bootstrap_servers": str,
    "client_id": str,
    "request_timeout_ms": int,
    "retry_backoff_max_ms": int,
}
_IN_PROGRAMS_ONLY = ("ssl_context", "sasl_oauth_token_provider", "sasl_oauthbearer_extensions")
"""Client options whose values have no form as text."""
_SECURITY: Mapping[str, type] = {
    field.name: bool if isinstance(field.default, bool) else str
    for field in fields(SecurityOptions)
    if field.name not in _IN_PROGRAMS_ONLY
}
_OF_SECURITY = (*_SECURITY, "sasl_oauthbearer_extensions")
_OF_ADMINS = ("bootstrap_servers", "client_id", "request_timeout_ms", *_OF_SECURITY)
ELSEWHERE = frozenset({"checkpointlocation", "path"})
"""Options that Spark uses itself and passes on."""


def client_options(options: Mapping[str, str], also: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Return the `kafka.*` options as options of Ottla's clients: `kafka.request.timeout.ms` is `request_timeout_ms`.

    Options of Java clients for TLS and authentication, like `kafka.sasl.jaas.config`, are also accepted. `also`: the
    names and types of further options that this client has beyond the connection options. Raises WrongOption.
    """
    known: dict[str, Any] = {**CONNECTION, **_SECURITY, **(also or {})}
    found: dict[str, Any] = {}
    of_java_clients: dict[str, str] = {}
    for given, value in options.items():
        if not given.lower().startswith(PREFIX):
            continue
        dotted_name = given.lower().removeprefix(PREFIX)
        name = dotted_name.replace(".", "_")
        if name not in known and is_about_connections(dotted_name):
            of_java_clients[dotted_name] = value
            continue
        if name not in known:
            meant = nearest(name, known)
            dotted = (meant or "").replace("_", ".")
            hint = f"did you mean 'kafka.{dotted}'?" if meant else "the client has no such setting"
            raise WrongOption(f"format('ottla') has no option {given!r}; {hint}")
        converted = _converted(given, value, known[name])
        found[name] = Secret(converted) if is_secret(name) else converted
    found |= _secured(of_java_clients, found)
    if not found.get("bootstrap_servers"):
        raise WrongOption(f"option {BOOTSTRAP!r} is missing: the brokers' addresses, HOST:PORT,HOST:PORT")
    return found


def security_options(client: Mapping[str, Any]) -> SecurityOptions:
    """Return the security options of a client. Raises ValueError."""
    return SecurityOptions(**{name: client[name] for name in _OF_SECURITY if name in client})


def _secured(of_java_clients: Mapping[str, str], found: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options of Java clients to Ottla's. Raises WrongOption, also for options that contradict each other."""
    try:
        given, _ = of_java(of_java_clients)
        security_options({**found, **given})
    except ValueError as error:
        raise WrongOption(f"format('ottla'), options 'kafka.*': {error}") from None
    return given


def admin_options(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return the subset of a client's options that an Admin accepts."""
    return {name: client[name] for name in _OF_ADMINS if name in client}


def boolean(name: str, value: str) -> bool:
    """Return the option's value as a bool. Raises WrongOption unless it is true or false."""
    if value.lower() not in ("true", "false"):
        raise WrongOption(f"option {name!r} is true or false, not {value!r}")
    return value.lower() == "true"


def whole_number(name: str, value: str, least: int = 0) -> int:
    """Return the option's value as an integer. Raises WrongOption if it is not a whole number of at least `least`."""
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise WrongOption(f"option {name!r} is a whole number from {least} on, not {value!r}")
    return number


def _converted(name: str, value: str, kind: Any) -> Any:
    if kind is bool:
        return boolean(name, value)
    if kind is int:
        return whole_number(name, value)
    return value
