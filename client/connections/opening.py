"""The opening of a connection to a broker: TCP, TLS, the broker's versions, the login."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

from ...network.dialing import connected_socket
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...version import __version__
from ..failures import ConnectionLost, RequestTimedOut, TlsFailed
from ..security.security import Security
from ..security.tls_failure import broken_handshake, refused_certificate
from .authenticated import AuthenticatedConnection
from .connection import Connection
from .metadata import BrokerAddress

DEFAULT_TIMEOUT_MS = 30_000


async def connect(
    address: BrokerAddress,
    *,
    client_id: str = "ottla",
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    request_timeout_ms: float = DEFAULT_TIMEOUT_MS,
    security: Security | None = None,
) -> Connection:
    """Open a connection, learn the broker's versions, and log in, each within `timeout_ms`.

    Raises ConnectionLost, RequestTimedOut, TlsFailed or AuthenticationFailed.
    """

    def plain() -> Connection:
        return Connection(address, client_id, request_timeout_ms)

    if security is None:
        connection = await _dialled(address, plain, timeout_ms, None)
    elif (login := security.login) is None:
        connection = await _dialled(address, plain, timeout_ms, security)
    else:
        connection = await _dialled(
            address,
            lambda: AuthenticatedConnection(address, client_id, request_timeout_ms, login),
            timeout_ms,
            security,
        )
    try:
        await _negotiate(connection, timeout_ms)
        if isinstance(connection, AuthenticatedConnection):
            await connection.log_in(timeout_ms)
    except BaseException:
        connection.close()
        raise
    return connection


async def _dialled(
    address: BrokerAddress, make: Callable[[], Connection], timeout_ms: float, security: Security | None
) -> Connection:
    loop = asyncio.get_running_loop()
    tls = None if security is None else security.tls
    host = address.host.partition("%")[0]  # certificates do not contain the zone of an IPv6 address
    sock: socket.socket | None = None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            sock = await connected_socket(address.host, address.port)
            if security is not None:
                security.warn_of_readable_password(_peer(sock))
            if tls is None:
                _, connection = await loop.create_connection(make, sock=sock)
            else:
                _, connection = await loop.create_connection(
                    make, sock=sock, ssl=tls.context(), server_hostname=host
                )
    except TimeoutError:
        begun = (
            "did not accept a connection"
            if sock is None or tls is None
            else "did not finish the TLS handshake"
        )
        raise RequestTimedOut(f"{address} {begun} in time") from None
    except ssl.SSLCertVerificationError as error:
        assert tls is not None
        reason = await refused_certificate(error, host, address.port, tls)
        raise TlsFailed(f"{address}: {reason}") from None
    except ssl.SSLEOFError:
        raise _closed_in_handshake(address) from None
    except ssl.SSLError as error:
        raise TlsFailed(f"{address}: {broken_handshake(error)}") from None
    except OSError as error:
        if sock is not None and tls is not None and isinstance(error, ConnectionError):
            raise _closed_in_handshake(address) from None
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ConnectionLost(f"cannot connect to {address}: {reason}") from None
    return connection


def _closed_in_handshake(address: BrokerAddress) -> ConnectionLost:
    """Return the error for a connection closed in the handshake.

    It is a ConnectionLost, which is retried, as the broker may be stopping.
    """
    return ConnectionLost(
        f"{address} closed the connection in the TLS handshake: maybe this broker does not speak TLS on that port"
    )


def _peer(sock: socket.socket) -> str:
    name = sock.getpeername()
    return str(name[0]) if isinstance(name, tuple) else ""


async def _negotiate(connection: Connection, timeout_ms: float) -> None:
    """Request the broker's versions, first in this client's newest version, then in version 0, which every broker
    supports (KIP-511).
    """
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    version = ApiVersionsRequest.max_version
    response = await connection.request(request, version=version, timeout_ms=timeout_ms)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        offered = [key.max_version for key in response.api_keys if key.api_key == ApiVersionsRequest.api_key]
        version = min([version - 1, *offered])
        response = await connection.request(request, version=max(version, 0), timeout_ms=timeout_ms)
    if response.error_code != ErrorCode.NONE:
        code = ErrorCode.of(response.error_code)
        raise KafkaError(
            code, f"{connection.address} refused to tell its versions (error {response.error_code})"
        )
    connection.versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    if response.finalized_features_epoch >= 0:
        connection.features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }
