"""Addresses in URLs and listeners: an IPv6 address stands in brackets, wherever an address is written."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from ottla.cli.local_cluster.client_address import ClientAddress
from ottla.console.security import ListenAddress
from ottla.network.addresses import host_in_url, host_port
from ottla.protocol.settings.security_protocol import SecurityProtocol


@pytest.mark.parametrize(
    ("host", "in_url"),
    [
        ("broker-1", "broker-1"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "[::1]"),
        ("2001:db8::7", "[2001:db8::7]"),
        ("::ffff:10.0.0.1", "[::ffff:10.0.0.1]"),
    ],
)
def test_a_url_gives_its_host_back(host: str, in_url: str) -> None:
    assert host_in_url(host) == in_url
    assert host_port(host, 9092) == f"{in_url}:9092"
    parts = urlsplit(f"http://{host_port(host, 9092)}")
    assert (parts.hostname, parts.port) == (host, 9092)


def test_addresses_of_the_console_and_of_local_clusters_have_brackets() -> None:
    assert ListenAddress("2001:db8::7", 0).in_url(9280) == "[2001:db8::7]:9280"
    assert ListenAddress("2001:db8::7", 9280).origins == ("http://[2001:db8::7]:9280",)
    listeners = ClientAddress("::", "2001:db8::7").listeners(SecurityProtocol.SSL, 9092, 19092)
    assert listeners["listeners"] == "SSL://[::]:9092,LOCAL://127.0.0.1:19092"
    assert listeners["advertised.listeners"] == "SSL://[2001:db8::7]:9092,LOCAL://127.0.0.1:19092"
