"""The address of a local cluster for clients: the bound address, and the name that the brokers advertise.

By default both are loopback, and a broker has one listener. Otherwise it has a second listener, LOCAL, on loopback. The
traffic between brokers and the commands of `ottla up` use this listener, so that only clients need the network.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from ...network.addresses import host_port
from ...network.loopback import is_loopback
from ...network.resolving import WILDCARDS
from ...protocol.settings.security_protocol import SecurityProtocol
from ..arguments.certificate_names import checked_host
from ..failures import CommandFailed, UsageError
from .ports import HOST, is_own_address

LOCAL: Final = "LOCAL"
"""The name of the brokers' listener on loopback."""
LISTEN_OPTION: Final = "--listen"
ADVERTISE_OPTION: Final = "--advertise"
KEYS_OF_TWO_LISTENERS: Final = ("listener.security.protocol.map", "inter.broker.listener.name")
"""Settings that `ottla up` determines itself for brokers with two listeners."""
_LOOPBACK_NAMES: Final = (HOST, "::1", "localhost")


@dataclass(frozen=True, slots=True)
class ClientAddress:
    """The address on which brokers listen for clients, and the name or address that clients dial."""

    listen: str = HOST
    advertise: str = HOST

    @property
    def is_on_network(self) -> bool:
        """True if other machines can reach the brokers."""
        return not is_loopback(self.listen)

    @property
    def has_local_listener(self) -> bool:
        """True if brokers have the second listener, since clients use another address than the cluster itself."""
        return self != ClientAddress()

    @property
    def names(self) -> tuple[str, ...]:
        """The names and addresses in the certificates of the brokers."""
        own = [name for name in (self.advertise, self.listen) if name not in WILDCARDS]
        return tuple(dict.fromkeys((*_LOOPBACK_NAMES, *own)))

    def hosts(self) -> tuple[str, ...]:
        """Return the hosts on which a port must be free, so that a broker can bind it for clients."""
        return (self.listen,) if self.listen in WILDCARDS else tuple(dict.fromkeys((HOST, self.listen)))

    def address(self, port: int) -> str:
        """Return the advertised address with a port, as `host:port`."""
        return host_port(self.advertise, port)

    def listeners(self, protocol: SecurityProtocol, port: int, local_port: int) -> dict[str, str]:
        """Return the settings of a broker's listeners. Clients use `port`, and the cluster itself uses `local_port`."""
        bound = f"{protocol.value}://{host_port(self.listen, port)}"
        advertised = f"{protocol.value}://{self.address(port)}"
        if not self.has_local_listener:
            return {"listeners": bound, "advertised.listeners": advertised}
        local = f"{LOCAL}://{host_port(HOST, local_port)}"
        return {
            "listeners": f"{bound},{local}",
            "advertised.listeners": f"{advertised},{local}",
            "listener.security.protocol.map": f"{protocol.value}:{protocol.value},{LOCAL}:{protocol.value}",
            "inter.broker.listener.name": LOCAL,
        }

    def needed_ports(self, ports: Iterable[int]) -> str | None:
        """Return which of the brokers' `ports` for clients a firewall must let through; None for loopback."""
        if not self.is_on_network:
            return None
        where = "every address of this machine" if self.listen in WILDCARDS else self.listen
        listed = ", ".join(map(str, ports))
        return f"TCP {listed} of {where}, for other machines. All other TCP ports are on loopback"

    def check(self, protocol: SecurityProtocol) -> None:
        """Check that this machine has the address, and that clients of other machines use TLS.

        Raises CommandFailed and UsageError.
        """
        if not is_own_address(self.listen):
            raise CommandFailed(
                f"this machine has no address {self.listen}: {LISTEN_OPTION} takes an address of this machine, or "
                f"0.0.0.0 for all of them, and {ADVERTISE_OPTION} takes the name or address that clients dial"
            )
        if not self.is_on_network or protocol.has_tls:
            return
        harm = (
            "could read, change and delete all records"
            if protocol is SecurityProtocol.PLAINTEXT
            else "between a client and the cluster could read all records"
        )
        raise UsageError(
            f"{LISTEN_OPTION} {self.listen} needs TLS and logins, and clients of this cluster use {protocol.value}: "
            f"everyone on the network {harm}. A new cluster gets both by --secure"
        )


def changed(
    known: ClientAddress, listen: str | None, advertise: str | None, protocol: SecurityProtocol
) -> ClientAddress:
    """Return the address that --listen and --advertise ask for; `known` is the address of the last run,
    and `protocol` that of the cluster's clients.

    Raises UsageError.
    """
    bound = known.listen if listen is None else _address(listen)
    if advertise is not None:
        if "*" in advertise:
            raise UsageError(f"{ADVERTISE_OPTION} takes one name that clients dial, not {advertise!r}")
        return ClientAddress(bound, checked_host(advertise, ADVERTISE_OPTION))
    if listen is None or bound == known.listen:
        return known
    if bound in WILDCARDS:
        raise UsageError(
            f"{LISTEN_OPTION} {listen} stands for every address of this machine, and no client can dial it: "
            f"{ADVERTISE_OPTION} NAME gives the name or address by which clients reach this machine"
            + (
                ""
                if protocol.has_tls
                else ". It also needs TLS and logins: a new cluster gets both by --secure"
            )
        )
    return ClientAddress(bound, bound)


def _address(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        raise UsageError(
            f"{LISTEN_OPTION} takes an address of this machine, such as 10.0.0.1, 0.0.0.0 or ::, not {text!r}; "
            f"{ADVERTISE_OPTION} takes a name"
        ) from None
    if "%" in text:
        raise UsageError(f"{LISTEN_OPTION} {text}: an address with a zone cannot be advertised to clients")
    return str(address)
