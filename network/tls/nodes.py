"""TLS between nodes: both ends show a certificate, and each is asked whether its owner may act as a node.

It lies under the links of nodes, whose proofs and keys stay as they are.
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
    """The owner of a certificate may not act as a node. The text names it, and is meant for it, too."""


class NodeTls(Protocol):
    """Of one node. Contexts and certificates may change while it runs."""

    @property
    def accepting(self) -> ssl.SSLContext:
        """For connections that come in. It requires certificates."""

    @property
    def dialling(self) -> ssl.SSLContext:
        """For connections to other nodes."""

    def check_peer(self, certificate: bytes | None) -> None:
        """Raises NodeRefused for the owner of a certificate, in DER, that may not act as a node."""


class RenewedNodeTls(NodeTls, Protocol):
    """Looks after its certificates while the node runs."""

    def start(self) -> None:
        """Look at files from now on."""

    async def close(self) -> None:
        """Look no longer."""

    def look_again(self) -> None:
        """Read everything anew. What cannot be used changes nothing."""

    def expiries(self, now_s: float) -> dict[str, float]:
        """Seconds until the certificate of each listener expires; `now_s` since 1970."""

    @property
    def failures(self) -> int:
        """Times that what was read anew could not be used."""


def check_certificate(transport: asyncio.Transport, tls: NodeTls) -> None:
    """Raises NodeRefused for a peer whose certificate is of no node."""
    tls.check_peer(transport.get_extra_info("ssl_object").getpeercert(binary_form=True))


def tls_problem(error: BaseException) -> str:
    """Why TLS was not begun, or was ended, for people."""
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
