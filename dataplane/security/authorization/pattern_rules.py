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
    """The operations that the ACLs of one pattern, principal and host name, as bit masks. `denied` and `allowed` have
    them as the ACLs name them. `denies` and `allows` also have the operations that they imply.
    """

    __slots__ = ("allowed", "allows", "denied", "denies")

    def __init__(self) -> None:
        self.denied = 0
        self.allowed = 0
        self.denies = 0
        self.allows = 0

    def change(self, operation: int, permission: int, present: bool) -> None:
        """Add or remove the operation of an ACL with this permission (ALLOW or DENY)."""
        bit = 1 << operation
        if permission == AclPermission.DENY:
            self.denied = self.denied | bit if present else self.denied & ~bit
            self.denies = denied_by(self.denied)
        else:
            self.allowed = self.allowed | bit if present else self.allowed & ~bit
            self.allows = allowed_by(self.allowed)


class _Hosts:
    """The ACLs that one pattern has for one principal, by host and by network of hosts."""

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
        """Yield a host, as the ACLs name it, and the operations of its ACLs, for each host text that matches the
        requester's address: the address, the wildcard, and networks.
        """
        for text in (requester.host, ANYTHING):
            said = self.by_text.get(text)
            if said is not None:
                yield text, said
        yield from self.about_networks(requester)

    def about_networks(self, requester: Requester) -> Iterator[tuple[str, Said]]:
        """Yield the text of a network and the operations of its ACLs, for each network that has ACLs and contains the
        requester's address.
        """
        for (family, length), by_bits in self.networks.items():
            if family == requester.family:
                found = by_bits.get(requester.number >> (requester.bits - length))
                if found is not None:
                    yield found


class PatternRules:
    """All ACLs of one resource pattern, by principal and host."""

    __slots__ = ("_by_principal",)

    def __init__(self) -> None:
        self._by_principal: dict[str, _Hosts] = {}

    def __bool__(self) -> bool:
        """True if the pattern has any ACL."""
        return bool(self._by_principal)

    def knows(self, principal: str) -> bool:
        """Return whether an ACL names this principal."""
        return principal in self._by_principal

    def change(self, principal: str, host: str, operation: int, permission: int, present: bool) -> None:
        """Add an ACL of this pattern, or remove it if `present` is false."""
        hosts = self._by_principal.get(principal)
        if hosts is None:
            hosts = self._by_principal[principal] = _Hosts()
        hosts.change(host, operation, permission, present)
        if not (hosts.by_text or hosts.networks):
            del self._by_principal[principal]

    def masks(self, requester: Requester) -> tuple[int, int]:
        """Return two bit masks: the operations that the pattern's ACLs deny to a requester, and those that they allow.
        It is a faster form of `about`.
        """
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
        """Yield a principal and a host, as the ACLs name them, and the operations of their ACLs, for each pair that
        matches the requester.
        """
        for principal in (requester.principal, ANYBODY):
            hosts = self._by_principal.get(principal)
            if hosts is not None:
                for host, said in hosts.about(requester):
                    yield principal, host, said
