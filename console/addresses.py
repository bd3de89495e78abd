"""Addresses of those who connect, put together to networks that one stranger holds. Pure."""

from __future__ import annotations

import ipaddress

_IPV6_PREFIX = 64
"""A host of IPv6 has so many addresses of its own."""


def network_of(address: str) -> str:
    """Return the address itself, or its /64 network in IPv6. A text that is no address stands for itself."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found.packed, _IPV6_PREFIX), strict=False))
