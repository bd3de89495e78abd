"""The interface of an object store, and its keys. Pure."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Protocol

KEY_BYTES_MAX: Final = 1024
"""The longest key, as in S3."""
PART_BYTES_MAX: Final = 255
"""The longest part of a key, as file systems limit names."""
_PART: Final = re.compile(r"[A-Za-z0-9._=-]+", re.ASCII)
_SHOWN: Final = 80


class StoredObject(NamedTuple):
    """An object of a listing."""

    key: str
    size: int
    """The object's size in bytes."""
    modified_ms: int
    """The time at which the store created the object, by the store's clock, in ms since 1970."""


class ObjectStore(Protocol):
    """A store of objects, each with a key such as `orders/2026-11-29/5f0c`.

    Calls raise ObjectStoreFailed, and ValueError for an invalid key or range.
    """

    @property
    def url(self) -> str:
        """The URL of the store, without credentials."""

    async def put_new(self, key: str, data: bytes) -> None:
        """Create an object, which is durable once this returns. Raises ObjectExists if the key is taken.

        A call whose answer was lost is repeated, and succeeds if the object has exactly these bytes. Writers that
        compete for a key therefore write different bytes.
        """

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from `start` up to `end`, or up to the object's end. Raises ObjectMissing."""

    def list(self, folder: str = "") -> AsyncIterator[StoredObject]:
        """Yield the objects whose keys begin with a folder such as `orders/`, in no order."""

    async def delete(self, key: str) -> None:
        """Delete an object; without effect if there is none."""


def check_key(key: str) -> str:
    """Return a valid key.

    A key has parts of letters, digits, `.`, `_`, `=` and `-`, with `/` between them. In a folder no key can begin with
    another key and `/`. Raises ValueError, also for the parts `.` and `..`.
    """
    if not isinstance(key, str):
        raise ValueError(f"the key of an object is a text, not {type(key).__name__}")
    if len(key) > KEY_BYTES_MAX:
        raise ValueError(f"the key of an object has at most {KEY_BYTES_MAX} characters, not {len(key)}")
    for part in key.split("/"):
        if not _PART.fullmatch(part) or part in (".", "..") or len(part) > PART_BYTES_MAX:
            raise ValueError(
                f"the key {_shown(key)} has an invalid part {_shown(part)}: parts have 1 to {PART_BYTES_MAX} of the "
                "characters A-Z a-z 0-9 . _ = - and are not . or .."
            )
    return key


def is_key(key: str) -> bool:
    """Return whether a text is a valid key."""
    try:
        check_key(key)
    except ValueError:
        return False
    return True


def check_folder(folder: str) -> str:
    """Return a valid folder of keys: empty for all keys, or a key with `/` at its end. Raises ValueError."""
    if folder == "":
        return folder
    if not isinstance(folder, str) or not folder.endswith("/"):
        raise ValueError(f"a folder of keys is empty or ends with /, and not {_shown(folder)}")
    check_key(folder[:-1])
    return folder


def check_range(start: int, end: int) -> None:
    """Raise ValueError unless `start` to `end` is a range of at least one byte."""
    if not 0 <= start < end:
        raise ValueError(f"a range of bytes begins at 0 or later and is not empty, not {start} to {end}")


def _shown(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
