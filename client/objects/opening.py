"""The opening of the store that a URL names."""

from __future__ import annotations

from pathlib import Path

from .bucket import bucket_store
from .folder import FolderStore
from .retrying import ATTEMPT_S, RetryingStore
from .store import ObjectStore
from .urls import parsed


def open_store(url: str, patience_s: float) -> ObjectStore:
    """Return the store that a URL names. Nothing is read or created yet.

    `patience_s`: the time in seconds after which a call gives up, with all its attempts. Raises ValueError for an
    invalid URL, and ModuleNotFoundError if the store needs a package that is missing.
    """
    scheme, place, path = parsed(url)
    if scheme == "file":
        return RetryingStore(FolderStore(Path(path)), patience_s)
    return RetryingStore(bucket_store(scheme, place, path, ATTEMPT_S), patience_s)
