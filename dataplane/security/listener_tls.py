"""The TLS of one listener: what new connections begin with, and whom their certificates name."""

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
    """Established connections keep what they began with, whatever is put in the place of `loaded`."""

    def __init__(self, loaded: LoadedTls) -> None:
        self.loaded = loaded

    @property
    def accepting(self) -> ssl.SSLContext:
        """For connections that come in."""
        return self.loaded.accepting

    @property
    def dialling(self) -> ssl.SSLContext:
        """For connections to this listener of other brokers."""
        return self.loaded.dialling

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Whom a certificate in DER names. Raises NoMatchingRule, and ValueError for a subject that cannot be read."""
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self.loaded.mapping.name_of(subject_name(certificate)))


@dataclass(frozen=True, slots=True)
class ReloadedListener:
    """A listener whose TLS may be replaced."""

    tls: ListenerTls
    reached: ReachedAs | None
    """None if nobody dials it, or nobody knows by which name."""
    is_between_nodes: bool
    """Nodes dial each other there, by the same keys and certificates."""


def told_to_clients(advertised_host: str) -> ReachedAs:
    """How the listener of a broker is reached."""
    return ReachedAs(advertised_host, "which clients are told (advertised.listeners)")
