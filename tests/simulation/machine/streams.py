"""TCP: connections, in order and reliable as long as there is a way, and the sockets that listen for them.

One event per segment. What the acknowledgements would do is worked out when somebody wants to know: a sender that finds
its buffer full, or the timer of one that hears nothing.
"""

from __future__ import annotations

import errno
from bisect import insort
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from .machine import Scheduled
from .network import EVERYWHERE, LOOPBACK, Endpoint, Network, SocketDescriptor, failure

if TYPE_CHECKING:
    from .host import Host
    from .process import Process

SEND_BUFFER_BYTES = 256 << 10
RECEIVE_BUFFER_BYTES = 256 << 10
_SEGMENT_BYTES_MAX = 64 << 10
_RETRANSMIT_FIRST_S, _RETRANSMIT_MAX_S = 0.2, 1.0
UNACKNOWLEDGED_MAX_S = 15.0
"""How long a connection stands whose data is not acknowledged; shorter than Linux's quarter of an hour."""
_CONNECT_RETRY_S = 1.0
CONNECT_MAX_S = 10.0

_Bytes = bytes | memoryview


class _Segment:
    """What is sent at once, with its place in the stream. The last one says that nothing follows."""

    __slots__ = ("last", "number", "parts", "sent_at", "size")

    def __init__(self, number: int, sent_at: float) -> None:
        self.number = number
        self.sent_at = sent_at
        self.parts: list[_Bytes] = []
        self.size = 0
        self.last = False

    def split(self, size: int) -> _Segment:
        """Takes the first `size` bytes away, as a segment of their own."""
        data = memoryview(b"".join(self.parts))
        first = _Segment(self.number, self.sent_at)
        first.parts, first.size = [data[:size]], size
        self.parts, self.size = [data[size:]], self.size - size
        return first


