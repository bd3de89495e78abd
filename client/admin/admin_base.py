"""The base class of every theme of the admin client: one session, opened and closed with the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, Unpack

from ..security.options import SecurityKeywords, SecurityOptions
from ..security.security import security_of
from .session import AdminSession


class AdminBase:
    """The base of the classes that `Admin` is composed of, one class for each theme."""

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        client_id: str = "ottla-admin",
        request_timeout_ms: int = 30_000,
        **security: Unpack[SecurityKeywords],
    ) -> None:
        self.session = AdminSession(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=security_of(SecurityOptions(**security)),
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
