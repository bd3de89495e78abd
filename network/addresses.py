"""Addresses in the form that URLs, listeners and bootstrap servers have. Pure."""

from __future__ import annotations


def host_in_url(host: str) -> str:
    """Return a host as URLs have it: an IPv6 address stands in brackets (RFC 3986, 3.2.2)."""
    return f"[{host}]" if ":" in host else host


def host_port(host: str, port: int) -> str:
    """Return an address such as `10.0.0.1:9092` or `[::1]:9092`."""
    return f"{host_in_url(host)}:{port}"
