"""New keys and certificates for listeners that run.

They come when files change, when a setting of the listener changes, or when the process is told to look (SIGHUP). What
is new is read and checked whole before one reference is swapped. So whatever is wrong with it, the old stays in force.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...protocol.settings.config_key import ConfigError
from .listener_tls import ReloadedListener
from .tls_settings import TlsSettings, tls_settings

if TYPE_CHECKING:
    from .tls_loading import LoadedTls

logger = logging.getLogger(__name__)

Signature = tuple[tuple[int, int, int] | None, ...]
_NOTHING: Signature = ()
"""Of no files that have been used."""


class TlsReloads:
    """Looks after the listeners of a broker. `properties` are the settings in force."""

    def __init__(
        self,
        listeners: Mapping[str, ReloadedListener],
        properties: Callable[[], Mapping[str, str]],
        interval_ms: int,
    ) -> None:
        """Files are looked at every `interval_ms`; 0: never."""
        self._listeners = listeners
        self._properties = properties
        self._interval_s = interval_ms / 1000
        self._known = {name: _signature(one.tls.loaded.settings.files) for name, one in listeners.items()}
        self._reminded: dict[str, frozenset[str]] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: dict[str, str] = {}
        """Why a listener goes on with its old ones, where it does."""
        self.failures = 0

    def start(self) -> None:
        """Look at files from now on."""
        if self._interval_s and self._listeners:
            self._run(self._watch())

    async def close(self) -> None:
        """Look no longer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def expiries(self, now_s: float) -> dict[str, float]:
        """Seconds until the certificate of each listener expires; `now_s` since 1970."""
        return {
            name: one.tls.loaded.keys.certificate.not_valid_after_utc.timestamp() - now_s
            for name, one in self._listeners.items()
        }

    async def check(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigError if a listener could not go on with these settings."""
        for name, listener in self._listeners.items():
            if _settings(listener, name, properties) != listener.tls.loaded.settings:
                await asyncio.to_thread(_successor, listener, name, properties)

    def look_again(self) -> None:
        """Read everything anew, whether it has changed or not."""
        for name in self._listeners:
            self._run(self._reload(name))

    def reconfigured(self) -> None:
        """Settings have changed: listeners whose own have are loaded anew."""
        for name, listener in self._listeners.items():
            try:
                changed = _settings(listener, name, self._properties()) != listener.tls.loaded.settings
            except ConfigError:
                changed = True  # which loading tells
            if changed:
                self._run(self._reload(name))

    async def reload(self, name: str) -> None:
        """Read the keys and certificates of a listener anew. Raises ConfigError, and the old stay in force."""
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
        """Reload the listener of this name in lower case. A failure is logged, and the old stay in force."""
        for name in self._listeners:
            if name.lower() == lower_name:
                await self._reload(name)

    async def _reload(self, name: str, *, tells_again: bool = True) -> None:
        """Without `tells_again` a failure is told once."""
        try:
            await self.reload(name)
            self._told.pop(name, None)
        except (ConfigError, OSError, ValueError) as error:
            # Each look tries again: where descriptors or a file system were short, the files need not change for that.
            self._known[name] = _NOTHING
            if tells_again or self._told.get(name) != str(error):
                self.failures += 1
                logger.error("listener %s goes on with its old keys and certificates: %s", name, error)
            self._told[name] = str(error)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        """What has changed is used once it has stayed the same from one look to the next: it may be half written."""
        seen: dict[str, Signature] = {}
        while True:
            await asyncio.sleep(self._interval_s)
            for name, listener in self._listeners.items():
                found = await asyncio.to_thread(_signature, listener.tls.loaded.settings.files)
                if found != self._known[name] and seen.get(name) == found:
                    await self._reload(name, tells_again=False)
                seen[name] = found
                self._remind(name, listener.tls.loaded)

    def _remind(self, name: str, loaded: LoadedTls) -> None:
        """Of certificates that expire soon, once for each step."""
        from datetime import UTC, datetime

        from .certificate_rollover import validity_warnings

        remarks = validity_warnings(loaded, datetime.now(UTC))
        for remark in remarks - self._reminded.setdefault(name, frozenset(loaded.remarks)):
            logger.warning("%s", remark)
        self._reminded[name] = remarks


def _settings(listener: ReloadedListener, name: str, properties: Mapping[str, str]) -> TlsSettings:
    """Raises ConfigError."""
    old = listener.tls.loaded.settings
    return tls_settings(
        properties,
        name,
        asks_for_login=old.asks_for_login,
        between_nodes=old.between_nodes,
        prefix=old.prefix,
    )


def _successor(listener: ReloadedListener, name: str, properties: Mapping[str, str]) -> LoadedTls:
    """Raises ConfigError."""
    # loaded late: only brokers with TLS listeners need it
    from datetime import UTC, datetime

    from .certificate_rollover import successor

    return successor(listener, _settings(listener, name, properties), datetime.now(UTC))


def _signature(files: Iterable[Path]) -> Signature:
    """What changes when a file does, also behind a link; None for what is not there."""
    found: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)
