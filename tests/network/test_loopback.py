"""The hosts that are this machine itself."""

from __future__ import annotations

import pytest

from ottla.network.loopback import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "broker-1"])
def test_what_others_may_reach(host: str) -> None:
    """An empty host is every address of the machine."""
    assert not is_loopback(host)
