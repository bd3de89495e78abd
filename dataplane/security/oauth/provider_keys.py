"""The keys of an authorization server, cached by a broker: fetched periodically, and when a token names an unknown key.

While the server is unreachable, the last keys remain in force.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from ....network.http_get import DOCUMENT_BYTES_MAX, DocumentUnavailable, get_document
from ....network.tls.contexts import client_context
from ....network.tls.failures import TlsUnusable
from ....network.tls.settings import TlsRules
from ....network.tls.stores import load_trust_store
from .settings import KeySource
from .signatures import ALGORITHMS, KeysUnreadable, SigningKeys
from .tokens import Token, TokenRefused, shown

logger = logging.getLogger(__name__)

ASKED_APART_S: Final = 10.0
"""The minimum time in seconds between two fetches that are caused by tokens with unknown keys."""
UNKNOWN_S: Final = 60.0
"""Time in seconds for which a key that was not found is not looked up again."""
_UNKNOWN_MAX: Final = 1000

ReadKeys = Callable[[], Awaitable[bytes]]


class NoKeysYet(Exception):
    """An error: the authorization server has not been reached since the start, so no token can be accepted or
    refused."""


class ProviderKeys:
    """The cached signing keys of one authorization server, which are refreshed periodically."""

    def __init__(self, source: KeySource, read: ReadKeys, now_s: Callable[[], float]) -> None:
        """`read` fetches the key set, and raises DocumentUnavailable. `now_s` is a monotonic clock in seconds."""
        self.source = source
        self._read = read
        self._now_s = now_s
        self._keys: SigningKeys | None = None
        self._read_at_s = 0.0
        self._asked_at_s = float("-inf")
        self._asking: asyncio.Task[bool] | None = None
        self._unknown: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._fails = False

    @property
    def age_s(self) -> float | None:
        """The seconds since the signing keys were last read from the server; None if they never were."""
        return None if self._keys is None else self._now_s() - self._read_at_s

    def __len__(self) -> int:
        return 0 if self._keys is None else len(self._keys)

    def start(self) -> None:
        """Begin to read the signing keys periodically."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Stop reading the signing keys."""
        running = [task for task in (self._task, self._asking) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def check(self, token: Token) -> None:
        """Raise TokenRefused unless a key of the server has signed the token. Raises NoKeysYet if no keys were ever
        read.
        """
        if token.algorithm not in ALGORITHMS:
            raise TokenRefused(
                f"its algorithm is {shown(token.algorithm)}, there are {', '.join(ALGORITHMS)}"
            )
        if self._keys is None and self._asking is not None:
            await asyncio.shield(self._asking)
        if self._keys is None:
            raise NoKeysYet(f"no keys could be read from {self.source.url} since the start")
        verdict = self._keys.judge(token)
        if verdict is None:
            verdict = await self._judge_by_new_keys(token)
        if verdict is None:
            named = "no key" if token.key_id is None else f"no key {shown(token.key_id)}"
            raise TokenRefused(f"there is {named} for {token.algorithm} at {self.source.url}")
        if not verdict:
            raise TokenRefused("its signature is wrong")

    async def _judge_by_new_keys(self, token: Token) -> bool | None:
        """Read the server's keys again, and return whether one of them has signed the token. Returns None if it is too
        early to read them, or no key has the token's key id.
        """
        name = token.key_id or ""
        now = self._now_s()
        waits = now - self._asked_at_s < ASKED_APART_S or self._unknown.get(name, now) > now
        if (waits and self._asking is None) or not await asyncio.shield(self._refresh()):
            return None
        assert self._keys is not None
        verdict = self._keys.judge(token)
        if verdict is None:
            self._remember_unknown(name)
        return verdict

    def _remember_unknown(self, name: str) -> None:
        now = self._now_s()
        if len(self._unknown) >= _UNKNOWN_MAX:
            self._unknown = {each: until for each, until in self._unknown.items() if until > now}
        if len(self._unknown) < _UNKNOWN_MAX:
            self._unknown[name] = now + UNKNOWN_S

    async def _keep(self) -> None:
        backoff_ms = self.source.backoff_ms
        while True:
            if await asyncio.shield(self._refresh()):
                backoff_ms = self.source.backoff_ms
                await asyncio.sleep(self.source.refresh_ms / 1000)
            else:
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, max(self.source.backoff_max_ms, self.source.backoff_ms))

    def _refresh(self) -> asyncio.Task[bool]:
        """Return a task that reads the signing keys from the server and returns whether that succeeded. Concurrent
        callers share the task.
        """
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._read_keys())
            self._asking.add_done_callback(self._asked)
        return self._asking

    def _asked(self, _task: asyncio.Task[bool]) -> None:
        self._asking = None

    async def _read_keys(self) -> bool:
        self._asked_at_s = self._now_s()
        try:
            keys = SigningKeys.read(await self._read())
        except (DocumentUnavailable, KeysUnreadable) as error:
            self._report(str(error))
            return False
        self._keys, self._read_at_s = keys, self._now_s()
        self._report("")
        return True

    def _report(self, failure: str) -> None:
        """Log the first of several consecutive failures to read the keys, and the success after them. `failure` is
        empty after a success.
        """
        if failure and not self._fails:
            left = (
                "until then nobody can log in by OAUTHBEARER" if self._keys is None else "the last ones count"
            )
            logger.warning("no keys from %s: %s; %s", self.source.url, failure, left)
        elif self._fails and not failure:
            logger.info("there are keys from %s again: %d", self.source.url, len(self))
        self._fails = bool(failure)


def reader_of(source: KeySource) -> ReadKeys:
    """Return a function that reads the key set of a source, from its file or by HTTP."""
    url = urlsplit(source.url)
    if url.scheme == "file":
        return lambda: asyncio.to_thread(_read_file, Path(unquote(url.path)))

    async def read() -> bytes:
        tls = await asyncio.to_thread(_trusting, source) if url.scheme == "https" else None
        return await get_document(source.url, tls)

    return read


def _trusting(source: KeySource) -> ssl.SSLContext:
    """Return a context for the source's server. It is created each time, as the file with trusted certificates may have
    changed."""
    try:
        trusted = None if source.trusted is None else load_trust_store(source.trusted)
        return client_context(TlsRules(), None, trusted)
    except TlsUnusable as error:
        raise DocumentUnavailable(str(error)) from None


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise DocumentUnavailable(error.strerror or str(error)) from None
    if len(content) > DOCUMENT_BYTES_MAX:
        raise DocumentUnavailable(f"it is larger than {DOCUMENT_BYTES_MAX} bytes")
    return content
