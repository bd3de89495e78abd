"""A test for hosts that are this machine itself, which no network separates from the caller."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether `host` is a loopback address or the name localhost.

    Other names may lead anywhere. An empty host stands for every address, so it is not loopback.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
