"""The identity of a connection's peer, as the broker knows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ...protocol.session.node_proof import NodeRole, ProvenNode
from ...protocol.settings.security_protocol import SecurityProtocol
from .principal import NODE, Principal

NODE_MECHANISM: Final = "OTTLA-NODE"
"""The mechanism by which nodes authenticate themselves to each other: the proof in AuthenticateNode."""


@dataclass(frozen=True, slots=True)
class PeerSession:
    """The identity of a connection's peer: its principal, its host, and the means of its authentication.

    A session never changes: each authentication replaces it by another. So a request keeps the session of its arrival,
    and results for one session are not used for another.
    """

    principal: Principal
    host: str
    """The peer's address; never an IPv4 address in IPv6's form."""
    listener: str
    """The name of the listener that the peer connected to."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: str | None = None
    """Mechanism by which the peer authenticated itself; None without SASL and without a node's proof."""
    expires_at: float | None = None
    """Time on the event loop's clock at which the peer must authenticate again; None for never."""
    token_id: str | None = None
    """The delegation token that the peer logged in with; the peer acts as the token's owner."""
    node: ProvenNode | None = None
    """The node of the cluster that the peer has proved to be."""

    @property
    def user(self) -> str:
        """The user whose quotas apply to the peer: the name of its principal."""
        return self.principal.name

    @property
    def is_metered(self) -> bool:
        """True if quotas apply to the peer. They are for clients, not for proved nodes."""
        return self.node is None

    def is_broker(self, broker_id: int) -> bool:
        """Return whether the peer has proved to be this broker."""
        return self.node is not None and self.node.node_id == broker_id

    def of_node(self, node: ProvenNode) -> PeerSession:
        """Return the session after the peer has proved to be a node, or an operator who holds the cluster secret."""
        name = str(node.node_id) if node.role is NodeRole.BROKER else node.role.name.lower()
        return replace(
            self,
            principal=Principal(NODE, name),
            mechanism=NODE_MECHANISM,
            expires_at=None,
            token_id=None,
            node=node,
        )
