"""`max.connections.per.ip.overrides`: limits of addresses and networks."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.settings.address_limits import AddressLimits
from ottla.protocol.settings.config_key import ConfigError
from ottla.protocol.settings.config_keys import NODE_KEYS


def test_the_smallest_network_that_holds_an_address_counts() -> None:
    limits = AddressLimits("0.0.0.0/0:9, 10.0.0.0/8:8,10.1.0.0/16:0,10.1.2.3:7,::1:5,fe80::/10:4,")
    expected = {
        "10.1.2.3": 7, "10.1.2.4": 0, "10.9.9.9": 8, "11.0.0.1": 9, "::1": 5, "::2": None, "fe80::9%eth0": 4,
        "": None,
    }  # fmt: skip
    assert {address: limits.of(address) for address in expected} == expected
    assert not AddressLimits("")


@given(
    st.dictionaries(st.tuples(st.integers(0, 7), st.integers(29, 32)), st.integers(0, 9), max_size=12),
    st.integers(0, 7),
)
def test_looking_up_is_searching(given_limits: dict[tuple[int, int], int], host: int) -> None:
    networks = {
        ipaddress.ip_network((0x0A000000 + first, length), strict=False): most
        for (first, length), most in given_limits.items()
    }
    address = ipaddress.ip_address(0x0A000000 + host)
    holding = {network.prefixlen: most for network, most in networks.items() if address in network}
    limits = AddressLimits(",".join(f"{network}:{most}" for network, most in networks.items()))
    assert limits.of(str(address)) == (holding[max(holding)] if holding else None)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("10.0.0.1", "has to be an address or a network, a colon and a number"),
        ("localhost:5", "'localhost' does not appear to be an IPv4 or IPv6 network"),
        ("10.0.0.1/8:5", "10.0.0.1/8 has host bits set"),
        ("10.0.0.1:x", "has to end with a number from 0 to 2147483647"),
        ("10.0.0.1:-1", "has to end with a number"),
        ("10.0.0.1:2147483648", "has to end with a number"),
    ],
)
def test_what_is_no_limit_of_an_address_is_named(text: str, names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        NODE_KEYS["max.connections.per.ip.overrides"].parse(f"10.0.0.2:1,{text}")
