"""A store in a bucket of S3, Google Cloud Storage or Azure, or in the memory of this process, by the package obstore.

Credentials and endpoints come from the environment, and from the files that it names, as obstore documents them. They
are never part of a URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from ...extras import installation_of
from ..failures import ObjectExists, ObjectMissing, ObjectStoreFailed, ObjectStoreUnavailable
from .store import StoredObject

if TYPE_CHECKING:
    import obstore.store

_PAGE: Final = 1000
_SAID_MAX: Final = 500
_PERMANENT: Final = (
    "PermissionDeniedError",
    "UnauthenticatedError",
    "NotSupportedError",
    "InvalidPathError",
    "UnknownConfigurationKeyError",
)
"""The errors of obstore that no repeated attempt cures."""
_NO_TLS: Final = "HTTP error: builder error"
_QUERY: Final = re.compile(r"\?[^\s\"')]+")
_NO_RETRIES: Final = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}
"""RetryingStore repeats the attempts, since it notices an object that an attempt without an answer has created."""
_IN_MEMORY: Final[dict[str, Any]] = {}
"""The stores of `memory://`, by name: all clients of this process share them."""


def need_obstore() -> Any:
    """Return the package obstore. Raises ModuleNotFoundError with the command that installs it."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"object stores other than file:// need obstore: {installation_of('objects')}", name="obstore"
        ) from error
    return obstore


def bucket_store(scheme: str, bucket: str, prefix: str, attempt_s: float) -> BucketStore:
    """Return the store of a bucket, below a prefix. Raises ModuleNotFoundError, and ObjectStoreFailed for a wrong
    configuration in the environment."""
    package = need_obstore()
    stores = package.store
    url = f"{scheme}://{bucket}/{prefix}"
    if scheme == "memory":
        return BucketStore(url, _IN_MEMORY.setdefault(f"{bucket}/{prefix}", stores.MemoryStore()))
    kind = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[scheme]
    client = {"timeout": timedelta(seconds=attempt_s), "allow_http": _allows_http()}
    try:
        return BucketStore(
            url, kind(bucket, prefix=prefix or None, client_options=client, retry_config=_NO_RETRIES)
        )
    except package.exceptions.BaseError as error:
        raise ObjectStoreFailed(f"the environment does not say how to reach {url}: {_said(error)}") from None


class BucketStore:
    """A store in a bucket, or in memory. Each call is one attempt."""

    def __init__(self, url: str, store: obstore.store.ObjectStore) -> None:
        self._url = url
        self._store = store
        self._calls = need_obstore()

    @property
    def url(self) -> str:
        """The URL of the bucket and the prefix."""
        return self._url

    async def put_new(self, key: str, data: bytes) -> None:
        """Create an object durably. Raises ObjectExists."""
        with _translated():
            # Several parts could not be created only if the key is free, on all services.
            await self._calls.put_async(self._store, key, data, mode="create", use_multipart=False)

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return a range of an object, up to its end. Raises ObjectMissing."""
        try:
            with _translated():
                found = await self._calls.get_async(self._store, key, options={"range": (start, end)})
                return bytes(await found.bytes_async())
        except ObjectStoreUnavailable:
            # Stores refuse a range behind the end of an object, each with another error.
            with _translated():
                size: int = (await self._calls.head_async(self._store, key))["size"]
            if start < size:
                raise
            return b""

    async def pages(self, folder: str) -> AsyncIterator[list[StoredObject]]:
        """Yield the objects of a folder, some at a time."""
        listing = self._calls.list(self._store, folder or None, chunk_size=_PAGE)
        while True:
            with _translated():
                page = await anext(listing, None)
            if page is None:
                return
            yield [
                StoredObject(found["path"], found["size"], int(found["last_modified"].timestamp() * 1000))
                for found in page
            ]

    async def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        try:
            with _translated():
                await self._calls.delete_async(self._store, key)
        except ObjectMissing:
            pass


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of obstore as errors of the store."""
    exceptions = need_obstore().exceptions
    try:
        yield
    except FileNotFoundError:
        raise ObjectMissing("there is no object with this key") from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise ObjectExists("there is an object with this key") from None
    except exceptions.BaseError as error:
        if _NO_TLS in str(error):
            raise ObjectStoreFailed(
                f"{_said(error)}: an endpoint without TLS needs AWS_ALLOW_HTTP=true"
            ) from None
        permanent = type(error).__name__ in _PERMANENT
        kind = ObjectStoreFailed if permanent else ObjectStoreUnavailable
        raise kind(_said(error)) from None  # The cause may have a token in its URL.


def _allows_http() -> bool:
    """Return whether the environment allows endpoints without TLS; obstore reads this name without options alone."""
    return os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1", "yes")


def _said(error: Exception) -> str:
    """Return the text of an error of obstore, without its debugging information and without tokens in URLs."""
    text = str(error).partition("Debug source:")[0]
    return _QUERY.sub("?...", " ".join(text.split()))[:_SAID_MAX]
