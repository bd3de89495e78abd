"""The options of the admin client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..connections.options import CLIENT_ID_MEANING, ClientOptions
from ..declared_options import declared_options, optional
from ..security.options import SecurityKeywords, SecurityOptions


class AdminOptions(SecurityKeywords, total=False):
    """The keyword arguments of an Admin, for type checkers. The groups have the defaults and meanings."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    request_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConnection(ClientOptions):
    """Options of connections."""

    client_id: str = optional("ottla-admin", CLIENT_ID_MEANING)
    request_timeout_ms: int = optional(
        30_000,
        "Time within which the cluster has to answer a request. A call repeats its requests for the same time.",
    )


ADMIN_OPTIONS = declared_options(AdminConnection, SecurityOptions)
