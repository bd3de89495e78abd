"""The address at which the brokers of a cluster reach a restoration, and certificates for both sides.

The certificates are made for one restoration, and their keys are gone with it. So only the brokers of the cluster can
read the backup through the address.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ....network.addresses import host_port
from ....network.tls.issuing import CertificateOwner, new_issuer
from ....network.tls.memory_file import in_memory
from ...failures import BackupRefused

_NAME: Final = "restoration"
_DAYS: Final = 365
_ANY_PORT: Final = 9
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class RestoreEndpoint:
    """The address at which the target's brokers reach the restoration, and the certificates of both sides."""

    host: str
    listening: socket.socket
    """A socket that is bound to a port of the host."""
    tls: ssl.SSLContext
    """The server's certificate, and the demand for the brokers' certificate."""
    options: Mapping[str, str]
    """The options with which brokers connect."""

    @property
    def port(self) -> int:
        """The port at which the server listens."""
        return int(self.listening.getsockname()[1])

    @property
    def address(self) -> str:
        """The address in the form of bootstrap servers."""
        return host_port(self.host, self.port)


def listen_address(listen: str) -> tuple[str, int]:
    """Return the host and the port of HOST or HOST:PORT; port 0 is for any free port. Raises ValueError."""
    host, colon, port = listen.rpartition(":")
    if not colon or listen.endswith("]") or (":" in host and not host.endswith("]")):
        host, port = listen, "0"
    if not host.strip("[]") or not (port.isascii() and port.isdecimal()) or int(port) > _PORT_MAX:
        raise ValueError(f"listen is HOST or HOST:PORT, not {listen!r}")
    return host.strip("[]"), int(port)


@contextmanager
def endpoint_for(listen: tuple[str, int] | None, broker: str) -> Iterator[RestoreEndpoint]:
    """Bind an address, and yield it with its certificates until the end of the block.

    `listen` is a host and a port; None stands for the address of this machine on the way to `broker`, a host. Raises
    BackupRefused for an address that cannot be bound, and for a broker without a way to it.
    """
    host, port = (_own_address(broker), 0) if listen is None else listen
    try:
        listening = socket.create_server((host, port), family=_family(host, port))
    except OSError as error:
        raise BackupRefused(
            f"the address {host_port(host, port)} for the brokers cannot be bound: {error.strerror or error}"
        ) from None
    with listening:
        yield _with_certificates(host, listening)


def _with_certificates(host: str, listening: socket.socket) -> RestoreEndpoint:
    now = datetime.now(UTC)
    issuer = new_issuer(f"Ottla {_NAME}", now, _DAYS)
    own = issuer.issue(CertificateOwner(_NAME, (host,)), now, _DAYS)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with in_memory(own.text.encode()) as path:
        tls.load_cert_chain(path)
    tls.load_verify_locations(cadata=issuer.text)
    tls.verify_mode = ssl.CERT_REQUIRED
    brokers = issuer.issue(CertificateOwner("brokers"), now, _DAYS)
    options = {
        "security_protocol": "SSL",
        "ssl_cadata": issuer.text,
        "ssl_certdata": brokers.certificate,
        "ssl_keydata": brokers.key,
    }
    return RestoreEndpoint(host, listening, tls, options)


def _own_address(broker: str) -> str:
    """Return the address of this machine on the way to a host. Nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(broker, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise BackupRefused(
            f"there is no way to {broker} ({error.strerror or error}): `listen` gives the address of this machine at "
            "which the brokers reach it"
        ) from None


def _family(host: str, port: int) -> socket.AddressFamily:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
