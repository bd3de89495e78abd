"""What a broker knows of the peer of one connection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ...protocol.session.node_proof import NodeRole, ProvenNode
from ...protocol.settings.security_protocol import SecurityProtocol
from .principal import NODE, Principal

NODE_MECHANISM: Final = "OTTLA-NODE"
"""How nodes authenticate themselves to each other: by the proof in AuthenticateNode."""


@dataclass(frozen=True, slots=True)
class PeerSession:
    """Who the peer is, and how that was found out.

    It never changes: (re-)authentication puts another session in its place. So a request keeps the session that it
    came under, and what was worked out for one session is not used for another.
    """

    principal: Principal
    host: str
    """The peer's address; never an IPv4 address in IPv6's form."""
    listener: str
    """The name of the listener that the peer connected to."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: str | None = None
    """By which the peer authenticated itself; None without SASL and without a node's proof."""
    expires_at: float | None = None
    """When authentication has to be repeated, in seconds on the event loop's clock; None: never."""
    token_id: str | None = None
    """The delegation token that the peer logged in with; it acts as the owner of that."""
    node: ProvenNode | None = None
    """Which node of the cluster the peer has proved to be."""

    @property
    def user(self) -> str:
        """Whom quotas count the peer as."""
        return self.principal.name

    @property
    def is_metered(self) -> bool:
        """Whether quotas hold for it: they are for clients, not for who has proved to be a node."""
        return self.node is None

    def is_broker(self, broker_id: int) -> bool:
        """Whether the peer has proved to be this broker."""
        return self.node is not None and self.node.node_id == broker_id

    def of_node(self, node: ProvenNode) -> PeerSession:
        """The session after the peer has proved to be a node, or a person who holds the cluster secret."""
        name = str(node.node_id) if node.role is NodeRole.BROKER else node.role.name.lower()
        return replace(
            self,
            principal=Principal(NODE, name),
            mechanism=NODE_MECHANISM,
            expires_at=None,
            token_id=None,
            node=node,
        )
