"""The clusters that brokers copy, reached by the client. It is loaded with the first mirror, and not before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ...protocol.nearest import nearest
from ...protocol.schema import Message, Request

if TYPE_CHECKING:
    from ...client.connections.cluster import Cluster
    from ...client.security.security import Security

ResponseT = TypeVar("ResponseT", bound=Message)

_CLIENT_ID: Final = "ottla-mirror"
_SWITCHES: Final = ("ssl_check_hostname", "sasl_token_auth")
FOR_PROGRAMS: Final = ("ssl_context", "sasl_oauth_token_provider", "sasl_oauthbearer_extensions")
"""Options that are no texts."""


class ClientSource:
    """One source."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """As `SourceCluster.metadata`."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        answer = await self._cluster.ask_any(request)
        self._cluster.metadata.update(answer)
        return answer

    async def ask(
        self,
        broker_id: int,
        message: Request[ResponseT],
        *,
        lane: str = "",
        timeout_ms: float | None = None,
        at_most: int | None = None,
    ) -> ResponseT:
        """As `SourceCluster.ask`."""
        connection = await self._cluster.connection(broker_id, lane)
        version = connection.version_for(type(message), at_most)
        return await connection.request(message, version=version, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """As `SourceCluster.close`."""
        await self._cluster.close()


class ClientSources:
    """Opens them."""

    secrets = frozenset({"ssl_password", "sasl_plain_password", "sasl_oauthbearer_client_secret"})

    def open(self, bootstrap_servers: str, options: Mapping[str, str]) -> ClientSource:
        """As `Sources.open`."""
        from ...client.connections.cluster import Cluster

        try:
            return ClientSource(Cluster(bootstrap_servers, client_id=_CLIENT_ID, security=_security(options)))
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _security(options: Mapping[str, str]) -> Security | None:
    """Raises ValueError for options that are unknown, or not together."""
    from dataclasses import fields

    from ...client.security.options import SecurityOptions
    from ...client.security.security import security_of

    known = [one.name for one in fields(SecurityOptions) if one.name not in FOR_PROGRAMS]
    given: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            meant = nearest(name, known)
            raise ValueError(
                f"a source has no option {name!r}" + (f": did you mean {meant!r}?" if meant else "")
            )
        if name in _SWITCHES and value.lower() not in ("true", "false"):
            raise ValueError(f"{name} is true or false, not {value!r}")
        given[name] = value.lower() == "true" if name in _SWITCHES else value
    return security_of(SecurityOptions(**given))
