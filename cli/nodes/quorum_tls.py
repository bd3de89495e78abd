"""TLS certificates for connections between quorum nodes, brokers and commands, by the settings of a node's file.

Files are checked every `ssl.reload.interval.ms`, and upon SIGHUP, as those of brokers are.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...dataplane.security.listener_tls import ListenerTls, ReloadedListener
from ...dataplane.security.node_tls import (
    NodeCertificates,
    NodeTlsSettings,
    node_tls_settings,
)
from ...dataplane.security.tls_reloading import TlsReloads
from ...network.tls.settings import ReachedAs
from ...protocol.settings.config_keys import NODE_KEYS

_RELOAD_INTERVAL = "ssl.reload.interval.ms"


class QuorumTls(NodeCertificates):
    """The TLS certificates of one node for its connections with the quorum, which are replaced when their files
    change."""

    def __init__(self, properties: Mapping[str, str], settings: NodeTlsSettings, host: str | None) -> None:
        """Load the node's certificates.

        `host` is the name under which peers connect to the node; None if it only connects itself. Raises ConfigError
        for unusable files.
        """
        from datetime import UTC, datetime

        from ...dataplane.security.certificate_warnings import node_warnings  # only nodes with TLS need these
        from ...dataplane.security.tls_loading import load_tls

        reached = None if host is None else ReachedAs(host, "where nodes dial it (controller.quorum.voters)")
        self.loaded = load_tls(settings.tls, reached, datetime.now(UTC))
        tls = ListenerTls(self.loaded)
        self.remarks = (*self.loaded.remarks, *node_warnings(self.loaded, settings.principals))
        super().__init__(tls, settings.principals)
        interval = NODE_KEYS[_RELOAD_INTERVAL]
        interval_ms = interval.parse(properties.get(_RELOAD_INTERVAL, "") or interval.default or "")
        assert isinstance(interval_ms, int), "its type says so"
        listener = ReloadedListener(tls, reached, is_between_nodes=True)
        self._reloads = TlsReloads({settings.tls.listener: listener}, lambda: properties, interval_ms)

    def start(self) -> None:
        """Start checking the certificate files for changes."""
        self._reloads.start()

    async def close(self) -> None:
        """Stop checking the certificate files for changes."""
        await self._reloads.close()

    def look_again(self) -> None:
        """Reload all certificate files. Unusable files change nothing."""
        self._reloads.look_again()

    def expiries(self, now_s: float) -> dict[str, float]:
        """Return the seconds until the certificate of each listener expires; `now_s` is in seconds since 1970."""
        return self._reloads.expiries(now_s)

    @property
    def failures(self) -> int:
        """The number of failed reloads of certificate files."""
        return self._reloads.failures


def quorum_tls(properties: Mapping[str, str], host: str | None) -> QuorumTls | None:
    """Return the certificates for connections with the quorum by a node's settings, or None if the quorum's listener
    has no TLS."""
    settings = node_tls_settings(properties)
    return None if settings is None else QuorumTls(properties, settings, host)
