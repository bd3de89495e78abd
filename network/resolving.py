"""Addresses of hosts, without what only names beyond ASCII need."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

Found = tuple[int, int, int, str, Any]
"""As `socket.getaddrinfo` gives it: family, kind, protocol, canonical name, address."""

_LABEL_BYTES_MAX = 63


def addresses_of(host: str | None, port: int, flags: int = 0) -> Sequence[Found]:
    """Where TCP reaches `host`; None is every address, or this machine. Raises OSError, and UnicodeError for what
    no host can be called.

    `socket.getaddrinfo` encodes every text by IDNA, whose tables take a megabyte of memory. Names in ASCII stay as they
    are by that, so they are given to it as bytes.
    """
    known = None if host is None else not_to_encode(host)
    return socket.getaddrinfo(known, port, type=socket.SOCK_STREAM, flags=flags)


def not_to_encode(host: str) -> str | bytes:
    """A host as bytes where IDNA leaves it as it is. Of other hosts in ASCII it says what is wrong."""
    labels = host.removesuffix(".").split(".")
    is_plain = host.isascii() and all(0 < len(label) <= _LABEL_BYTES_MAX for label in labels)
    return host.encode("ascii") if is_plain else host
