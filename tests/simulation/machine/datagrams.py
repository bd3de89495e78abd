"""UDP: datagrams that may be lost, duplicated or late, and the refusals that a connected socket hears."""

from __future__ import annotations

import errno
from collections import deque
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from .network import EVERYWHERE, LOOPBACK, Endpoint, Network, SocketDescriptor, failure

if TYPE_CHECKING:
    from .host import Host
    from .process import Process

_RECEIVE_BUFFER_BYTES = 208 << 10
_DATAGRAM_BYTES_MAX = 65507
_LATE_S = (0.001, 0.02)


class DatagramSocket(SocketDescriptor):
    """A UDP socket of a process."""

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__(network, process)
        self.peer: Endpoint | None = None
        self._received: deque[tuple[bytes, Endpoint]] = deque()
        self._unread = 0

    # ------------------------------------------------------------ the process

    def readable(self) -> bool:
        return bool(self._received) or bool(self._error)

    def bind(self, wanted: Endpoint) -> None:
        """Bind the socket. Raises OSError."""
        if self.local is not None:
            raise failure(errno.EINVAL)
        ports = self.network.datagrams
        self.local = self.network.claim(self.host, wanted, ports)
        ports[self.host.address, self.local[1]] = self

    def connect(self, remote: Endpoint) -> None:
        """Accept only datagrams and refusals of this peer from now on. Raises OSError."""
        target = self._target(remote)
        if self.local is None:
            self.bind((self._own_address(target, remote), 0))
        self.peer = remote

    def send(self, data: bytes, remote: Endpoint | None) -> int:
        """Send a datagram. Raises OSError."""
        self.raise_error()
        to = remote or self.peer
        if to is None:
            raise failure(errno.EDESTADDRREQ)
        if len(data) > _DATAGRAM_BYTES_MAX:
            raise failure(errno.EMSGSIZE)
        target = self._target(to)
        if self.local is None:
            self.bind((EVERYWHERE, 0))
        assert self.local is not None
        source = (self._own_address(target, to), self.local[1])
        if target is self.host:
            self._arrive(data, source, target, to)
        else:
            self._route(data, source, target, to)
        return len(data)

    def receive(self, peek: bool = False) -> tuple[bytes, Endpoint] | None:
        """Return the next datagram and its sender, or None. Raises OSError."""
        self.raise_error()
        if not self._received:
            return None
        if peek:
            return self._received[0]
        data, sender = self._received.popleft()
        self._unread -= len(data)
        return data, sender

    def close(self) -> None:
        if self.closed:
            return
        ports = self.network.datagrams
        if self.local is not None and ports.get((self.host.address, self.local[1])) is self:
            del ports[self.host.address, self.local[1]]
        super().close()

    def _target(self, remote: Endpoint) -> Host:
        target = self.network.reach(self.host, remote[0])
        if target is None:
            raise failure(errno.ENETUNREACH)
        return target

    def _own_address(self, target: Host, remote: Endpoint) -> str:
        if self.local is not None and self.local[0] != EVERYWHERE:
            return self.local[0]
        return LOOPBACK if target is self.host and remote[0] != self.host.address else self.host.address

    # ------------------------------------------------------------ the network

    def _route(self, data: bytes, source: Endpoint, target: Host, to: Endpoint) -> None:
        network, machine = self.network, self.machine
        link, random = network.link(self.host, target), machine.random
        if link.blocked():
            network.counts["datagrams cut"] += 1
            return
        if link.datagram_loss and random.random() < link.datagram_loss:
            network.counts["datagrams lost"] += 1
            return
        copies = 1
        if link.datagram_duplicate and random.random() < link.datagram_duplicate:
            network.counts["datagrams duplicated"] += 1
            copies = 2
        for _ in range(copies):
            arrival = link.arrival(machine, len(data))
            if link.datagram_reorder and random.random() < link.datagram_reorder:
                network.counts["datagrams reordered"] += 1
                arrival += random.uniform(*_LATE_S)
            machine.at(arrival, partial(self._arrive, data, source, target, to))

    def _arrive(self, data: bytes, source: Endpoint, target: Host, to: Endpoint) -> None:
        network, machine = self.network, self.machine
        if network.link(self.host, target).blocked():
            network.counts["datagrams cut"] += 1
            return
        there = network.datagrams.get((target.address, to[1]))
        label = f"{source[0]}:{source[1]}>{to[0]}:{to[1]}"
        if there is not None and there.takes_from(source, to[0]):
            network.note(f"{label} datagram {len(data)} {crc32(data):08x}")
            network.datagrams_delivered += 1
            there.deliver(data, source)
        elif self.peer == to:
            network.counts["datagrams refused"] += 1
            network.note(f"{label} datagram refused")
            back = network.link(target, self.host)
            if target is self.host:
                self.fail(errno.ECONNREFUSED)
            elif not back.blocked():
                machine.at(back.arrival(machine, 0), partial(self._refused, to))

    def _refused(self, by: Endpoint) -> None:
        if not self.closed and self.peer == by:
            self.fail(errno.ECONNREFUSED)

    def takes_from(self, source: Endpoint, address: str) -> bool:
        """Return whether a sender at `source` reaches this socket at this address."""
        assert self.local is not None
        return self.local[0] in (EVERYWHERE, address) and self.peer in (None, source)

    def deliver(self, data: bytes, source: Endpoint) -> None:
        if self._unread + len(data) > _RECEIVE_BUFFER_BYTES:
            self.network.counts["datagrams without room"] += 1
            return
        self._received.append((data, source))
        self._unread += len(data)
        self.changed()
