"""The TLS of a listener: the contexts of new connections, and the principals of certificates."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...network.tls.settings import ReachedAs
from .distinguished_names import subject_name
from .principal import ANONYMOUS, USER, Principal

if TYPE_CHECKING:
    from .tls_loading import LoadedTls


class ListenerTls:
    """The TLS contexts of a listener, which can be replaced while it runs by setting `loaded`. Established connections
    keep their contexts.
    """

    def __init__(self, loaded: LoadedTls) -> None:
        self.loaded = loaded

    @property
    def accepting(self) -> ssl.SSLContext:
        """The TLS context for connections that this listener accepts."""
        return self.loaded.accepting

    @property
    def dialling(self) -> ssl.SSLContext:
        """The TLS context for connections to this listener of other brokers."""
        return self.loaded.dialling

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return the principal of a certificate in DER. Raises NoMatchingRule, and ValueError for a subject that cannot
        be read."""
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self.loaded.mapping.name_of(subject_name(certificate)))


@dataclass(frozen=True, slots=True)
class ReloadedListener:
    """A listener whose keys and certificates are reloaded while it runs."""

    tls: ListenerTls
    reached: ReachedAs | None
    """The address of the listener for other programs; None if no program dials it, or the name is unknown."""
    is_between_nodes: bool
    """True if nodes dial each other there, with the same keys and certificates."""


def reached_by_clients(advertised_host: str) -> ReachedAs:
    """Return the advertised host of a broker's listener as the address that its certificate is checked against."""
    return ReachedAs(advertised_host, "which clients are told (advertised.listeners)")
