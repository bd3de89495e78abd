"""Limits by address and network, in the form of `max.connections.per.ip.overrides`: `10.0.0.0/8:100,::1:5`.

Of several networks that contain an address the smallest one counts. Kafka also accepts host names and resolves them at
start. Here an entry is compared with a peer's address, and no name is resolved.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from .config_key import INT_MAX, ConfigError

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _limit(item: str) -> tuple[_Network, int]:
    """Parse an entry, `ADDRESS:NUMBER` or `NETWORK:NUMBER`. Raises ConfigError."""
    place, _, number = item.rpartition(":")
    try:
        network = ipaddress.ip_network(place.strip())
    except ValueError as error:
        raise ConfigError(
            f"{item!r} has to be an address or a network, a colon and a number, like 10.0.0.0/8:100: {error}"
        ) from None
    digits = number.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 10 and int(digits) <= INT_MAX):
        raise ConfigError(f"{item!r} has to end with a number from 0 to {INT_MAX}")
    return network, int(digits)


class AddressLimits:
    """A table of limits by IP address and network, such as a number of connections. A look-up takes the same time for
    any number of entries."""

    def __init__(self, text: str = "") -> None:
        """Parse the limits. Raises ConfigError."""
        # Limits by IP version and length of the prefix, the longest prefix first; then by the network's first address.
        self._networks: dict[tuple[int, int], dict[int, int]] = {}
        for network, most in map(_limit, filter(None, map(str.strip, text.split(",")))):
            of_length = self._networks.setdefault((network.version, network.prefixlen), {})
            of_length[int(network.network_address)] = most
        self._networks = dict(sorted(self._networks.items(), key=lambda entry: -entry[0][1]))

    def __bool__(self) -> bool:
        return bool(self._networks)

    def of(self, address: str) -> int | None:
        """Return the limit of an address; None if no entry contains it."""
        if not self._networks:
            return None
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return None  # the peer's name is no address, as with a socket that has none
        bits, own = parsed.max_prefixlen, int(parsed)
        for (version, length), networks in self._networks.items():
            if version == parsed.version:
                most = networks.get(own >> (bits - length) << (bits - length))
                if most is not None:
                    return most
        return None


NO_ADDRESS_LIMITS: Final = AddressLimits()
