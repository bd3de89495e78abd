"""Connections of brokers to the source clusters of mirrors; loaded with a broker's first mirror.

The creator of a mirror chooses how the broker connects to the source. So the broker must not lend its own rights: files
come only from `mirror.allowed.paths`, Kerberos tickets of its user are not used, and errors reveal nothing about the
broker's files or network.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...dataplane.mirroring.source import unreachable
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ...protocol.messages.sasl import GSSAPI
from ...protocol.nearest import nearest
from ...protocol.wire.schema import Message, Request

if TYPE_CHECKING:
    from ...client.connections.cluster import Cluster
    from ...client.security.options import SecurityOptions

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Message)

_CLIENT_ID: Final = "ottla-mirror"
_SWITCHES: Final = ("ssl_check_hostname", "sasl_token_auth")
FOR_PROGRAMS: Final = ("ssl_context", "sasl_oauth_token_provider", "sasl_oauthbearer_extensions")
"""Options whose values are not text."""
FILES: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "sasl_kerberos_keytab")
"""Options that name files."""


class ClientSource:
    """A mirror's connection to its source cluster."""

    def __init__(self, broker_id: int, cluster: Cluster, *, asks_for_tokens: bool) -> None:
        """Wrap `cluster`, the connections of broker `broker_id` to the source cluster.

        `asks_for_tokens` is True if an authorization server issues tokens. Its error texts may describe the broker's
        network, so they are logged and not passed on.
        """
        self._broker_id = broker_id
        self._cluster = cluster
        self._asks_for_tokens = asks_for_tokens
        # The last logged failure of each broker of the source; None stands for the source as a whole.
        self._logged: dict[int | None, str] = {}

    async def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Implement `SourceCluster.metadata`."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        with self._discreet(None):
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
        """Implement `SourceCluster.ask`."""
        with self._discreet(broker_id):
            connection = await self._cluster.connection(broker_id, lane)
            version = connection.version_for(type(message), at_most)
            return await connection.request(message, version=version, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Implement `SourceCluster.close`."""
        await self._cluster.close()

    @contextmanager
    def _discreet(self, broker_id: int | None) -> Iterator[None]:
        """Log the reason of a failed connection to the source cluster, and raise an error whose text lacks the reason.

        The reason is the error's cause, for logs.

        A source may name any host and port as its brokers' addresses, so reasons would reveal the broker's network.
        """
        from ...client.failures import (
            AuthenticationFailed,
            ClientError,
            ConnectionLost,
            NoBrokerReachable,
            RequestTimedOut,
            TlsFailed,
        )

        try:
            yield
        except ClientError as error:
            hidden = (ConnectionLost, NoBrokerReachable, RequestTimedOut, TlsFailed)
            if not isinstance(error, hidden) and not (
                self._asks_for_tokens and isinstance(error, AuthenticationFailed)
            ):
                raise
            if self._logged.get(broker_id) != error.message:
                self._logged[broker_id] = error.message
                of_whom = "a source" if broker_id is None else f"broker {broker_id} of a source"
                logger.warning("%s cannot be reached: %r", of_whom, error.message)
            raise type(error)(unreachable(self._broker_id)) from error
        self._logged.pop(broker_id, None)


class ClientSources:
    """A factory of mirrors' connections to their source clusters."""

    secrets = frozenset(
        {"ssl_password", "ssl_keydata", "sasl_plain_password", "sasl_oauthbearer_client_secret"}
    )

    def __init__(self, broker_id: int, allowed_paths: Sequence[Path] = ()) -> None:
        """Keep the id of the broker that copies, and `allowed_paths`, the folders from which a mirror's connection
        options may name files (`mirror.allowed.paths`)."""
        self._broker_id = broker_id
        self._allowed_paths = allowed_paths

    def open(self, bootstrap_servers: str, options: Mapping[str, str]) -> ClientSource:
        """Implement `Sources.open`."""
        from ...client.connections.cluster import Cluster
        from ...client.security.security import security_of

        try:
            read = _options(options)
            self._check_files(options)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        try:
            security = security_of(read)
        except ValueError as error:
            logger.warning("the options of a source cannot be used: %r", str(error))
            raise KafkaError(ErrorCode.INVALID_REQUEST, unreachable(self._broker_id)) from None
        try:
            cluster = Cluster(bootstrap_servers, client_id=_CLIENT_ID, security=security)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        return ClientSource(self._broker_id, cluster, asks_for_tokens=read.sasl_mechanism == "OAUTHBEARER")

    def _check_files(self, options: Mapping[str, str]) -> None:
        """Raise ValueError if a mirror's connection options name a file outside the allowed folders.

        The error does not reveal whether the file exists.
        """
        for name in FILES:
            if name in options and not self._is_allowed(options[name]):
                raise ValueError(
                    f"{name}: brokers read files of a source below mirror.allowed.paths alone. Contents may be sent "
                    "instead: ssl_cadata, ssl_certdata, ssl_keydata"
                )

    def _is_allowed(self, name: str) -> bool:
        path = Path(os.path.normpath(name))
        for folder in self._allowed_paths:
            # Compare names first, so that no file outside the folders is accessed.
            if "\0" not in name and path.is_relative_to(folder):
                try:
                    return path.resolve().is_relative_to(folder.resolve())
                except (OSError, RuntimeError):
                    return False  # The links form a circle.
        return False


def _options(options: Mapping[str, str]) -> SecurityOptions:
    """Return the security options of a mirror's connections to its source.

    Raises ValueError for unknown options and for invalid combinations.
    """
    from ...client.security.options import SecurityOptions

    known = [field.name for field in fields(SecurityOptions) if field.name not in FOR_PROGRAMS]
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
    read = SecurityOptions(**given)
    if read.sasl_mechanism == GSSAPI and read.sasl_kerberos_keytab is None:
        raise ValueError(
            "a source with GSSAPI needs sasl_kerberos_keytab: tickets of the broker's user are not for mirrors"
        )
    return read
