"""A broker's Kerberos key, from a keytab, and the library that checks tickets with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ....network.kerberos import (
    KerberosMissing,
    is_of_system,
    kerberos_principal,
    library,
    open_context,
    protocol_error_of,
    reason_of,
)
from ....protocol.settings.config_key import ConfigError
from ..kerberos_mapping import KerberosMapping
from .kerberos import Context, KerberosThreads
from .login import LoginRefused, LoginUndecided

logger = logging.getLogger(__name__)

MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
_UNDECIDED: Final = frozenset({21, 33, 34})
"""Errors after which a client may try again, as in Kafka: the client or its ticket is not yet valid, or a replay."""
_KEYTAB_UNREADABLE: Final = 45
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The Kerberos settings of a listener."""

    option: str
    """Key of the JAAS entry, for messages."""
    keytab: str
    principal: str
    """Principal of the broker, whose key the keytab holds."""
    rules: str


class KerberosAcceptor:
    """The broker's Kerberos key from a listener's keytab, and the threads in which the library uses it."""

    def __init__(self, settings: KerberosSettings) -> None:
        """Raises ConfigError if the library is missing, the key cannot be used or a rule is invalid."""
        try:
            library()
        except KerberosMissing as error:
            raise ConfigError(f"{settings.option}: {error}") from None
        self._credentials = _credentials(settings)
        try:
            self.mapping = KerberosMapping(settings.rules, _default_realm())
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self.threads = KerberosThreads()

    def context(self) -> Context:
        """Return a security context for the login of one client."""
        return _Context(self._credentials)

    def close(self) -> None:
        """Stop the Kerberos threads when they have finished their current work."""
        self.threads.close()


class _Context:
    """The Kerberos library's context of one login, as the interface `Context`."""

    def __init__(self, credentials: Any) -> None:
        self._gssapi = library()
        self._context = open_context(creds=credentials, usage="accept")

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes) -> bytes:
        return self._asked(lambda: self._context.step(token) or b"")

    def wrap(self, message: bytes) -> bytes:
        return self._asked(lambda: bytes(self._context.wrap(message, False).message))

    def unwrap(self, message: bytes) -> bytes:
        return self._asked(lambda: bytes(self._context.unwrap(message).message))

    def peer(self) -> tuple[str, int | None]:
        return self._asked(lambda: (str(self._context.initiator_name), self._context.lifetime))

    def _asked(self, ask: Callable[[], ResultT]) -> ResultT:
        try:
            return ask()
        except self._gssapi.exceptions.GSSError as error:
            number, reason = protocol_error_of(error), reason_of(error)
            if number == _KEYTAB_UNREADABLE or is_of_system(error):
                logger.warning("nobody can log in by Kerberos now: %s", reason)
                raise LoginUndecided(reason) from None
            if number in _UNDECIDED:
                raise LoginUndecided(reason) from None
            raise LoginRefused(reason) from None


def _credentials(settings: KerberosSettings) -> Any:
    gssapi = library()
    try:
        return gssapi.Credentials(
            name=kerberos_principal(settings.principal),
            usage="accept",
            mechs=[gssapi.MechType.kerberos],
            store={"keytab": settings.keytab},
        )
    except gssapi.exceptions.GSSError as error:
        raise ConfigError(
            f"{settings.option}: the key of {settings.principal} in {settings.keytab} cannot be used: "
            f"{reason_of(error)}"
        ) from None


def _default_realm() -> str:
    """Return the default realm of krb5.conf; empty if it has none, as in Kafka."""
    gssapi = library()
    try:
        name = str(kerberos_principal("any").canonicalize(gssapi.MechType.kerberos))
    except gssapi.exceptions.GSSError:
        return ""
    return name.rpartition("@")[2]
