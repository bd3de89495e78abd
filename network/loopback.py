"""Whether a host is this machine itself, so that nobody on a network is between."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """By its address, or by the name localhost. Other names may lead anywhere; an empty host is every address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
