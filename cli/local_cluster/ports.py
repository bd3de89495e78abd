"""Ports of a local cluster: chosen among free ports, or given by the user and then checked."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ...network.resolving import allow_both_families
from ..failures import CommandFailed

HOST = "127.0.0.1"
OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_DYNAMIC_PORT = 49152
"""The lowest port of outgoing connections by RFC 6335, used where the system does not report its own range."""
LOWEST_PORT, HIGHEST_PORT = 10_000, 65_535
PORTS_TO_CHOOSE_FROM = 1_000
PATIENCE_S = 5.0
"""Seconds for which a port may still belong to a stopping node of the previous run."""
_LOOK_AGAIN_S = 0.05
_KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM)


def free_ports(reserved: list[socket.socket], hosts: Sequence[str] = (HOST,)) -> Generator[int, None, None]:
    """Yield different ports that are free for both TCP and UDP on all `hosts`, and add their reservations to
    `reserved`.

    Each port stays bound until the iterator closes, and reserved after that. No port lies in the range of outgoing
    connections, which could keep a node from starting again. Raises CommandFailed if no port is left.
    """
    held: list[socket.socket] = []
    try:
        for port in candidate_ports():
            with ExitStack() as bound:
                wanted = [(host, kind) for host in hosts for kind in _KINDS]
                sockets = [bound.enter_context(_socket(host, kind)) for host, kind in wanted]
                addresses = [(host, port) for host, _ in wanted]
                if all(map(_can_bind, sockets, addresses)) and (own := reserve(port)):
                    bound.pop_all()
                    held += sockets
                    reserved.append(own)
                    yield port
        raise CommandFailed(
            f"no free port for the cluster's nodes on {' and '.join(hosts)}: all of them are in use"
        )
    finally:
        for held_socket in held:
            held_socket.close()


def candidate_ports() -> list[int]:
    """Return the ports that servers may use in random order, so that concurrent runs seldom try the same port."""
    ports = _ports_of_servers()
    return random.sample(ports, len(ports))


def _ports_of_servers() -> range:
    """Return the unprivileged ports below the system's range of outgoing connections, or all ports if few lie below."""
    try:
        first_outgoing = int(OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first_outgoing = LOWEST_DYNAMIC_PORT
    if first_outgoing < LOWEST_PORT + PORTS_TO_CHOOSE_FROM:
        return range(LOWEST_PORT, HIGHEST_PORT + 1)
    return range(LOWEST_PORT, first_outgoing)


def _socket(host: str, kind: socket.SocketKind) -> socket.socket:
    """Return a socket for an address. For `::` it takes IPv4 as well, as a listener does."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
    allow_both_families(made)
    return made


def _can_bind(unbound: socket.socket, address: tuple[str, int]) -> bool:
    try:
        unbound.bind(address)
    except OSError:
        return False
    return True


def is_own_address(host: str) -> bool:
    """Return whether this machine has the address, so that a node can listen there."""
    try:
        with _socket(host, socket.SOCK_STREAM) as unbound:
            return _can_bind(unbound, (host, 0))
    except OSError:  # A machine without IPv6 cannot make the socket.
        return False


def reserve(port: int) -> socket.socket | None:
    """Reserve a port among all `ottla up` of this machine until the returned socket is closed; None if it is reserved
    already.

    The reservation is an abstract socket name, which needs no file.
    """
    if not sys.platform.startswith("linux"):
        return socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM
        )  # Other systems have no abstract socket names.
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0ottla-port-{port}")
    except OSError:
        name.close()
        return None
    return name


def first_in_use(
    addresses: Iterable[tuple[str, int]], patience_s: float = PATIENCE_S
) -> tuple[str, int] | None:
    """Return the first of these addresses, host and port, that another program keeps in use for `patience_s`, over TCP
    or UDP."""
    deadline = time.monotonic() + patience_s
    for address in addresses:
        while not _is_free(address):
            if time.monotonic() > deadline:
                return address
            time.sleep(_LOOK_AGAIN_S)
    return None


def _is_free(address: tuple[str, int]) -> bool:
    host, _ = address
    with _socket(host, socket.SOCK_STREAM) as stream, _socket(host, socket.SOCK_DGRAM) as datagram:
        # Listeners set this option, too: ended connections do not occupy the port.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return _can_bind(stream, address) and _can_bind(datagram, address)