class Flow:
    """One way of a connection, as the sending side knows it."""

    def __init__(self, network: Network, sender: StreamEnd, receiver: StreamEnd) -> None:
        self._network = network
        self._machine = network.machine
        self._sender = sender
        self._receiver = receiver
        self._there = network.link(sender.host, receiver.host)
        self._back = network.link(receiver.host, sender.host)
        self._label = f"{sender.local[0]}:{sender.local[1]}>{receiver.local[0]}:{receiver.local[1]}"
        self._numbers = 0
        #: given by the process, not sent: the receiver has no room
        self._waiting: deque[_Bytes] = deque()
        #: Invariant: at least what is waiting and on its way, since that is not acknowledged either.
        self._buffered = 0
        self._on_its_way = 0
        #: lost, to be sent again; in order
        self._held: list[_Segment] = []
        self._newest: _Segment | None = None
        #: the number of the segment that the receiver can use next, and what came before its turn
        self._expected = 1
        self._early: list[_Segment] = []
        self.last_arrival = 0.0
        #: when the sender hears that bytes have arrived, and how many
        self._acknowledgements: deque[tuple[float, int]] = deque()
        self._unheard = 0
        self._stalled_at = 0.0
        self._space_wanted = False
        self._window_shut = False
        self._ending = False
        self._end_sent = False
        self._end_arrived = False
        self._stopped = False
        self._timer: Scheduled | None = None
        self._backoff_s = _RETRANSMIT_FIRST_S

    # ------------------------------------------------------------ the sending process

    def free(self) -> int:
        """Room in the send buffer."""
        acknowledgements, now = self._acknowledgements, self._machine.now
        while acknowledgements and acknowledgements[0][0] <= now:
            self._buffered -= acknowledgements.popleft()[1]
        return SEND_BUFFER_BYTES - self._buffered

    def has_room(self) -> bool:
        """Whether it is worth the while to write; if not, the sender is told when it is."""
        if self.free() * 3 >= SEND_BUFFER_BYTES:
            return True
        if not self._space_wanted:
            self._space_wanted = True
            if self._acknowledgements:
                self._machine.at(self._acknowledgements[-1][0], self._tell_sender)
        return False

    def put(self, data: _Bytes) -> int:
        """Takes as many bytes as there is room for; 0 if there is none."""
        size = min(len(data), self.free())
        if size <= 0:
            self.has_room()
            return 0
        self._buffered += size
        view = memoryview(bytes(data[:size]))
        for start in range(0, size, _SEGMENT_BYTES_MAX):
            self._waiting.append(view[start : start + _SEGMENT_BYTES_MAX])
        self._push()
        return size

    def end(self) -> None:
        """Nothing follows what was put."""
        self._ending = True
        self._push()

    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self._stopped or self._end_arrived

    def stop(self) -> None:
        """The connection is over: what is on its way may still arrive, nothing is sent again."""
        self._stopped = True
        self._held.clear()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        """Tell the receiver that the connection is over. Lost if there is no way: nobody sends it again."""
        if self._there.blocked():
            return
        self._machine.at(self._next_arrival(0), partial(self._receiver.was_reset, self._label))

    def read(self) -> None:
        """The receiver has made room."""
        if self._waiting and not self._window_shut:
            self._window_shut = True
            if self._back.blocked():
                self._stall()
            else:
                self._machine.at(self._back.arrival(self._machine, 0), self._open_window)

    # ------------------------------------------------------------ on the way

    def _open_window(self) -> None:
        self._window_shut = False
        self._push()

    def _push(self) -> None:
        if self._stopped:
            return
        waiting = self._waiting
        while waiting and self._on_its_way + self._receiver.unread < RECEIVE_BUFFER_BYTES:
            self._send(waiting.popleft(), False)
        if self._ending and not waiting and not self._end_sent:
            self._end_sent = True
            self._send(b"", True)

    def _send(self, data: _Bytes, last: bool) -> None:
        now, size = self._machine.now, len(data)
        self._on_its_way += size
        segment = self._newest
        # What is sent in one instant goes together.
        if segment is not None and segment.sent_at == now and segment.size + size <= _SEGMENT_BYTES_MAX:
            segment.parts.append(data)
            segment.size += size
            segment.last = last
            return
        self._numbers += 1
        self._newest = segment = _Segment(self._numbers, now)
        segment.parts.append(data)
        segment.size = size
        segment.last = last
        if self._held or self._there.blocked():
            self._hold(segment)
        else:
            self._depart(segment)

    def _next_arrival(self, size: int) -> float:
        self.last_arrival = max(self.last_arrival, self._there.arrival(self._machine, size))
        return self.last_arrival

    def _depart(self, segment: _Segment) -> None:
        arrival = self._there.arrival(self._machine, segment.size)
        if self._there.loss:
            again_s = _RETRANSMIT_FIRST_S
            while self._machine.random.random() < self._there.loss:
                self._network.counts["segments lost"] += 1
                arrival += again_s
                again_s *= 2
        self.last_arrival = max(self.last_arrival, arrival)
        self._machine.at(self.last_arrival, partial(self._arrive, segment))

    def _arrive(self, segment: _Segment) -> None:
        if self._there.blocked():
            self._hold(segment)
            return
        if segment.number != self._expected:
            insort(self._early, segment, key=lambda one: one.number)
            return
        if segment is self._newest:
            self._newest = None
        random, split_rate = self._machine.random, self._network.split_rate
        whole = True
        # Only the newest: the rest of it may then come after everything that is on its way.
        if segment.number == self._numbers and segment.size > 1 and random.random() < split_rate:
            rest, segment = segment, segment.split(random.randrange(1, segment.size))
            self._machine.at(self._next_arrival(0), partial(self._arrive, rest))
            self._network.counts["segments split"] += 1
            whole = False
        if self._deliver(segment) and whole:
            self._expected += 1
            if self._early and self._early[0].number == self._expected:
                self._arrive(self._early.pop(0))

    def _deliver(self, segment: _Segment) -> bool:
        """To the receiver; whether that is settled."""
        size, receiver = segment.size, self._receiver
        if not receiver.takes(segment.last and not size):
            if self._back.blocked():
                self._hold(segment)
                return False
            self._on_its_way -= size
            receiver.refuse(self._label)
            return True
        self._on_its_way -= size
        data = segment.parts[0] if len(segment.parts) == 1 else b"".join(segment.parts)
        self._network.note(f"{self._label} {size} {crc32(data):08x}{' end' if segment.last else ''}")
        self._end_arrived = segment.last
        receiver.deliver(data, segment.last)
        if self._back.blocked():
            self._unheard += size
            self._network.counts["acknowledgements lost"] += 1
            self._stall()
        elif size:
            self._acknowledge(size)
        return True

    def _acknowledge(self, size: int) -> None:
        heard_at = self._back.arrival(self._machine, 0)
        self._acknowledgements.append((heard_at, size))
        if self._space_wanted:
            self._machine.at(heard_at, self._tell_sender)

    def _tell_sender(self) -> None:
        if self._space_wanted and self.free() * 3 >= SEND_BUFFER_BYTES:
            self._space_wanted = False
            self._sender.changed()

    # ------------------------------------------------------------ no way

    def _hold(self, segment: _Segment) -> None:
        if self._stopped:
            return
        self._network.counts["segments held"] += 1
        insort(self._held, segment, key=lambda one: one.number)
        self._stall()

    def _stall(self) -> None:
        """Something does not get through: try again until it does, or for too long."""
        if self._timer is None and not self._stopped:
            self._stalled_at = self._machine.now
            self._backoff_s = _RETRANSMIT_FIRST_S
            self._try_again()

    def _try_again(self) -> None:
        wait_s = self._backoff_s * self._machine.random.uniform(0.8, 1.0)
        self._timer = self._machine.after(wait_s, self._retransmit)

    def _retransmit(self) -> None:
        self._timer = None
        self._network.counts["retransmissions"] += 1
        if not self._there.blocked():
            held, self._held = self._held, []
            for segment in held:
                self._depart(segment)
            if not self._back.blocked():
                if self._unheard:
                    size, self._unheard = self._unheard, 0
                    self._acknowledge(size)
                if self._window_shut:
                    self._open_window()
                return
        if self._machine.now - self._stalled_at >= UNACKNOWLEDGED_MAX_S:
            self._network.counts["connections timed out"] += 1
            self._network.note(f"{self._label} times out")
            self._sender.fail(errno.ETIMEDOUT)
            return
        self._backoff_s = min(self._backoff_s * 2, _RETRANSMIT_MAX_S)
        self._try_again()


