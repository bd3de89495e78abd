"""The cluster that is copied, as a broker asks it. Who starts brokers brings the connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar

from ...protocol.messages.metadata import MetadataResponse
from ...protocol.wire.schema import Message, Request

UNREACHABLE: Final = "the source cannot be reached as it is described: the log of this broker tells why"
"""One text for all that a broker finds in its files and on the network, so that nobody learns by it which files and
ports there are."""

ResponseT = TypeVar("ResponseT", bound=Message)


class SourceCluster(Protocol):
    """Connections to one cluster. Each question raises KafkaError where there is no answer."""

    async def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """The brokers and these topics, or all; nothing is created by asking."""
        ...

    async def ask(
        self,
        broker_id: int,
        message: Request[ResponseT],
        *,
        lane: str = "",
        timeout_ms: float | None = None,
        at_most: int | None = None,
    ) -> ResponseT:
        """Ask one broker of the last metadata, on a connection of its own for each `lane`, in the highest version that
        both know, `at_most` if given."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Sources(Protocol):
    """Opens sources."""

    secrets: frozenset[str]
    """Names of the options that are secrets."""

    def open(self, bootstrap_servers: str, options: Mapping[str, str]) -> SourceCluster:
        """Return a source that is reached with its first question. Raises KafkaError, INVALID_REQUEST, for options that
        are unknown, not together, or name files that they may not. For files that cannot be used its text is
        `UNREACHABLE`."""
        ...
