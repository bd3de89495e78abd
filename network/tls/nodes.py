"""TLS between nodes: both ends show a certificate, and each end checks whether the other's owner may act as a node.

This TLS lies under the nodes' links, whose proofs and keys are unaffected by it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol

from .handshake import is_sudden_end, reason_of

NOTHING_SAID = "it did not begin TLS, which this port expects: has it no TLS for the quorum's listener?"
CLOSED_EARLY = (
    "it closed the connection as TLS began: it may have no TLS for the quorum's listener, or not believe this node's "
    "certificate. Its log says why"
)


class NodeRefused(Exception):
    """The owner of a certificate may not act as a node. The text names the owner and is also sent to it."""


class NodeTls(Protocol):
    """The TLS contexts of a broker or quorum node for its links to other nodes. Contexts and certificates may change
    while the node runs."""

    @property
    def accepting(self) -> ssl.SSLContext:
        """Context for incoming connections. It requires certificates."""

    @property
    def dialling(self) -> ssl.SSLContext:
        """Context for connections to other nodes."""

    def check_peer(self, certificate: bytes | None) -> None:
        """Raise NodeRefused if the owner of a certificate (in DER) may not act as a node."""


class RenewedNodeTls(NodeTls, Protocol):
    """The TLS contexts of a node that reads its key and certificate files again whenever they change."""

    def start(self) -> None:
        """Begin to watch the key and certificate files for changes."""

    async def close(self) -> None:
        """Stop watching the key and certificate files."""

    def look_again(self) -> None:
        """Read all key and certificate files again. If their content is unusable, the previous certificates stay in
        use."""

    def expiries(self, now_s: float) -> dict[str, float]:
        """Return the seconds until each listener's certificate expires; `now_s` counts from 1970."""

    @property
    def failures(self) -> int:
        """Number of times that changed key or certificate files were unusable."""


def check_certificate(transport: asyncio.Transport, tls: NodeTls) -> None:
    """Raise NodeRefused if the owner of the peer's certificate on this TLS connection may not act as a node."""
    tls.check_peer(transport.get_extra_info("ssl_object").getpeercert(binary_form=True))


def tls_problem(error: BaseException) -> str:
    """Return a readable reason for an error that prevented or ended a TLS connection."""
    if is_sudden_end(error):
        return CLOSED_EARLY
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the other end's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = reason_of(error)
        if error.reason in (
            "WRONG_VERSION_NUMBER",
            "HTTP_REQUEST",
            "RECORD_LAYER_FAILURE",
            "PACKET_LENGTH_TOO_LONG",
        ):
            return f"the other end does not speak TLS on this connection ({reason})"
        if "alert" in reason:
            return f"TLS: the other end refuses this node's certificate, or what it offers ({reason})"
        return f"TLS: {reason}"
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return NOTHING_SAID
    return f"TLS was not begun: {error}" if str(error) else CLOSED_EARLY