class StreamEnd:
    """One end of a connection, in the kernel of its host: it may outlive the process that closes it."""

    def __init__(self, network: Network, host: Host, local: Endpoint) -> None:
        self.network = network
        self.host = host
        self.local = local
        self.remote: Endpoint = local
        self.socket: StreamSocket | None = None
        self.unread = 0
        self._received: deque[_Bytes] = deque()
        self._ended = False
        self._error = 0
        self._shut = False
        self._closed = False
        #: nothing of it is left: whatever still arrives is answered with a reset
        self._gone = False
        self._out: Flow
        self._into: Flow

    def join(self, peer: StreamEnd) -> None:
        """The two ends of a connection."""
        self.remote, peer.remote = peer.local, self.local
        self._out = peer._into = Flow(self.network, self, peer)
        peer._out = self._into = Flow(self.network, peer, self)

    def after_everything(self, when: float) -> None:
        """Nothing arrives at the peer before that."""
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
        """Up to `size` bytes; none at the end; None if there is nothing yet. Raises OSError."""
        received = self._received
        if not received:
            if error := self.take_error():
                raise failure(error)
            return b"" if self._ended or self._gone or not size else None
        taken: list[_Bytes] = []
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

    def send(self, data: _Bytes) -> int:
        """How many bytes it took; 0 if there is no room. Raises OSError."""
        if error := self.take_error():
            raise failure(error)
        if self._gone or self._shut:
            raise failure(errno.EPIPE)
        return self._out.put(data)

    def shut(self) -> None:
        """SHUT_WR."""
        if self._gone:
            raise failure(errno.ENOTCONN)
        if not self._shut:
            self._shut = True
            self._out.end()
            self.changed()

    def close(self) -> None:
        """The process has let go of it."""
        self._closed = True
        self.socket = None
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
        """Ends the connection at once, and tells the peer."""
        if not self._gone:
            self._out.reset()
            self._go()

    def vanish(self) -> None:
        """The host lost power."""
        self.socket = None
        self._go()

    def finished(self) -> bool:
        """Whether everything was delivered, or never will be."""
        return self._gone or self._out.finished()

    # ------------------------------------------------------------ the network

    def takes(self, empty: bool) -> bool:
        """Whether what has arrived is welcome."""
        return not self._gone and (not self._closed or empty)

    def refuse(self, label: str) -> None:
        """Something arrived that nobody will read."""
        self.network.note(f"{label} answered with a reset")
        self._out.reset()
        self._go()

    def deliver(self, data: _Bytes, last: bool) -> None:
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
        """The connection is over, and why."""
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
        """Raises OSError."""
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
        """The next connection, if one is there. Raises OSError."""
        if not self.listening:
            raise failure(errno.EINVAL)
        return self._accepted.popleft() if self._accepted else None

    def connect(self, remote: Endpoint) -> None:
        """Begins to; it becomes writable when that is decided. Raises OSError."""
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

    def send_bytes(self, data: _Bytes) -> int:
        """How many bytes it took. Raises OSError; BlockingIOError when it has no room."""
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
        """Whether the queue has room for one more connection."""
        if len(self._accepted) + self._arriving >= self._backlog:
            return False
        self._arriving += 1
        return True

    def arrived(self, end: StreamEnd) -> None:
        """A connection is established, whether or not somebody accepts it."""
        self._arriving -= 1
        if not self.closed:
            self._accepted.append(end)
            self.changed()
        elif self.host.powered:
            end.abort()
        else:
            end.vanish()


class _Handshake:
    """A connection being made."""

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
        if self._there.blocked() or self._back.blocked():
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
    """Whether somebody who calls this address reaches the listener."""
    assert listener.local is not None
    return listener.local[0] in (EVERYWHERE, address)
