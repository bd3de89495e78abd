"""The certificates of a quorum node, or of a command that speaks to one, by the settings of a node's file.

Files are looked at every `ssl.reload.interval.ms`, and upon SIGHUP, as those of brokers are.
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
    """Of one node. The certificates are other ones after they were renewed."""

    def __init__(self, properties: Mapping[str, str], settings: NodeTlsSettings, host: str | None) -> None:
        """`host`: where others dial the node; None if nobody does. Raises ConfigError for what cannot be used."""
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
        """Look at files from now on."""
        self._reloads.start()

    async def close(self) -> None:
        """Look no longer."""
        await self._reloads.close()

    def look_again(self) -> None:
        """Read everything anew. What cannot be used changes nothing."""
        self._reloads.look_again()

    def expiries(self, now_s: float) -> dict[str, float]:
        """Seconds until the certificate of each listener expires; `now_s` since 1970."""
        return self._reloads.expiries(now_s)

    @property
    def failures(self) -> int:
        """Times that what was read anew could not be used."""
        return self._reloads.failures


def quorum_tls(properties: Mapping[str, str], host: str | None) -> QuorumTls | None:
    """Of a node that others dial at `host`, None for one that only dials, by its settings; None where the quorum's
    listener has no TLS. Raises ConfigError for what cannot be used."""
    settings = node_tls_settings(properties)
    return None if settings is None else QuorumTls(properties, settings, host)
