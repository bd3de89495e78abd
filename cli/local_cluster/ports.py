"""Ports of a local cluster: chosen among free ports, or given by the user and then checked."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

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


def free_ports(reserved: list[socket.socket]) -> Generator[int, None, None]:
    """Yield different ports that are free for both TCP and UDP on loopback, and add their reservations to `reserved`.

    Each port stays bound until the iterator closes, and reserved after that. No port lies in the range of outgoing
    connections, which could keep a node from starting again. Raises CommandFailed if no port is left.
    """
    held: list[socket.socket] = []
    try:
        for port in candidate_ports():
            stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            if _can_bind(stream.bind, port) and _can_bind(datagram.bind, port) and (own := reserve(port)):
                held += [stream, datagram]
                reserved.append(own)
                yield port
            else:
                stream.close()
                datagram.close()
        raise CommandFailed(f"no free port for the cluster's nodes on {HOST}: all of them are in use")
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


def _can_bind(bind: Callable[[tuple[str, int]], None], port: int) -> bool:
    try:
        bind((HOST, port))
    except OSError:
        return False
    return True


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


def first_in_use(ports: Iterable[int], patience_s: float = PATIENCE_S) -> int | None:
    """Return the first of these ports that another program keeps in use on loopback, over TCP or UDP, for
    `patience_s`."""
    deadline = time.monotonic() + patience_s
    for port in ports:
        while not _is_free(port):
            if time.monotonic() > deadline:
                return port
            time.sleep(_LOOK_AGAIN_S)
    return None


def _is_free(port: int) -> bool:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram,
    ):
        # Listeners set this option, too: ended connections do not occupy the port.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return _can_bind(stream.bind, port) and _can_bind(datagram.bind, port)
