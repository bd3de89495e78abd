"""The TLS of the quorum's listener, on which quorum nodes accept connections, and which every node dials.

`listener.security.protocol.map` enables it: `CONTROLLER:SSL`. Keys and certificates are configured as for any listener,
and `ottla.node.principals` lists the principals of nodes' certificates. Clients' certificates are always required.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...network.tls.nodes import NodeRefused
from ...network.tls.settings import ClientAuth
from ...protocol.cluster.authorizer_settings import listed_principals
from ...protocol.settings.config_fields import default_text
from ...protocol.settings.config_key import ConfigError
from ...protocol.settings.config_listeners import LISTENER_PREFIX, PROTOCOL_MAP, mapped_protocols
from ...protocol.settings.security_protocol import SecurityProtocol
from .listener_tls import ListenerTls
from .tls_settings import CLIENT_AUTH, TlsSettings, tls_settings

PRINCIPALS: Final = "ottla.node.principals"


@dataclass(frozen=True, slots=True)
class NodeTlsSettings:
    """A node's TLS settings for the quorum's listener, and the principals of certificates that it accepts as nodes."""

    tls: TlsSettings
    principals: frozenset[str]


def node_tls_settings(properties: Mapping[str, str]) -> NodeTlsSettings | None:
    """Return a node's TLS settings for the quorum's listener; None if that listener has no TLS. Raises ConfigError that
    names the key.
    """
    name = quorum_listener(properties)
    protocol = _protocol_of(name, properties)
    principals = listed_principals(properties, PRINCIPALS)
    if protocol is SecurityProtocol.PLAINTEXT:
        if principals:
            raise ConfigError(
                f"{PRINCIPALS} is given, and the quorum's listener has no TLS: {PROTOCOL_MAP} must have {name}:SSL"
            )
        return None
    if protocol is not SecurityProtocol.SSL:
        raise ConfigError(
            f"{PROTOCOL_MAP}: the quorum's listener {name} is {protocol}: it must be SSL or PLAINTEXT, as nodes log in "
            "by the cluster secret"
        )
    client_auth = f"{LISTENER_PREFIX}{name.lower()}.{CLIENT_AUTH}"
    asked = properties.get(client_auth, "").strip() or ClientAuth.REQUIRED.value
    if asked != ClientAuth.REQUIRED.value:
        raise ConfigError(f"{client_auth} is {asked!r}: it must be required, as all nodes show certificates")
    settings = tls_settings(properties, name, between_nodes=True)
    if settings.trusted is None:
        raise ConfigError(
            f"the quorum's listener {name} speaks TLS and believes no certificate: give "
            f"{LISTENER_PREFIX}{name.lower()}.ssl.truststore.location, or ssl.truststore.location for all listeners"
        )
    if not principals:
        raise ConfigError(
            f"the quorum's listener {name} speaks TLS: {PRINCIPALS} has to name whose certificates are of nodes, like "
            "User:CN=quorum-1,O=Example;User:CN=broker-1,O=Example"
        )
    return NodeTlsSettings(settings, principals)


def quorum_listener(properties: Mapping[str, str]) -> str:
    """Return the name of the listener on which quorum nodes accept connections: the first of
    `controller.listener.names`, or its default.
    """
    return properties.get("controller.listener.names", "").split(",")[0].strip() or default_text(
        "controller.listener.names"
    )


class NodeCertificates:
    """The TLS contexts for connections between nodes, and the check that a peer's certificate belongs to a node."""

    def __init__(self, tls: ListenerTls, principals: frozenset[str]) -> None:
        """The keys and certificates of `tls` may be replaced at any time."""
        self._tls = tls
        self._principals = principals

    @property
    def accepting(self) -> ssl.SSLContext:
        """The TLS context for connections that other nodes open to this node."""
        return self._tls.accepting

    @property
    def dialling(self) -> ssl.SSLContext:
        """The TLS context for connections that this node opens to other nodes."""
        return self._tls.dialling

    def check_peer(self, certificate: bytes | None) -> None:
        """Raise NodeRefused unless the principal of a peer's certificate (DER; None without one) is among those that
        may act as nodes.
        """
        from .principal_mapping import NoMatchingRule  # loaded late: only nodes with TLS need it

        if certificate is None:
            raise NodeRefused("the other end shows no certificate")
        try:
            principal = str(self._tls.principal_of(certificate))
        except NoMatchingRule as error:
            raise NodeRefused(f"the certificate names no principal: {error}") from None
        except ValueError as error:
            raise NodeRefused(f"the subject of the certificate cannot be read: {error}") from None
        if principal not in self._principals:
            raise NodeRefused(f"{principal} may not act as a node: it is not among {PRINCIPALS}")


def _protocol_of(name: str, properties: Mapping[str, str]) -> SecurityProtocol:
    protocol = mapped_protocols(properties).get(name)
    if protocol is None:
        return SecurityProtocol(name) if name in tuple(SecurityProtocol) else SecurityProtocol.PLAINTEXT
    return protocol
