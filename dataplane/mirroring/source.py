"""Interface of the connections to the cluster that is copied. The program that starts brokers supplies an
implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from ...protocol.messages.metadata import MetadataResponse
from ...protocol.wire.schema import Message, Request

ResponseT = TypeVar("ResponseT", bound=Message)


def unreachable(broker_id: int) -> str:
    """Return the error text for every failure that a broker finds in its files and on the network.

    It is a single text, so that a client cannot learn from it which files and ports exist.
    """
    return (
        f"broker {broker_id} cannot reach the source as it is described. "
        f"The reason is in the log of broker {broker_id}: "
        f"the file ottla-data/logs/broker-{broker_id}.log with 'ottla up', or its standard error"
    )


class SourceCluster(Protocol):
    """The connections to the source cluster of a mirror. Each request raises KafkaError if there is no answer."""

    async def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Return the brokers and these topics, or all topics for None. The request creates no topic."""
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
        """Send a request to a broker of the last metadata, in the highest version that both sides know, or at most
        `at_most`. Each `lane` has a separate connection."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Sources(Protocol):
    """A factory of connections to source clusters."""

    secrets: frozenset[str]
    """Names of the options that are secrets."""

    def open(self, bootstrap_servers: str, options: Mapping[str, str]) -> SourceCluster:
        """Return the connections to a source cluster; its first request connects.

        Raises KafkaError, INVALID_REQUEST, for options that are unknown, incomplete, or name forbidden files. For files
        that cannot be used its text is `unreachable`.
        """
        ...
