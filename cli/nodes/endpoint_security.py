"""Security of a node's HTTP endpoint: TLS by the settings `metrics.ssl.*`, and bearer tokens.

The settings are those of listeners with the prefix `metrics.`; settings without it do not apply to the endpoint. Files
are checked every `ssl.reload.interval.ms`, and upon SIGHUP. The token file is checked at each request.
"""

from __future__ import annotations

import hmac
import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...network.loopback import is_loopback
from ...network.resolving import WILDCARDS
from ...protocol.session.node_secrets import Secrets, read_secrets
from ...protocol.settings.config_key import ConfigError
from ...protocol.settings.config_keys import NODE_KEYS
from ..failures import CommandFailed

if TYPE_CHECKING:
    from ...dataplane.security.tls_reloading import TlsReloads

TOKEN_FILE: Final = "metrics.bearer.token.file"
_PREFIX: Final = "metrics."
_LISTENER: Final = "metrics.listener"
_RELOAD_INTERVAL: Final = "ssl.reload.interval.ms"


class EndpointTls:
    """The keys and certificates of a node's HTTP endpoint; after a reload `accepting` is another TLS context."""

    def __init__(self, settings: Mapping[str, str], host: str) -> None:
        """Load the keys and certificates that the node's settings name for its HTTP endpoint.

        Raises ConfigError for unusable files.
        """
        from datetime import UTC, datetime

        from ...dataplane.security.listener_tls import ListenerTls, ReloadedListener
        from ...dataplane.security.tls_loading import load_tls
        from ...dataplane.security.tls_reloading import TlsReloads
        from ...dataplane.security.tls_settings import tls_settings
        from ...network.tls.settings import ReachedAs

        own = {name: text for name, text in settings.items() if name.startswith(_PREFIX)}
        reached = None if host in WILDCARDS else ReachedAs(host, f"where it listens ({_LISTENER})")
        loaded = load_tls(tls_settings(own, _LISTENER, prefix=_PREFIX), reached, datetime.now(UTC))
        self.remarks = loaded.remarks
        self._tls = ListenerTls(loaded)
        interval = NODE_KEYS[_RELOAD_INTERVAL]
        interval_ms = interval.parse(settings.get(_RELOAD_INTERVAL, "") or interval.default or "")
        assert isinstance(interval_ms, int), "its type says so"
        listener = ReloadedListener(self._tls, reached, is_between_nodes=False)
        self.reloads: TlsReloads = TlsReloads({_LISTENER: listener}, lambda: own, interval_ms)

    @property
    def accepting(self) -> ssl.SSLContext:
        """The TLS context of new connections to the HTTP endpoint."""
        return self._tls.accepting


class ScrapeTokens:
    """The bearer tokens in a file, one per line; an HTTP request for metrics must show one of them."""

    def __init__(self, path: Path) -> None:
        """Read the bearer tokens from the file.

        Raises ConfigError if there is no token, or a token that can be guessed.
        """
        self._path = path
        self._seen = self._signature()
        self._tokens = read_secrets(TOKEN_FILE, str(path))

    def accept(self, head: bytes) -> bool:
        """Return whether the head of an HTTP request shows a valid bearer token."""
        signature = self._signature()
        if signature is not None and signature != self._seen:
            self._seen = signature
            self._tokens = self._read_again()
        shown = _bearer_token(head)
        accepted = [hmac.compare_digest(shown, token) for token in self._tokens.accepted]
        return bool(shown) and any(accepted)

    def _read_again(self) -> Secrets:
        """Return the bearer tokens of the changed file, or the previous tokens while the file is unusable."""
        try:
            return read_secrets(TOKEN_FILE, str(self._path))
        except ConfigError:
            return self._tokens

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns


class EndpointSecurity:
    """The TLS and the bearer tokens of a node's HTTP endpoint, each of them optional."""

    def __init__(self, settings: Mapping[str, str] | None = None, host: str = "") -> None:
        """Read the node's settings for TLS and tokens of its HTTP endpoint.

        Raises CommandFailed for unusable settings.
        """
        settings = settings or {}
        tokens = settings.get(TOKEN_FILE, "").strip()
        try:
            has_tls = any(name.startswith(f"{_PREFIX}ssl.") and text for name, text in settings.items())
            self.tls = EndpointTls(settings, host) if has_tls else None
            self.tokens = ScrapeTokens(Path(tokens)) if tokens else None
        except ConfigError as error:
            raise CommandFailed(str(error)) from None
        self._host = host

    def remarks(self) -> Iterator[str]:
        """Yield warnings for the operator about an endpoint without TLS or tokens, and about its certificate."""
        if self.tls is not None:
            yield from self.tls.remarks
        if is_loopback(self._host):
            return
        if self.tokens is None:
            yield f"{_LISTENER} serves metrics to every client that reaches {self._host}: {TOKEN_FILE} restricts that"
        elif self.tls is None:
            yield f"{_LISTENER} has no TLS: anyone on the network can read the token ({_PREFIX}ssl.keystore.location)"

    def may_read(self, head: bytes) -> bool:
        """Return whether an HTTP request with this head may read metrics."""
        return self.tokens is None or self.tokens.accept(head)


def _bearer_token(head: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        kind, _, token = value.strip().partition(b" ")
        if name.strip().lower() == b"authorization" and kind.lower() == b"bearer":
            return token.strip()
    return b""
