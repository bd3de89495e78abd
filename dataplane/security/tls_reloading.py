"""The replacement of keys and certificates of running listeners.

They are reloaded when files change, when a setting of the listener changes, or on the signal SIGHUP. New ones are read
and checked completely before one reference is swapped. So after any error the old ones remain in force.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.settings.config_key import ConfigError
from .listener_tls import ReloadedListener
from .tls_settings import TlsSettings, tls_settings

if TYPE_CHECKING:
    from .tls_loading import LoadedTls

logger = logging.getLogger(__name__)

Signature = tuple[tuple[int, int, int] | None, ...]
_NOTHING: Signature = ()
"""The signature of files that have not been used successfully."""


class TlsReloads:
    """The reloads of keys and certificates of a broker's listeners. `properties` returns the settings in force."""

    def __init__(
        self,
        listeners: Mapping[str, ReloadedListener],
        properties: Callable[[], Mapping[str, str]],
        interval_ms: int,
    ) -> None:
        """Files are checked every `interval_ms`; 0 means never."""
        self._listeners = listeners
        self._properties = properties
        self._interval_s = interval_ms / 1000
        self._known = {
            name: _signature(listener.tls.loaded.settings.files) for name, listener in listeners.items()
        }
        self._reminded: dict[str, frozenset[str]] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._errors: dict[str, str] = {}
        """The error of the last reload of each listener that keeps its old keys and certificates."""
        self.failures = 0

    def start(self) -> None:
        """Start checking files."""
        if self._interval_s and self._listeners:
            self._run(self._watch())

    async def close(self) -> None:
        """Stop checking files."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def expiries(self, now_s: float) -> dict[str, float]:
        """Return the seconds until the certificate of each listener expires; `now_s` is in seconds since 1970."""
        return {
            name: listener.tls.loaded.keys.certificate.not_valid_after_utc.timestamp() - now_s
            for name, listener in self._listeners.items()
        }

    async def check(self, properties: Mapping[str, str]) -> None:
        """Raise ConfigError if a listener could not use these settings for its TLS."""
        for name, listener in self._listeners.items():
            if _settings(listener, name, properties) != listener.tls.loaded.settings:
                await asyncio.to_thread(_successor, listener, name, properties)

    def look_again(self) -> None:
        """Reload the keys and certificates of all listeners, whether files have changed or not."""
        for name in self._listeners:
            self._run(self._reload(name))

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Reload the TLS of the listeners whose settings a change of the image affects."""
        if delta.configs:
            self.reconfigured()

    def reconfigured(self) -> None:
        """Reload the TLS of the listeners whose settings have changed."""
        for name, listener in self._listeners.items():
            try:
                changed = _settings(listener, name, self._properties()) != listener.tls.loaded.settings
            except ConfigError:
                changed = True  # The reload logs the error.
            if changed:
                self._run(self._reload(name))

    async def reload(self, name: str) -> None:
        """Reload the keys and certificates of a listener. Raises ConfigError; then the old ones remain in force."""
        listener = self._listeners[name]
        async with self._turn:
            files = listener.tls.loaded.settings.files
            self._known[name] = await asyncio.to_thread(_signature, files)
            loaded = await asyncio.to_thread(_successor, listener, name, self._properties())
            if loaded.settings.files != files:
                self._known[name] = await asyncio.to_thread(_signature, loaded.settings.files)
            listener.tls.loaded = loaded
        for remark in loaded.remarks:
            logger.warning("%s", remark)
        logger.info("listener %s has new keys and certificates", name)

    async def reload_named(self, lower_name: str) -> None:
        """Reload the listener of this name in lower case. A failure is logged, and the old keys and certificates remain
        in force."""
        for name in self._listeners:
            if name.lower() == lower_name:
                await self._reload(name)

    async def _reload(self, name: str, *, logs_repeats: bool = True) -> None:
        """Reload a listener, and log a failure. Without `logs_repeats` a repeated failure is not logged again."""
        try:
            await self.reload(name)
            self._errors.pop(name, None)
        except (ConfigError, OSError, ValueError) as error:
            # Each check tries again: if descriptors or a file system were missing, the files need not change before a
            # retry succeeds.
            self._known[name] = _NOTHING
            if logs_repeats or self._errors.get(name) != str(error):
                self.failures += 1
                logger.error("listener %s goes on with its old keys and certificates: %s", name, error)
            self._errors[name] = str(error)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        """Check the key and certificate files of all listeners periodically. A changed file is used once two checks
        find it equal, since it may be half written.
        """
        seen: dict[str, Signature] = {}
        while True:
            await asyncio.sleep(self._interval_s)
            for name, listener in self._listeners.items():
                found = await asyncio.to_thread(_signature, listener.tls.loaded.settings.files)
                if found != self._known[name] and seen.get(name) == found:
                    await self._reload(name, logs_repeats=False)
                seen[name] = found
                self._remind(name, listener.tls.loaded)

    def _remind(self, name: str, loaded: LoadedTls) -> None:
        """Log the warnings about a listener's certificates that are new since the last call, such as an expiry that
        comes closer.
        """
        from datetime import UTC, datetime

        from .certificate_rollover import validity_warnings

        remarks = validity_warnings(loaded, datetime.now(UTC))
        for remark in remarks - self._reminded.setdefault(name, frozenset(loaded.remarks)):
            logger.warning("%s", remark)
        self._reminded[name] = remarks


def _settings(listener: ReloadedListener, name: str, properties: Mapping[str, str]) -> TlsSettings:
    """Return the listener's TLS settings from `properties`. Raises ConfigError."""
    old = listener.tls.loaded.settings
    return tls_settings(
        properties,
        name,
        asks_for_login=old.asks_for_login,
        between_nodes=old.between_nodes,
        prefix=old.prefix,
    )


def _successor(listener: ReloadedListener, name: str, properties: Mapping[str, str]) -> LoadedTls:
    """Load the listener's TLS from `properties`. Raises ConfigError if it is invalid or must not replace the present
    TLS.
    """
    # It is imported late, since only brokers with TLS listeners need it.
    from datetime import UTC, datetime

    from .certificate_rollover import successor

    return successor(listener, _settings(listener, name, properties), datetime.now(UTC))


def _signature(files: Iterable[Path]) -> Signature:
    """Return inode, size and modification time of each file, which change when the file or a link to it changes; None
    for a missing file.
    """
    found: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)
