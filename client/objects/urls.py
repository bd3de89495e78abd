"""The URLs of object stores. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from .store import check_key

SCHEMES: Final = ("file", "s3", "gs", "az", "memory")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,221}", re.ASCII)
FORMS: Final = (
    "file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or memory://NAME"
)


def parsed(url: str) -> tuple[str, str, str]:
    """Return the scheme, the bucket, and the path or prefix of a store's URL. Raises ValueError.

    The error does not repeat the URL if it may have a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(
            f"the URL of an object store is {FORMS}, and its scheme is not {parts.scheme[:20]!r}"
        )
    if "@" in parts.netloc:
        raise ValueError(
            "the URL of an object store has no credentials: they come from the environment, or from a file"
        )
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ValueError(f"the URL of an object store has no ? and no #: {FORMS}")
    if parts.scheme == "file":
        return "file", "", _folder(url, parts.netloc, unquote(parts.path))
    if not _BUCKET.fullmatch(parts.netloc):
        raise ValueError(f"{url!r} does not name a bucket: the forms are {FORMS}")
    prefix = parts.path.strip("/")
    if prefix:
        check_key(prefix)
    return parts.scheme, parts.netloc, prefix


def _folder(url: str, host: str, path: str) -> str:
    if host not in ("", "localhost"):
        raise ValueError(f"{url!r} names the host {host!r}: a folder is file:///FOLDER, with three slashes")
    if "\0" in path or ".." in path.split("/") or not path.strip("/"):
        raise ValueError(f"{url!r} is not the URL of a folder: it has an absolute path without ..")
    return path
