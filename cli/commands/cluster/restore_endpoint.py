"""The address at which the brokers of a cluster reach a restoration, and certificates for both sides.

The certificates are made for one restoration, and their keys are gone with it. So only the brokers of the cluster can
read the backup through the address.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ....client.backup.restore import RestoreEndpoint
from ...certificate_authority import CertificateOwner, create_authority
from ...failures import CommandFailed, UsageError
from ...files import write_atomically

_DAYS: Final = 365
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_ANY_PORT: Final = 9


@contextmanager
def endpoint_for(listen: str | None, broker: str) -> Iterator[RestoreEndpoint]:
    """Bind an address, and yield it with its certificates until the end of the block.

    `listen` is HOST or HOST:PORT; None stands for the address of this machine on the way to `broker`, a host. Raises
    UsageError and CommandFailed.
    """
    host, port = (_own_address(broker), 0) if listen is None else _parsed(listen)
    try:
        listening = socket.create_server((host, port), family=_family(host, port))
    except OSError as error:
        raise CommandFailed(f"--listen: {host}:{port} cannot be bound: {error.strerror or error}") from None
    with listening, TemporaryDirectory(prefix="ottla-restore-") as folder:
        yield _with_certificates(host, listening, Path(folder))


def _with_certificates(host: str, listening: socket.socket, folder: Path) -> RestoreEndpoint:
    now = datetime.now(UTC)
    authority = create_authority(folder, "restoration", now, _DAYS)
    own = folder / "restoration.pem"
    write_atomically(own, authority.issue(CertificateOwner("restoration", (host,)), now).text, mode=0o600)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own)
    tls.load_verify_locations(cadata=authority.text)
    tls.verify_mode = ssl.CERT_REQUIRED
    key, begin, certificate = authority.issue(CertificateOwner("brokers"), now).text.partition(_CERTIFICATE)
    options = {
        "security_protocol": "SSL",
        "ssl_cadata": authority.text,
        "ssl_certdata": begin + certificate,
        "ssl_keydata": key,
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
        raise CommandFailed(
            f"there is no way to {broker} ({error.strerror or error}): --listen HOST says at which address of this "
            "machine the brokers reach it"
        ) from None


def _family(host: str, port: int) -> socket.AddressFamily:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]


def _parsed(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or listen.endswith("]"):
        host, port = listen, "0"
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"--listen takes HOST or HOST:PORT, not {listen!r}")
    return host.strip("[]"), int(port)
