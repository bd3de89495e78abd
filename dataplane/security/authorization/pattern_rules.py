"""The ACLs of a resource pattern, by principal and host."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from ....protocol.cluster.acls import ANYBODY, ANYTHING, AclPermission
from .masks import allowed_by, denied_by


@dataclass(frozen=True, slots=True)
class Requester:
    """The principal of a request, and its host. ACLs match them by text, and networks match the number of the
    address."""

    principal: str
    host: str
    """Canonical text of an address; any other text matches only ACLs for every host."""
    family: int = 0
    """Version of the address, 4 or 6; 0 if the host is no address."""
    number: int = 0
    bits: int = 0

    @classmethod
    def at(cls, principal: str, host: str) -> Requester:
        """Return a requester for a host whose text is canonical."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return cls(principal, host)
        return cls(principal, host, address.version, int(address), address.max_prefixlen)


class Said:
    """The operations in the ACLs for some hosts, as bits: `denied` and `allowed` as the ACLs name them, `denies` and
    `allows` with the operations that they imply."""

    __slots__ = ("allowed", "allows", "denied", "denies")

    def __init__(self) -> None:
        self.denied = 0
        self.allowed = 0
        self.denies = 0
        self.allows = 0

    def change(self, operation: int, permission: int, present: bool) -> None:
        """Add or remove an ACL."""
        bit = 1 << operation
        if permission == AclPermission.DENY:
            self.denied = self.denied | bit if present else self.denied & ~bit
            self.denies = denied_by(self.denied)
        else:
            self.allowed = self.allowed | bit if present else self.allowed & ~bit
            self.allows = allowed_by(self.allowed)


class _Hosts:
    """The ACLs of a principal, by host."""

    __slots__ = ("by_text", "networks")

    def __init__(self) -> None:
        self.by_text: dict[str, Said] = {}
        #: by family and number of network bits; then by the value of these bits: the text of the network, and its
        #: operations
        self.networks: dict[tuple[int, int], dict[int, tuple[str, Said]]] = {}

    def change(self, host: str, operation: int, permission: int, present: bool) -> None:
        if "/" in host:
            self._change_network(host, operation, permission, present)
            return
        said = self.by_text.get(host)
        if said is None:
            said = self.by_text[host] = Said()
        said.change(operation, permission, present)
        if not (said.denied or said.allowed):
            del self.by_text[host]

    def _change_network(self, host: str, operation: int, permission: int, present: bool) -> None:
        network = ipaddress.ip_network(host)
        key = (network.version, network.prefixlen)
        bits = int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
        by_bits = self.networks.setdefault(key, {})
        _, said = by_bits.setdefault(bits, (host, Said()))
        said.change(operation, permission, present)
        if not (said.denied or said.allowed):
            del by_bits[bits]
        if not by_bits:
            del self.networks[key]

    def about(self, requester: Requester) -> Iterator[tuple[str, Said]]:
        """Yield the operations of the ACLs that match the requester's host, each with the host as the ACLs name it."""
        for text in (requester.host, ANYTHING):
            said = self.by_text.get(text)
            if said is not None:
                yield text, said
        yield from self.about_networks(requester)

    def about_networks(self, requester: Requester) -> Iterator[tuple[str, Said]]:
        """Yield the operations of the ACLs for networks that the requester's host is in, each with the network's
        text."""
        for (family, length), by_bits in self.networks.items():
            if family == requester.family:
                found = by_bits.get(requester.number >> (requester.bits - length))
                if found is not None:
                    yield found


class PatternRules:
    """All ACLs of a resource pattern."""

    __slots__ = ("_by_principal",)

    def __init__(self) -> None:
        self._by_principal: dict[str, _Hosts] = {}

    def __bool__(self) -> bool:
        """True if there is any ACL."""
        return bool(self._by_principal)

    def knows(self, principal: str) -> bool:
        """Return whether an ACL names this principal."""
        return principal in self._by_principal

    def change(self, principal: str, host: str, operation: int, permission: int, present: bool) -> None:
        """Add or remove an ACL."""
        hosts = self._by_principal.get(principal)
        if hosts is None:
            hosts = self._by_principal[principal] = _Hosts()
        hosts.change(host, operation, permission, present)
        if not (hosts.by_text or hosts.networks):
            del self._by_principal[principal]

    def masks(self, requester: Requester) -> tuple[int, int]:
        """Return the operations that the ACLs deny to a requester, and those that they allow. It is a faster form of
        `about`."""
        denied = allowed = 0
        for principal in (requester.principal, ANYBODY):
            hosts = self._by_principal.get(principal)
            if hosts is None:
                continue
            for text in (requester.host, ANYTHING):
                said = hosts.by_text.get(text)
                if said is not None:
                    denied |= said.denies
                    allowed |= said.allows
            if hosts.networks:
                for _, said in hosts.about_networks(requester):
                    denied |= said.denies
                    allowed |= said.allows
        return denied, allowed

    def about(self, requester: Requester) -> Iterator[tuple[str, str, Said]]:
        """Yield the ACLs that match a requester: principal and host as the ACLs name them, and their operations."""
        for principal in (requester.principal, ANYBODY):
            hosts = self._by_principal.get(principal)
            if hosts is not None:
                for host, said in hosts.about(requester):
                    yield principal, host, said
