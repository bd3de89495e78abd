"""The base class of every theme of the admin client: one session, opened and closed with the client."""

from __future__ import annotations

from typing import Self, Unpack

from ..lifecycle import UsedWithAwait
from ..options import group_of
from ..security.options import SecurityOptions
from ..security.security import security_of
from .options import AdminConnection, AdminOptions
from .session import AdminSession


class AdminBase(UsedWithAwait):
    """The base of the classes that `Admin` is composed of, one class for each theme."""

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        connection = group_of(AdminConnection, options)
        self.session = AdminSession(
            bootstrap_servers=connection.bootstrap_servers,
            client_id=connection.client_id,
            request_timeout_ms=connection.request_timeout_ms,
            security=security_of(group_of(SecurityOptions, options)),
        )
        """The connections that all themes share. Programs use the methods of `Admin` instead."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connect to the cluster. Raises NoBrokerReachable."""
        await self.session.start()

    async def stop(self) -> None:
        """Close the connections; idempotent."""
        await self.session.stop()
