"""Names in ASCII are resolved as ever, without the tables of IDNA."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from ottla.network.resolving import addresses_of, listening_host, normalized_host

WITHOUT_TABLES = """
import sys
from ottla.network.resolving import addresses_of
addresses_of("127.0.0.1", 1), addresses_of("::1", 1), addresses_of(None, 1), addresses_of("localhost", 1)
print("stringprep" in sys.modules)
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", None])
def test_addresses_are_those_that_the_system_gives(host: str | None) -> None:
    assert addresses_of(host, 9092) == socket.getaddrinfo(host, 9092, type=socket.SOCK_STREAM)


def test_tables_of_unicode_are_not_loaded_for_ascii() -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_TABLES], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said == "False\n"


@pytest.mark.parametrize("host", ["x" * 64, "a..b", ".a"])
def test_what_no_host_can_be_called_is_told_as_by_idna(host: str) -> None:
    with pytest.raises(UnicodeError, match="label"):
        addresses_of(host, 1)


def test_names_beyond_ascii_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: asked.append(host) or [])
    assert addresses_of("bücher.example", 1) == []
    assert asked == ["bücher.example"], "the system encodes it"


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:a00:1", "10.0.0.1"),
        ("::ffff:0:a00:1", "::ffff:0:a00:1"),
        ("::1", "::1"),
        ("fe80::1%lo", "fe80::1%lo"),
    ],
)
def test_an_address_has_one_text(address: str, host: str) -> None:
    assert normalized_host(address) == host


def test_a_listener_without_a_host_takes_both_families() -> None:
    assert listening_host("") == ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    assert [listening_host(host) for host in ("0.0.0.0", "127.0.0.1", "::1", "host")] == [
        "0.0.0.0",
        "127.0.0.1",
        "::1",
        "host",
    ]
