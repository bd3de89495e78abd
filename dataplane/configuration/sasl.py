"""Logins of the peers of each listener, from Kafka's keys.

The most specific form of each key applies: `listener.name.NAME.MECHANISM.KEY`, then `listener.name.NAME.KEY`, then
`KEY`, with the listener and the mechanism in lower case. JAAS texts must name the listener and the mechanism, as in
Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...protocol.credentials.jaas import JaasMalformed, LoginModule, parse_jaas
from ...protocol.credentials.scram import SCRAM_MECHANISMS
from ...protocol.messages.sasl import GSSAPI, OAUTHBEARER
from ...protocol.settings.config_fields import default_text, setting
from ...protocol.settings.config_keys import NODE_KEYS, ConfigError
from ..security.oauth.settings import BearerSettings
from ..security.sasl import plain, scram
from ..security.sasl.kerberos_acceptor import MODULE, KerberosSettings
from . import kerberos, oauth

MECHANISMS: Final = (plain.PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
VERIFY_BY_LIST, VERIFY_BY_SCRAM = "jaas", "scram"
_JAAS = "sasl.jaas.config"
_MODULES: Final = {
    plain.PLAIN: plain.MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, scram.MODULE),
    OAUTHBEARER: oauth.MODULE,
    GSSAPI: MODULE,
}


def _is_option_of_password(name: str) -> bool:
    return name in ("username", "password")


def _is_option_of_plain(name: str) -> bool:
    return _is_option_of_password(name) or name.startswith("user_")


_IS_OPTION: Final[Mapping[str, Callable[[str], bool]]] = {
    plain.PLAIN: _is_option_of_plain,
    **dict.fromkeys(SCRAM_MECHANISMS, _is_option_of_password),
    OAUTHBEARER: oauth.is_option,
    GSSAPI: kerberos.is_option,
}


@dataclass(frozen=True, slots=True)
class MechanismConfig:
    """A SASL mechanism that a listener offers, with its settings."""

    name: str
    reauthentication_max_ms: int
    module: LoginModule | None = field(default=None, repr=False)
    """The mechanism's JAAS entry; SCRAM needs none."""
    verify: str = setting("sasl.plain.verify", str)
    """Source of PLAIN's passwords: the JAAS entry, or the users in the quorum's metadata."""
    bearer: BearerSettings | None = None
    """Token checks of OAUTHBEARER."""
    kerberos: KerberosSettings | None = None
    """Keytab and name mapping of GSSAPI."""


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """The SASL settings of one listener: its mechanisms and its time and size limits for logins."""

    mechanisms: tuple[MechanismConfig, ...]
    failure_delay_ms: int
    timeout_ms: int
    request_max_bytes: int


def sasl_config(properties: Mapping[str, str], listener: str) -> SaslConfig:
    """Return the login settings of a listener whose security protocol includes SASL. Raises ConfigError."""
    return _Listener(properties, listener).config()


class _Listener:
    """A reader of the SASL keys of one listener."""

    def __init__(self, properties: Mapping[str, str], name: str) -> None:
        self._properties = properties
        self._name = name
        self._prefix = f"listener.name.{name.lower()}."

    def config(self) -> SaslConfig:
        key, text = self._find("sasl.enabled.mechanisms")
        names = [part.strip() for part in text.split(",") if part.strip()]
        if not names:
            raise ConfigError(
                f"sasl.enabled.mechanisms is missing: the listener {self._name} asks for a login; there are "
                f"{', '.join(MECHANISMS)}"
            )
        unknown = [name for name in names if name not in MECHANISMS]
        if unknown:
            raise ConfigError(f"{key}: {unknown[0]!r} is not supported; there are {', '.join(MECHANISMS)}")
        if len(set(names)) < len(names):
            raise ConfigError(f"{key}: {text!r} names a mechanism twice")
        return SaslConfig(
            tuple(self._mechanism(name) for name in names),
            failure_delay_ms=self._number("connection.failed.authentication.delay.ms"),
            timeout_ms=self._number("connection.authentication.timeout.ms"),
            request_max_bytes=self._number("sasl.server.max.receive.size"),
        )

    def _mechanism(self, name: str) -> MechanismConfig:
        module = self._module(name)
        key, verify = self._find("sasl.plain.verify", name)
        verify = verify or default_text("sasl.plain.verify")
        if verify not in (VERIFY_BY_LIST, VERIFY_BY_SCRAM):
            raise ConfigError(f"{key} is {verify!r}: allowed are {VERIFY_BY_LIST}, {VERIFY_BY_SCRAM}")
        if name == plain.PLAIN and verify == VERIFY_BY_LIST and module is None:
            raise ConfigError(
                f"{self._prefix}plain.sasl.jaas.config is missing: it lists the users of PLAIN; or set "
                f"sasl.plain.verify={VERIFY_BY_SCRAM}, which asks the users whom the quorum knows"
            )
        return MechanismConfig(
            name,
            self._number("connections.max.reauth.ms", name),
            module,
            verify,
            self._bearer(module) if name == OAUTHBEARER else None,
            self._kerberos(module) if name == GSSAPI else None,
        )

    def _bearer(self, module: LoginModule | None) -> BearerSettings:
        find = partial(self._find, mechanism=OAUTHBEARER)
        return oauth.bearer_settings(find, self._jaas_key(OAUTHBEARER), module, self._properties)

    def _kerberos(self, module: LoginModule | None) -> KerberosSettings:
        return kerberos.kerberos_settings(self._find, self._jaas_key(GSSAPI), module)

    def _jaas_key(self, mechanism: str) -> str:
        return f"{self._prefix}{mechanism.lower()}.{_JAAS}"

    def _module(self, mechanism: str) -> LoginModule | None:
        """Return the JAAS entry of a mechanism on this listener; None if there is none. Raises ConfigError, which shows
        no value.
        """
        key = self._jaas_key(mechanism)
        text = self._properties.get(key, "").strip()
        if not text:
            return None
        try:
            modules = parse_jaas(text)
        except JaasMalformed as error:
            raise ConfigError(f"{key}: {error}") from None
        if len(modules) > 1:
            raise ConfigError(f"{key} has {len(modules)} login modules, allowed is one")
        (module,) = modules
        if module.class_name != _MODULES[mechanism]:
            raise ConfigError(f"{key} names {module.class_name}: {mechanism} takes {_MODULES[mechanism]}")
        for option in module.options:
            if not _IS_OPTION[mechanism](option):
                raise ConfigError(f"{key} has the option {option!r}, which {module.name} does not have")
        return module

    def _number(self, key: str, mechanism: str | None = None) -> int:
        found, text = self._find(key, mechanism)
        try:
            value = NODE_KEYS[key].parse(text or NODE_KEYS[key].default or "")
        except ConfigError as error:
            raise ConfigError(f"{found}: {error}") from None
        assert isinstance(value, int), f"{key} is no whole number by its type"
        return value

    def _find(self, key: str, mechanism: str | None = None) -> tuple[str, str]:
        """Return the most specific form of a key that is given for this listener, and its value; the value is empty if
        no form is given.
        """
        forms = [self._prefix + key, key]
        if mechanism is not None:
            forms.insert(0, f"{self._prefix}{mechanism.lower()}.{key}")
        for form in forms:
            if text := self._properties.get(form, "").strip():
                return form, text
        return key, ""
