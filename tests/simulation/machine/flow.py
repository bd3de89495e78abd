"""One direction of a TCP connection: segments that are delayed, lost, held by a cut and retransmitted, but stay in
order.

There is one event per segment. The effect of acknowledgements is computed only when needed: when a sender's buffer is
full, or when its retransmission timer fires.
"""

from __future__ import annotations

import errno
from bisect import insort
from collections import deque
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from .machine import Scheduled
from .network import Network

if TYPE_CHECKING:
    from .streams import StreamEnd

SEND_BUFFER_BYTES = 256 << 10
RECEIVE_BUFFER_BYTES = 256 << 10
_SEGMENT_BYTES_MAX = 64 << 10
_RETRANSMIT_FIRST_S, _RETRANSMIT_MAX_S = 0.2, 1.0
UNACKNOWLEDGED_MAX_S = 15.0
"""Seconds after which a connection with unacknowledged data ends; shorter than Linux's quarter of an hour."""

Bytes = bytes | memoryview


class _Segment:
    """Data that is sent at once, with its position in the stream. The last segment ends the stream."""

    __slots__ = ("last", "number", "parts", "sent_at", "size")

    def __init__(self, number: int, sent_at: float) -> None:
        self.number = number
        self.sent_at = sent_at
        self.parts: list[Bytes] = []
        self.size = 0
        self.last = False

    def split(self, size: int) -> _Segment:
        """Remove the first `size` bytes as a separate segment."""
        data = memoryview(b"".join(self.parts))
        first = _Segment(self.number, self.sent_at)
        first.parts, first.size = [data[:size]], size
        self.parts, self.size = [data[size:]], self.size - size
        return first


class Flow:
    """One direction of a connection, from the sender's view."""

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
        self._waiting: deque[Bytes] = deque()
        # : Invariant: at least the waiting and in-flight bytes, since those are not acknowledged either.
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
        """Return the free bytes of the send buffer."""
        acknowledgements, now = self._acknowledgements, self._machine.now
        while acknowledgements and acknowledgements[0][0] <= now:
            self._buffered -= acknowledgements.popleft()[1]
        return SEND_BUFFER_BYTES - self._buffered

    def has_room(self) -> bool:
        """Return whether the send buffer has enough room; if not, the sender is notified later."""
        if self.free() * 3 >= SEND_BUFFER_BYTES:
            return True
        if not self._space_wanted:
            self._space_wanted = True
            if self._acknowledgements:
                self._machine.at(self._acknowledgements[-1][0], self._tell_sender)
        return False

    def put(self, data: Bytes) -> int:
        """Take as many bytes as fit, and return their number, which may be 0."""
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
        """End the stream after the buffered data."""
        self._ending = True
        self._push()

    def finished(self) -> bool:
        """Return whether the flow has no more work."""
        return self._stopped or self._end_arrived

    def stop(self) -> None:
        """Stop sending and retransmitting; segments in transit may still arrive."""
        self._stopped = True
        self._held.clear()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        """Reset the receiver's end. The reset is lost if the link is blocked, and is not retransmitted."""
        if self._there.blocked():
            return
        self._machine.at(self._next_arrival(0), partial(self._receiver.was_reset, self._label))

    def read(self) -> None:
        """Note that the receiver has made room."""
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

    def _send(self, data: Bytes, last: bool) -> None:
        now, size = self._machine.now, len(data)
        self._on_its_way += size
        segment = self._newest
        # Data of one instant goes into one segment.
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

    def _depart(self, segment: _Segment, again_s: float = _RETRANSMIT_FIRST_S) -> None:
        there = self._there
        if there.loss and self._machine.random.random() < there.loss:
            self._network.counts["segments lost"] += 1
            later_s = min(again_s * 2, _RETRANSMIT_MAX_S)
            self._machine.after(again_s, partial(self._again, segment, later_s))
            return
        self._machine.at(self._next_arrival(segment.size), partial(self._arrive, segment))

    def _again(self, segment: _Segment, again_s: float) -> None:
        if self._there.blocked():
            self._hold(segment)
        elif not self._stopped:
            self._depart(segment, again_s)

    def _arrive(self, segment: _Segment) -> None:
        if self._there.blocked():
            self._hold(segment)
            return
        if segment.number != self._expected:
            insort(self._early, segment, key=lambda kept: kept.number)
            return
        self._take(segment)
        while self._early and self._early[0].number == self._expected:
            self._take(self._early.pop(0))

    def _take(self, segment: _Segment) -> None:
        """Receive the next segment in order."""
        if segment is self._newest:
            self._newest = None
        random, split_rate = self._machine.random, self._network.split_rate
        whole = True
        # Only the newest segment: its rest may then come after everything in flight.
        if segment.number == self._numbers and segment.size > 1 and random.random() < split_rate:
            rest, segment = segment, segment.split(random.randrange(1, segment.size))
            self._machine.at(self._next_arrival(0), partial(self._arrive, rest))
            self._network.counts["segments split"] += 1
            whole = False
        if self._deliver(segment) and whole:
            self._expected += 1

    def _deliver(self, segment: _Segment) -> bool:
        """Deliver a segment to the receiver; return whether it is finished."""
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
        self._network.segments += 1
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
        insort(self._held, segment, key=lambda kept: kept.number)
        self._stall()

    def _stall(self) -> None:
        """Retransmit until the data gets through, or until the connection times out."""
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
