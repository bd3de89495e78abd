"""TCP: connections that are ordered and reliable while a link exists, and their sockets."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .flow import Bytes, Flow
from .network import EVERYWHERE, LOOPBACK, Endpoint, Network, SocketDescriptor, failure

if TYPE_CHECKING:
    from .host import Host
    from .process import Process

_CONNECT_RETRY_S = 1.0
CONNECT_MAX_S = 10.0


class StreamEnd:
    """One end of a connection, in the kernel of its host; it may outlive the process that closes it."""

    def __init__(self, network: Network, host: Host, local: Endpoint) -> None:
        self.network = network
        self.host = host
        self.local = local
        self.remote: Endpoint = local
        self.socket: StreamSocket | None = None
        self.unread = 0
        self._received: deque[Bytes] = deque()
        self._ended = False
        self._error = 0
        self._shut = False
        self._closed = False
        #: nothing of it is left: whatever still arrives is answered with a reset
        self._gone = False
        self._out: Flow
        self._into: Flow

    def join(self, peer: StreamEnd) -> None:
        """Connect the two ends of a connection."""
        self.remote, peer.remote = peer.local, self.local
        self._out = peer._into = Flow(self.network, self, peer)
        peer._out = self._into = Flow(self.network, peer, self)

    def after_everything(self, when: float) -> None:
        """Let no data arrive at the peer before this time."""
        self._out.last_arrival = when

    # ------------------------------------------------------------ the process

    def readable(self) -> bool:
        return bool(self._received) or self._ended or self._gone

    def writable(self) -> bool:
        return self._gone or self._shut or self._out.has_room()

    def take_error(self) -> int:
        error, self._error = self._error, 0
        return error

    def receive(self, size: int, peek: bool = False) -> bytes | None:
        """Return up to `size` bytes: empty at the end, None if there is no data yet. Raises OSError."""
        received = self._received
        if not received:
            if error := self.take_error():
                raise failure(error)
            return b"" if self._ended or self._gone or not size else None
        taken: list[Bytes] = []
        left = size
        while received and left:
            part = received.popleft()
            if len(part) > left:
                view = memoryview(part)
                received.appendleft(view[left:])
                part = view[:left]
            taken.append(part)
            left -= len(part)
        data = bytes(taken[0]) if len(taken) == 1 else b"".join(taken)
        if peek:
            received.appendleft(data)
        else:
            self.unread -= len(data)
            self._into.read()
        return data

    def send(self, data: Bytes) -> int:
        """Return the number of accepted bytes, 0 if there is no room. Raises OSError."""
        if error := self.take_error():
            raise failure(error)
        if self._gone or self._shut:
            raise failure(errno.EPIPE)
        return self._out.put(data)

    def shut(self) -> None:
        """Shut down the sending direction (SHUT_WR)."""
        if self._gone:
            raise failure(errno.ENOTCONN)
        if not self._shut:
            self._shut = True
            self._out.end()
            self.changed()

    def close(self) -> None:
        """Close the end; its process no longer uses it."""
        self._closed = True
        self.socket = None
        self._received.clear()
        if self._gone:
            return
        if self.unread:
            self.abort()
            return
        if not self._shut:
            self._shut = True
            self._out.end()
        self.network.adopt(self)

    def abort(self) -> None:
        """End the connection at once, and notify the peer."""
        if not self._gone:
            self._out.reset()
            self._go()

    def vanish(self) -> None:
        """Disappear, since the host lost power."""
        self.socket = None
        self._go()

    def finished(self) -> bool:
        """Return whether all data was delivered, or never will be."""
        return self._gone or self._out.finished()

    # ------------------------------------------------------------ the network

    def takes(self, empty: bool) -> bool:
        """Return whether arriving data is accepted."""
        return not self._gone and (not self._closed or empty)

    def refuse(self, label: str) -> None:
        """Answer data without a reader with a reset."""
        self.network.note(f"{label} answered with a reset")
        self._out.reset()
        self._go()

    def deliver(self, data: Bytes, last: bool) -> None:
        if data:
            self._received.append(data)
            self.unread += len(data)
        self._ended = self._ended or last
        self.changed()

    def was_reset(self, label: str) -> None:
        if self._gone:
            return
        self.network.counts["resets"] += 1
        self.network.note(f"{label} reset")
        self.fail(errno.ECONNRESET)

    def fail(self, error: int) -> None:
        """End the connection with an error."""
        self._error = error
        self._go()
        self.changed()

    def changed(self) -> None:
        if self.socket is not None:
            self.socket.changed()

    def _go(self) -> None:
        self._gone = True
        self._out.stop()


class StreamSocket(SocketDescriptor):
    """A TCP socket of a process: new, listening, connecting or connected."""

    def __init__(self, network: Network, process: Process, end: StreamEnd | None = None) -> None:
        super().__init__(network, process)
        self.end = end
        self.listening = False
        self.connecting = False
        self._backlog = 0
        self._arriving = 0
        self._accepted: deque[StreamEnd] = deque()
        if end is not None:
            end.socket = self
            self.local = end.local

    # ------------------------------------------------------------ the process

    def readable(self) -> bool:
        if self.end is not None and not self.connecting:
            return self.end.readable()
        return bool(self._accepted) or bool(self._error)

    def writable(self) -> bool:
        if self.connecting or self.listening:
            return False
        return self.end is None or self.end.writable()

    def take_error(self) -> int:
        return super().take_error() or (self.end.take_error() if self.end is not None else 0)

    def bind(self, wanted: Endpoint) -> None:
        """Bind the socket. Raises OSError."""
        if self.local is not None:
            raise failure(errno.EINVAL)
        ports = self.network.streams
        self.local = self.network.claim(self.host, wanted, ports)
        ports[self.host.address, self.local[1]] = self

    def listen(self, backlog: int) -> None:
        if self.local is None:
            self.bind((EVERYWHERE, 0))
        self._backlog = max(backlog, 1)
        self.listening = True

    def accept(self) -> StreamEnd | None:
        """Return the next connection, or None. Raises OSError."""
        if not self.listening:
            raise failure(errno.EINVAL)
        return self._accepted.popleft() if self._accepted else None

    def connect(self, remote: Endpoint) -> None:
        """Begin to connect; the socket becomes writable with the outcome. Raises OSError."""
        if self.connecting:
            raise failure(errno.EALREADY)
        if self.end is not None:
            raise failure(errno.EISCONN)
        target = self.network.reach(self.host, remote[0])
        if target is None:
            raise failure(errno.ENETUNREACH)
        port = self.local[1] if self.local else self.network.free_port(self.host, self.network.streams)
        own = LOOPBACK if target is self.host and remote[0] != self.host.address else self.host.address
        self.end = StreamEnd(self.network, self.host, (own, port))
        self.end.remote = remote
        self.connecting = True
        _Handshake(self, self.end, target, remote)

    def connected(self, end: StreamEnd) -> None:
        self.connecting = False
        self.local = end.local
        end.socket = self
        self.changed()

    def not_connected(self, error: int) -> None:
        self.connecting = False
        self.end = None
        self.fail(error)

    def send_bytes(self, data: Bytes) -> int:
        """Send, and return the number of accepted bytes. Raises OSError, in particular BlockingIOError without room."""
        if self.end is None or self.connecting:
            raise failure(errno.ENOTCONN)
        size = self.end.send(data)
        if not size and len(data):
            raise failure(errno.EAGAIN)
        return size

    def vanish(self) -> None:
        for end in self._accepted:
            end.vanish()
        self._accepted.clear()
        if self.end is not None and not self.connecting:
            self.end.vanish()

    def close(self) -> None:
        if self.closed:
            return
        ports = self.network.streams
        if self.local is not None and ports.get((self.host.address, self.local[1])) is self:
            del ports[self.host.address, self.local[1]]
        super().close()
        for end in self._accepted:
            end.abort()
        if self.end is not None and not self.connecting:
            self.end.close()

    # ------------------------------------------------------------ the network

    def reserve(self) -> bool:
        """Reserve a place for another connection; return False if the queue is full."""
        if len(self._accepted) + self._arriving >= self._backlog:
            return False
        self._arriving += 1
        return True

    def arrived(self, end: StreamEnd) -> None:
        """Note an established connection, which may be accepted later."""
        self._arriving -= 1
        if not self.closed:
            self._accepted.append(end)
            self.changed()
        elif self.host.powered:
            end.abort()
        else:
            end.vanish()


class _Handshake:
    """A connection in its handshake."""

    def __init__(self, client: StreamSocket, end: StreamEnd, target: Host, remote: Endpoint) -> None:
        self._client = client
        self._end = end
        self._network = client.network
        self._machine = client.machine
        self._remote = remote
        self._target = target
        self._there = self._network.link(client.host, target)
        self._back = self._network.link(target, client.host)
        self._deadline = self._machine.now + CONNECT_MAX_S
        self._retry_s = _CONNECT_RETRY_S
        self._label = f"{end.local[0]}:{end.local[1]}>{remote[0]}:{remote[1]}"
        self._try()

    def _after(self, when: float, action: Callable[[], None]) -> None:
        self._machine.at(when, lambda: None if self._client.closed else action())

    def _try(self) -> None:
        if not self._there.blocked():
            self._after(self._there.arrival(self._machine, 0), self._knock)
        else:
            self._later()

    def _later(self) -> None:
        self._network.counts["connects held"] += 1
        if self._machine.now + self._retry_s >= self._deadline:
            self._after(self._deadline, self._give_up)
        else:
            self._after(self._machine.now + self._retry_s, self._try)
            self._retry_s *= 2

    def _give_up(self) -> None:
        self._network.counts["connects timed out"] += 1
        self._network.note(f"{self._label} not connected in time")
        self._client.not_connected(errno.ETIMEDOUT)

    def _knock(self) -> None:
        loss = self._there.loss
        if self._there.blocked() or self._back.blocked() or (loss and self._machine.random.random() < loss):
            self._later()
            return
        answered_at = self._back.arrival(self._machine, 0)
        address, port = self._remote
        listener = self._network.streams.get((self._target.address, port))
        if listener is None or not listener.listening or not _is_open_to(listener, address):
            self._after(answered_at, self._refused)
        elif not listener.reserve():
            self._network.counts["connects dropped by a full backlog"] += 1
            self._later()
        else:
            own = self._target.address if address == EVERYWHERE else address
            served = StreamEnd(self._network, self._target, (own, port))
            self._end.join(served)
            served.after_everything(answered_at)
            self._machine.at(answered_at, partial(self._answered, listener, served))

    def _refused(self) -> None:
        self._network.counts["connects refused"] += 1
        self._network.note(f"{self._label} refused")
        self._client.not_connected(errno.ECONNREFUSED)

    def _answered(self, listener: StreamSocket, served: StreamEnd) -> None:
        established_at = self._there.arrival(self._machine, 0)
        self._end.after_everything(established_at)
        self._machine.at(established_at, partial(listener.arrived, served))
        self._network.note(f"{self._label} connected")
        if not self._client.closed:
            self._client.connected(self._end)
        elif self._client.host.powered:
            self._end.abort()
        else:
            self._end.vanish()


def _is_open_to(listener: StreamSocket, address: str) -> bool:
    """Return whether a connection to this address reaches the listener."""
    assert listener.local is not None
    return listener.local[0] in (EVERYWHERE, address)
