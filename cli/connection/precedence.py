"""Connection settings of a command: flags go before the environment, which goes before a profile.

Flags are -b, -X and --command-config; among them -X goes first, then -b, then the file. The environment has
OTTLA_BOOTSTRAP and OTTLA_COMMAND_CONFIG. A profile is named by --profile, else by OTTLA_PROFILE, else by `ottla profile
use`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...client.foreign_names import is_secret
from ..arguments.options import DEFAULT_BOOTSTRAP, key_values
from ..failures import UsageError
from ..nodes.config_providers import resolve
from ..nodes.settings import parse_properties, read_text
from ..terminal.text import note
from .passwords import password_of
from .profiles import load, path_of

PASSWORD_VARIABLE = "OTTLA_SASL_PASSWORD"
_BOOTSTRAP = "bootstrap_servers"
ResultT = TypeVar("ResultT")


def connection_of(arguments: argparse.Namespace, *, asks_password: bool = True) -> dict[str, Any]:
    """Return the keyword arguments of a client for the cluster that flags, environment or profile name.

    The user of the login becomes `login_user` among the arguments, for failures. Raises CommandFailed and UsageError.
    """
    given = {
        **_of_profile(arguments),
        **_of_environment(os.environ),
        **of_flags(arguments),
    }
    given.setdefault(_BOOTSTRAP, DEFAULT_BOOTSTRAP)
    arguments.login_user = given.get("sasl_plain_username")
    if asks_password:
        _add_password(given)
    return given


def connection_of_profile(name: str) -> dict[str, Any]:
    """Return the keyword arguments of a client for the cluster that a profile describes, without flags and environment.

    Raises CommandFailed and UsageError.
    """
    given = of_librdkafka(load(path_of(os.environ)).of(name))
    given.setdefault(_BOOTSTRAP, DEFAULT_BOOTSTRAP)
    _add_password(given)
    return given


def of_flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of a client that the connection flags alone give.

    Raises CommandFailed and UsageError.
    """
    given: dict[str, Any] = {}
    if (file := getattr(arguments, "command_config", None)) is not None:
        given |= of_properties(file)
    if arguments.bootstrap is not None:
        given[_BOOTSTRAP] = arguments.bootstrap
    return given | of_librdkafka(foreign_properties(getattr(arguments, "x", None) or ()))


def foreign_properties(pairs: Sequence[str]) -> dict[str, str]:
    """Return the `-X key=value` pairs, named as in librdkafka, as a mapping.

    Raises UsageError for a malformed pair and for a secret.
    """
    properties = key_values(pairs, "-X")
    for name in properties:
        if is_secret(name):
            raise UsageError(
                f"-X {name}: other users could see it in the list of processes. {PASSWORD_VARIABLE}, "
                "--command-config or a profile takes secrets"
            )
    return properties


def check_pairs(properties: Mapping[str, str]) -> None:
    """Check that a client accepts these connection properties, named as in librdkafka. Raises UsageError."""
    from ...client.security.options import SecurityOptions
    from ...client.security.security import security_of

    given = of_librdkafka(properties)
    security = {name: value for name, value in given.items() if name in SecurityOptions.__dataclass_fields__}
    _understood(lambda: security_of(SecurityOptions(**security)))


def of_librdkafka(properties: Mapping[str, str]) -> dict[str, Any]:
    """Translate connection properties of librdkafka into keyword arguments of a client. Raises UsageError."""
    from ...client.security import foreign_options

    return _understood(lambda: foreign_options.of_librdkafka(properties))


def of_properties(file: Path) -> dict[str, Any]:
    """Read a properties file of Java clients, which `--command-config` names, and return the keyword arguments of a
    client."""
    from ...client.security.foreign_options import of_java

    properties = resolve(parse_properties(read_text(file), file), os.environ, note).values
    given, others = _understood(lambda: of_java(properties))
    if others:
        note(f"{file}: ignored, since not about connections: {', '.join(sorted(others))}")
    return given


def _of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if file := environ.get("OTTLA_COMMAND_CONFIG"):
        given |= of_properties(Path(file))
    if bootstrap := environ.get("OTTLA_BOOTSTRAP"):
        given[_BOOTSTRAP] = bootstrap
    return given


def _of_profile(arguments: argparse.Namespace) -> dict[str, Any]:
    named = getattr(arguments, "profile", None) or os.environ.get("OTTLA_PROFILE")
    profiles = load(path_of(os.environ))
    name = named or profiles.chosen
    return {} if name is None else of_librdkafka(profiles.of(name))


def _add_password(given: dict[str, Any]) -> None:
    """Add the password of the user in `given` from the environment or the terminal, unless there is no user or `given`
    has a password."""
    if "sasl_plain_username" in given and "sasl_plain_password" not in given:
        user = given["sasl_plain_username"]
        given["sasl_plain_password"] = password_of(None, PASSWORD_VARIABLE, f"password of {user}")


def _understood(read: Callable[[], ResultT]) -> ResultT:
    try:
        return read()
    except ValueError as error:
        raise UsageError(str(error)) from None
