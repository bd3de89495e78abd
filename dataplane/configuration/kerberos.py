"""Settings of a listener that offers GSSAPI: the broker's keytab and principal, and the mapping of users' names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ...protocol.credentials.jaas import LoginModule
from ...protocol.settings.config_key import ConfigError
from ..security.kerberos_mapping import OPTION as RULES
from ..security.sasl.kerberos_acceptor import MODULE, KerberosSettings

_SERVICE: Final = "sasl.kerberos.service.name"
_OPTIONS: Final = frozenset({"useKeyTab", "storeKey", "keyTab", "principal", "serviceName"})
_PRINCIPAL = re.compile(r"(?P<service>[^/@\s]+)/[^/@\s]+(?:@[^/@\s]+)?")


def is_option(name: str) -> bool:
    """Return whether the JAAS entry for Kerberos may have an option of this name."""
    return name in _OPTIONS


def kerberos_settings(
    find: Callable[[str], tuple[str, str]], key: str, module: LoginModule | None
) -> KerberosSettings:
    """Return the Kerberos settings of a listener. Raises ConfigError.

    `find` returns the form of a key that is given for the listener, and its value. `key` is the key of the JAAS entry.
    """
    if module is None:
        raise ConfigError(
            f"{key} is missing: it names the broker's keytab and principal, as {MODULE} required useKeyTab=true "
            'storeKey=true keyTab="FILE" principal="kafka/HOST@REALM";'
        )
    _check_flags(module, key)
    keytab, principal = (module.options.get(name, "") for name in ("keyTab", "principal"))
    if not keytab:
        raise ConfigError(f"{key} has no keyTab: the file with the broker's key")
    named = _PRINCIPAL.fullmatch(principal)
    if named is None:
        raise ConfigError(f"{key}: principal is SERVICE/HOST@REALM, as kafka/HOST@REALM, not {principal!r}")
    _check_service(find(_SERVICE), key, module, named["service"])
    return KerberosSettings(key, keytab, principal, find(RULES)[1])


def _check_flags(module: LoginModule, key: str) -> None:
    if module.options.get("useKeyTab", "").lower() != "true":
        raise ConfigError(
            f"{key}: useKeyTab has to be true: a broker finds its key in a keytab and nowhere else"
        )
    if module.options.get("storeKey", "true").lower() != "true":
        raise ConfigError(f"{key}: storeKey has to be true: without its key a broker cannot read a ticket")


def _check_service(given: tuple[str, str], key: str, module: LoginModule, service: str) -> None:
    """Check that the service for which clients request tickets is the same in all three places where it can be
    given."""
    for where, name in ((f"{key}: serviceName", module.options.get("serviceName")), given):
        if name and name != service:
            raise ConfigError(
                f"{where} is {name!r}, and the principal {module.options['principal']!r} is of the service {service!r}"
            )
