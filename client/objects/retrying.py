"""A store that repeats attempts of another store, which failed for the moment, until its patience ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol, TypeVar

from ..failures import ObjectExists, ObjectStoreFailed, ObjectStoreUnavailable
from .store import StoredObject, check_folder, check_key, check_range, is_key

T = TypeVar("T")

ATTEMPT_S: Final = 60.0
"""The time in seconds after which an attempt counts as failed."""
_FIRST_WAIT_S: Final = 0.05
_WAIT_MAX_S: Final = 5.0
_GROWTH: Final = 2.0


class AttemptingStore(Protocol):
    """A store that makes each call once. It raises ObjectStoreUnavailable for a failure that time may cure."""

    @property
    def url(self) -> str:
        """The URL of the store, without credentials."""

    async def put_new(self, key: str, data: bytes) -> None:
        """Create an object durably."""

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return a range of an object, up to its end."""

    def pages(self, folder: str) -> AsyncIterator[list[StoredObject]]:
        """Yield the objects of a folder, some at a time."""

    async def delete(self, key: str) -> None:
        """Delete an object, if there is one."""


class RetryingStore:
    """A store that repeats the attempts of another store. It checks keys and ranges, so the other store need not."""

    def __init__(self, store: AttemptingStore, patience_s: float) -> None:
        """Keep the store. `patience_s`: the time in seconds after which a call gives up, with all its attempts."""
        self._store = store
        self._patience_s = patience_s

    @property
    def url(self) -> str:
        """The URL of the store, without credentials."""
        return self._store.url

    async def put_new(self, key: str, data: bytes) -> None:
        """Create an object durably. Raises ObjectExists; see ObjectStore."""
        check_key(key)
        attempts = 0

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            try:
                await self._store.put_new(key, data)
            except ObjectExists:
                # An earlier attempt may have created the object, although its answer was lost.
                if attempts == 1 or await self._store.get(key, 0, len(data) + 1) != data:
                    raise

        await self._repeated(f"the object {key} was not created", attempt)

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return a range of an object, up to its end. Raises ObjectMissing."""
        check_key(key)
        check_range(start, end)
        return await self._repeated(
            f"the object {key} was not read", lambda: self._store.get(key, start, end)
        )

    async def list(self, folder: str = "") -> AsyncIterator[StoredObject]:
        """Yield the objects of a folder, each once. Files of other programs, whose names are no keys, are left out."""
        check_folder(folder)
        seen: set[str] = set()
        pages = self._store.pages(folder)

        async def next_page() -> list[StoredObject] | None:
            nonlocal pages
            try:
                return await anext(pages, None)
            except BaseException:
                # A cancelled attempt, too, has ended the listing. From the beginning: known objects are left out.
                pages = self._store.pages(folder)
                raise

        while (page := await self._repeated("the objects were not listed", next_page)) is not None:
            for found in page:
                if found.key not in seen and is_key(found.key):
                    seen.add(found.key)
                    yield found

    async def delete(self, key: str) -> None:
        """Delete an object; without effect if there is none."""
        check_key(key)
        await self._repeated(f"the object {key} was not deleted", lambda: self._store.delete(key))

    async def _repeated(self, failed: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the first attempt that succeeds. Raises ObjectStoreFailed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        wait_s = _FIRST_WAIT_S
        count = 0
        while True:
            count += 1
            try:
                async with asyncio.timeout_at(min(deadline, loop.time() + ATTEMPT_S)):
                    return await attempt()
            except ObjectStoreUnavailable as error:
                reason: Exception = error
            except TimeoutError as error:
                reason = error
            except ObjectStoreFailed as error:
                raise type(error)(f"{failed}: {error} ({self.url})") from error
            pause_s = wait_s * random.uniform(0.5, 1)
            if loop.time() + pause_s >= deadline:
                said = str(reason) or "no answer in time"
                raise ObjectStoreUnavailable(
                    f"{failed} within {self._patience_s:g} s, in {count} attempts: {said} ({self.url})"
                ) from reason
            await asyncio.sleep(pause_s)
            wait_s = min(wait_s * _GROWTH, _WAIT_MAX_S)
