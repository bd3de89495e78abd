"""The network between hosts: links with delay, loss and cuts, ports, names, and a record of faults.

Streams are in `streams.py` and `flow.py`, datagrams in `datagrams.py`; this module has their common parts. A link is
one direction between two hosts. Every figure is drawn from the machine's randomness; `counts` says how often each fault
really occurred.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .descriptors import Descriptor
from .host import Host

if TYPE_CHECKING:
    from .datagrams import DatagramSocket
    from .machine import Machine
    from .process import Process
    from .streams import StreamEnd, StreamSocket

Place = str | Host
Places = Place | Iterable[Place]
Endpoint = tuple[str, int]

GOOD_DELAY_S, GOOD_JITTER_S = 50e-6, 150e-6
"""Delays of a good local network."""
_LOOPBACK_DELAY_S, _LOOPBACK_JITTER_S = 5e-6, 10e-6
_EPHEMERAL_FIRST, _EPHEMERAL_LAST = 32768, 60999
EVERYWHERE = "0.0.0.0"
LOOPBACK = "127.0.0.1"


class Link:
    """One direction from a host to another. Delays are in seconds, rates from 0 to 1."""

    __slots__ = (
        "bytes_per_s",
        "cut",
        "datagram_duplicate",
        "datagram_loss",
        "datagram_reorder",
        "delay_s",
        "destination",
        "free_at",
        "jitter_s",
        "loss",
    )

    def __init__(self, destination: Host, delay_s: float, jitter_s: float) -> None:
        self.destination = destination
        # : time at which earlier data has left, on a narrow link
        self.free_at = 0.0
        self.set(delay_s, jitter_s)

    def set(self, delay_s: float, jitter_s: float) -> None:
        """Set the delays, and remove all faults."""
        self.delay_s = delay_s
        self.jitter_s = jitter_s
        #: of segments: each one lost comes a retransmission later
        self.loss = 0.0
        self.datagram_loss = 0.0
        self.datagram_duplicate = 0.0
        self.datagram_reorder = 0.0
        self.bytes_per_s: float | None = None
        self.cut = False

    def blocked(self) -> bool:
        """Return whether packets sent now are lost."""
        return self.cut or not self.destination.powered

    def arrival(self, machine: Machine, size: int) -> float:
        """Return the arrival time of `size` bytes that are sent now."""
        start = machine.now
        if self.bytes_per_s is not None:
            self.free_at = start = max(start, self.free_at) + size / self.bytes_per_s
        return start + self.delay_s + self.jitter_s * machine.random.random()


class SocketDescriptor(Descriptor):
    """A socket in the kernel of its host."""

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__(process)
        self.network = network
        self.host = process.host
        #: where it is bound
        self.local: Endpoint | None = None
        self.closed = False
        self._error = 0

    def take_error(self) -> int:
        """Return and clear SO_ERROR, the error since the last call."""
        error, self._error = self._error, 0
        return error

    def raise_error(self) -> None:
        if error := self.take_error():
            raise failure(error)

    def fail(self, error: int) -> None:
        self._error = error
        self.changed()

    def abandon(self, silently: bool) -> None:
        if silently:
            self.network.vanish(self.host)
            self.vanish()
        self.close()

    def vanish(self) -> None:
        """Disappear without notice to the peers, since the host lost power."""

    def close(self) -> None:
        self.closed = True
        super().close()


class Network:
    """All links and ports. Faults name hosts by an address, a name, a host, or several of them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        #: delay and jitter of every link between hosts that has no fault; to be set before there are any
        self.normal_s = (GOOD_DELAY_S, GOOD_JITTER_S)
        #: of each fault, how often it really hit something
        self.counts: Counter[str] = Counter()
        #: what did get through
        self.segments = self.datagrams_delivered = 0
        # : of segments: one read may return other pieces than were written
        self.split_rate = 1 / 16
        self.streams: dict[Endpoint, StreamSocket] = {}
        self.datagrams: dict[Endpoint, DatagramSocket] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._ephemeral: dict[str, int] = {}
        self._orphans: list[StreamEnd] = []

    # ------------------------------------------------------------ faults

    def cut(self, here: Places, there: Places, both: bool = True) -> None:
        """Cut packets from `here` to `there`; with `both`, also in the other direction."""
        pairs = [(a, b) for a in self._hosts(here) for b in self._hosts(there) if a is not b]
        for a, b in pairs:
            self.link(a, b).cut = True
            if both:
                self.link(b, a).cut = True
            self.note(f"{'cut' if both else 'one-way cut'} {a.name}>{b.name}")
        self.counts["cuts" if both else "one-way cuts"] += 1

    def isolate(self, host: Place) -> None:
        """Cut the host off from every other host."""
        self.cut(host, list(self.machine.hosts.values()))

    def heal(self, here: Places | None = None, there: Places | None = None) -> None:
        """End all faults between `here` and `there` in both directions; without arguments, all faults."""
        everywhere = list(self.machine.hosts.values())
        for link in self._between(here or everywhere, there or everywhere, both=True):
            link.set(*self.normal_s)
        self.note("heals")

    def slow(
        self, here: Places, there: Places, delay_s: float, jitter_s: float = 0.0, both: bool = True
    ) -> None:
        """Delay every segment and datagram by `delay_s` and up to `jitter_s` more."""
        for link in self._between(here, there, both):
            link.delay_s, link.jitter_s = delay_s, jitter_s
        self.counts["slow links"] += 1
        self.note(f"slow {delay_s:.6f} {jitter_s:.6f}")

    def lossy(self, here: Places, there: Places, rate: float, both: bool = True) -> None:
        """Lose segments at this rate, which are retransmitted later; lose, duplicate and delay datagrams."""
        for link in self._between(here, there, both):
            link.loss = link.datagram_loss = rate
            link.datagram_duplicate = link.datagram_reorder = rate / 2
        self.note(f"lossy {rate:.6f}")

    def narrow(self, here: Places, there: Places, bytes_per_s: float | None, both: bool = True) -> None:
        """Limit the bandwidth of each link."""
        for link in self._between(here, there, both):
            link.bytes_per_s = bytes_per_s
        self.note(f"narrow {bytes_per_s}")

    def disturb_datagrams(
        self,
        here: Places,
        there: Places,
        *,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        both: bool = True,
    ) -> None:
        """Set the rates of datagram faults."""
        for link in self._between(here, there, both):
            link.datagram_loss, link.datagram_duplicate, link.datagram_reorder = loss, duplicate, reorder
        self.note(f"datagrams {loss:.6f} {duplicate:.6f} {reorder:.6f}")

    # ------------------------------------------------------------ links and names

    def link(self, source: Host, destination: Host) -> Link:
        """Return the link from one host to another, or to itself."""
        key = (source.address, destination.address)
        if (link := self._links.get(key)) is None:
            if source is destination:
                link = Link(destination, _LOOPBACK_DELAY_S, _LOOPBACK_JITTER_S)
            else:
                link = Link(destination, *self.normal_s)
            self._links[key] = link
        return link

    def resolve(self, name: str) -> str | None:
        """Return the address of a name, or None for an unknown name."""
        if name == "localhost":
            return LOOPBACK
        if name in self.machine.hosts or name == EVERYWHERE or name.startswith("127."):
            return name
        return next((address for address, host in self.machine.hosts.items() if host.name == name), None)

    def reach(self, source: Host, address: str) -> Host | None:
        """Return the host that `source` reaches at an address."""
        if address == EVERYWHERE or address.startswith("127."):
            return source
        return self.machine.hosts.get(address)

    def _hosts(self, places: Places) -> list[Host]:
        if isinstance(places, Host):
            return [places]
        if isinstance(places, str):
            address = self.resolve(places)
            if address is None or address not in self.machine.hosts:
                raise ValueError(f"no host is called {places!r}")
            return [self.machine.hosts[address]]
        found = [host for place in places for host in self._hosts(place)]
        return sorted(found, key=lambda host: host.address)

    def _between(self, first: Places, second: Places, both: bool) -> list[Link]:
        pairs = [(a, b) for a in self._hosts(first) for b in self._hosts(second) if a is not b]
        there = [self.link(a, b) for a, b in pairs]
        return there + [self.link(b, a) for a, b in pairs] if both else there

    # ------------------------------------------------------------ ports

    def free_port(self, host: Host, taken: Iterable[Endpoint]) -> int:
        """Return a free ephemeral port. Raises OSError if there is none."""
        for _ in range(_EPHEMERAL_FIRST, _EPHEMERAL_LAST + 1):
            port = self._ephemeral.get(host.address, _EPHEMERAL_FIRST - 1) + 1
            self._ephemeral[host.address] = port = _EPHEMERAL_FIRST if port > _EPHEMERAL_LAST else port
            if (host.address, port) not in taken:
                return port
        raise failure(errno.EADDRNOTAVAIL)

    def claim(self, host: Host, wanted: Endpoint, taken: Iterable[Endpoint]) -> Endpoint:
        """Return the endpoint to which a socket of the host is bound. Raises OSError."""
        address, port = wanted
        if self.reach(host, address) is not host:
            raise failure(errno.EADDRNOTAVAIL)
        if port == 0:
            port = self.free_port(host, taken)
        elif (host.address, port) in taken:
            raise failure(errno.EADDRINUSE)
        return address, port

    # ------------------------------------------------------------ state of the kernels

    def adopt(self, end: StreamEnd) -> None:
        """Keep an end that its process has closed while it still has data to send."""
        self._orphans = [orphan for orphan in self._orphans if not orphan.finished()]
        self._orphans.append(end)

    def vanish(self, host: Host) -> None:
        """Drop all kernel state of a host that has lost power."""
        for orphan in self._orphans:
            if orphan.host is host:
                orphan.vanish()

    def note(self, event: str) -> None:
        self.machine.trace.note(self.machine.now, "network", event)


def failure(number: int) -> OSError:
    """Return Python's exception for an error number."""
    return OSError(number, os.strerror(number))
