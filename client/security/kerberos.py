"""GSSAPI: a login by a Kerberos ticket (RFC 4752), from the user's credential cache or by a keytab.

The library runs in a thread, since it asks the KDC for tickets and may wait for it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from ...network.kerberos import (
    KerberosMissing,
    kerberos_principal,
    library,
    open_context,
    protocol_error_of,
    reason_of,
)
from ...network.threads import in_thread
from ...protocol.credentials.gssapi_layers import LayersRefused, chosen
from .logins import Ask, ClientLoginRefused, ClientLoginUndecided, LoginAttempt

_SERVER_UNKNOWN = 7
_TICKET_EXPIRED = 32
_CLOCK_SKEW = 37
_LATER = frozenset({21, 33, 34, 154, 156})
"""Errors that may disappear: the client or its ticket is not yet valid, a replay, or no KDC can be reached."""
_MESSAGES_MAX = 10
"""The number of messages after which a login with a broker that never finishes fails."""
_numbers = itertools.count()
ResultT = TypeVar("ResultT")


def _new_cache() -> str:
    """Return the name of a cache in memory, private to one client: the process's own cache has another user's
    tickets."""
    return f"MEMORY:ottla-{os.getpid()}-{next(_numbers)}"


class KerberosClientLogin:
    """A client's login by a Kerberos ticket, the SASL mechanism GSSAPI."""

    mechanism = "GSSAPI"
    shows_password = False

    def __init__(
        self, service_name: str, domain_name: str | None, principal: str | None, keytab: str | None
    ) -> None:
        """`domain_name` is the host in the broker's principal, if it differs from the host that the client connects to.

        Raises ValueError if the library is missing.
        """
        try:
            self._gssapi = library()
        except KerberosMissing as error:
            raise ValueError(f"sasl_mechanism GSSAPI: {error}") from None
        self.user = principal
        self._service_name = service_name
        self._domain_name = domain_name
        self._keytab = keytab
        self._own_cache = _new_cache()

    async def prepare(self, host: str) -> LoginAttempt:
        """Get a ticket for the broker on this host from the KDC. Raises ClientLoginRefused and ClientLoginUndecided."""
        target = f"{self._service_name}@{self._domain_name or host}"
        with self._tickets():
            context = await in_thread(self._told, lambda: self._open(target), target)
            token = await in_thread(self._told, context.step, target)
        return partial(self._run, target, context, token)

    @contextmanager
    def _tickets(self) -> Iterator[None]:
        """Return a context manager that switches to a new ticket cache after a failure: the broker may have a new key,
        for which the cached tickets are invalid."""
        try:
            yield
        except BaseException:
            self._own_cache = _new_cache()
            raise

    async def _run(self, target: str, context: Any, token: bytes | None, ask: Ask) -> None:
        with self._tickets():
            await self._exchange(target, context, token, ask)

    async def _exchange(self, target: str, context: Any, token: bytes | None, ask: Ask) -> None:
        for _ in range(_MESSAGES_MAX):
            answer = await ask(token or b"")
            if context.complete:
                break
            token = await in_thread(self._told, partial(context.step, answer), target)
        else:
            raise ClientLoginRefused(f"the broker is at no end after {_MESSAGES_MAX} messages")
        await ask(self._choice(context, answer))

    def _choice(self, context: Any, answer: bytes) -> bytes:
        try:
            offer = bytes(context.unwrap(answer).message)
            return bytes(context.wrap(chosen(offer), False).message)
        except self._gssapi.exceptions.GSSError as error:
            raise ClientLoginRefused(f"the broker's offer cannot be read: {reason_of(error)}") from None
        except LayersRefused as error:
            raise ClientLoginRefused(f"the broker sent {error}") from None

    def _open(self, target: str) -> Any:
        gssapi = self._gssapi
        flags = gssapi.RequirementFlag
        return open_context(
            name=gssapi.Name(target, gssapi.NameType.hostbased_service),
            creds=self._credentials(),
            mech=gssapi.MechType.kerberos,
            usage="initiate",
            # The broker must prove its identity, too; the last messages are signed.
            flags=flags.mutual_authentication | flags.integrity,
        )

    def _credentials(self) -> Any:
        """Return the credentials. They are read at each login, so a renewed ticket or a replaced keytab is used."""
        gssapi = self._gssapi
        store = {"client_keytab": self._keytab, "ccache": self._own_cache} if self._keytab else None
        return gssapi.Credentials(
            name=None if self.user is None else kerberos_principal(self.user),
            usage="initiate",
            mechs=[gssapi.MechType.kerberos],
            store=store,
        )

    def _told(self, work: Callable[[], ResultT], target: str) -> ResultT:
        """Run `work`, and turn errors of GSSAPI into errors of logins. It runs in the worker thread, as the library
        keeps the details of an error for the thread that met it."""
        try:
            return work()
        except self._gssapi.exceptions.GSSError as error:
            number = protocol_error_of(error)
            message = f"{reason_of(error)}; {self._advice(error, number, target)}"
            if number in _LATER:
                raise ClientLoginUndecided(message) from None
            raise ClientLoginRefused(message) from None

    def _advice(self, error: Exception, number: int | None, target: str) -> str:
        whose = self.user or "your principal"
        if number in _LATER:
            return "it may go away by itself; krb5.conf says where the KDC is"
        if number == _SERVER_UNKNOWN:
            return (
                f"the ticket is for {target.replace('@', '/', 1)}: the broker's principal has to be that, or "
                "sasl_kerberos_service_name and sasl_kerberos_domain_name have to say what it is"
            )
        if number == _CLOCK_SKEW:
            return "set the clocks of this machine, the KDC and the broker right"
        if self._keytab is not None:
            return f"`klist -k {self._keytab}` shows whose keys the keytab has, it has to be that of {whose}"
        missing = isinstance(error, self._gssapi.exceptions.MissingCredentialsError)
        if missing or number == _TICKET_EXPIRED:
            return f"get a ticket by `kinit {self.user or 'NAME@REALM'}`, or give sasl_kerberos_keytab"
        return f"`klist` shows the tickets of {whose}"
