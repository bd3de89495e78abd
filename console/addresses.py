"""Networks of client addresses: each groups the addresses that one host can hold. Pure."""

from __future__ import annotations

import ipaddress

_IPV6_PREFIX = 64
"""The prefix length of an IPv6 network, all of whose addresses one host can hold."""


def network_of(address: str) -> str:
    """Return the address itself, or its /64 network in IPv6. Text that is no address is returned unchanged."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found.packed, _IPV6_PREFIX), strict=False))
