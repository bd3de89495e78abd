"""Addresses of hosts, without the memory that Python's tables for non-ASCII names take."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import Any

Found = tuple[int, int, int, str, Any]
"""A result of `socket.getaddrinfo`: family, kind, protocol, canonical name, address."""

WILDCARDS = ("", "0.0.0.0", "::")
"""Hosts of a listener that stand for every address of this machine. No client can dial such an address."""

_LABEL_BYTES_MAX = 63
_MAPPED_PREFIX = "::ffff:"


def addresses_of(host: str | None, port: int, flags: int = 0) -> Sequence[Found]:
    """Return the TCP addresses of `host`; None stands for every address or for this machine, depending on `flags`.
    Raises OSError, and UnicodeError for an impossible host name.

    `socket.getaddrinfo` encodes every text by IDNA, whose tables take a megabyte of memory. IDNA leaves ASCII names
    unchanged, so such names are passed as bytes.
    """
    known = None if host is None else not_to_encode(host)
    return socket.getaddrinfo(known, port, type=socket.SOCK_STREAM, flags=flags)


def not_to_encode(host: str) -> str | bytes:
    """Return the host as bytes if IDNA would leave it unchanged, else as text for IDNA to encode or refuse."""
    labels = host.removesuffix(".").split(".")
    is_plain = host.isascii() and all(0 < len(label) <= _LABEL_BYTES_MAX for label in labels)
    return host.encode("ascii") if is_plain else host


def listening_host(host: str) -> str:
    """Return the host that a socket binds for a listener; an empty host is every address of both families.

    `::` with `allow_both_families` takes IPv4, too. A machine without IPv6 gets the wildcard of IPv4.
    """
    if host:
        return host
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def allow_both_families(unbound: socket.socket) -> None:
    """Let an IPv6 socket accept IPv4 as well, whatever the system's default is. Other sockets are left unchanged."""
    if unbound.family == socket.AF_INET6:
        unbound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)


def normalized_host(address: str) -> str:
    """Return a peer's address in the form of its own family: `10.0.0.1` for `::ffff:10.0.0.1`."""
    if not address.startswith(_MAPPED_PREFIX):
        return address
    mapped = IPv6Address(address).ipv4_mapped
    return address if mapped is None else str(mapped)
