"""The heartbeat thread: UDP signs of life to every quorum node that has a link, and answers to their probes.

A thread of its own, so that a loop kept busy for a moment does not cost the broker its session; each
heartbeat carries the age of the loop's last turn, so that a loop that hangs does. The quorum's leader answers,
and each heartbeat tells a node the last answer heard from it: a broker that hears nothing is not alive, however
well it is heard. Datagrams have the keys of the link to that node: without a link there are none. The socket
stands as long as the process does: when a quorum node is refused there, the process is gone.
"""

import select
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from ...protocol.session.liveness_datagrams import (
    DatagramHeartbeat,
    DatagramSeal,
    HeartbeatAnswer,
    InvalidDatagram,
    Probe,
    ProbeAnswer,
    key_id_of,
)

_DATAGRAMS_PER_TURN_MAX = 64
_DATAGRAM_BYTES_MAX = 512
_OVERDUE_INTERVALS = 1.5
_HASTE = 4
"""So many times as often it beats while the answer is overdue, so that a few lost datagrams cost nobody a session."""


@dataclass(frozen=True, slots=True)
class _Path:
    """What the datagrams to and from one quorum node are sealed with: this link's keys, or those of the last one."""

    node_id: int
    seal: DatagramSeal
    is_open: bool


class HeartbeatThread(threading.Thread):
    """Sends a heartbeat to every quorum node that has a link once per interval until stopped.

    The event loop writes `broker_epoch`, `metadata_offset`, `loop_turned_at` and, by methods, what it heard over TCP
    and which links there are; this thread only reads that. Each is one reference, replaced whole.
    """

    def __init__(
        self,
        broker_id: int,
        incarnation: bytes,
        local_host: str,
        quorum: Mapping[int, tuple[str, int]],
        interval_ms: int,
    ) -> None:
        super().__init__(name=f"heartbeats-of-broker-{broker_id}", daemon=True)
        self.broker_epoch = -1
        self.metadata_offset = 0
        self.loop_turned_at = time.monotonic()
        self._broker_id = broker_id
        self._incarnation = incarnation
        self._quorum = dict(quorum)
        self._interval_s = interval_ms / 1000
        self._numbers = count(1)
        #: node id -> the highest number that it was heard to answer over UDP, written by this thread, and over TCP
        self._answered = dict.fromkeys(self._quorum, 0)
        self._answered_over_tcp = dict.fromkeys(self._quorum, 0)
        #: by node id, of all that have had a link
        self._paths: dict[int, _Path] = {}
        self._answer_at: float | None = None
        self._stopping = False
        family = socket.AF_INET6 if ":" in local_host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.bind((local_host, 0))
        self._socket.setblocking(False)
        #: the UDP port that answers probes
        self.port: int = self._socket.getsockname()[1]
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)

    def link_opened(self, node_id: int, seal: DatagramSeal) -> None:
        """There is a link to this node: from now on it gets heartbeats. The seal is this thread's."""
        self._paths[node_id] = _Path(node_id, seal, is_open=True)

    def link_lost(self, node_id: int) -> None:
        """This node gets no heartbeats any more. If it asks whether this broker lives, it is still answered."""
        path = self._paths.get(node_id)
        if path is not None:
            self._paths[node_id] = _Path(node_id, path.seal, is_open=False)

    def next_number(self) -> int:
        """A number for a heartbeat over TCP; those over UDP have the others. Callable from any thread."""
        return next(self._numbers)

    def answered(self, node_id: int) -> int:
        """The highest number that this quorum node was heard to answer; 0 for none. Callable from any thread."""
        return max(self._answered[node_id], self._answered_over_tcp[node_id])

    def answered_over_tcp(self, node_id: int, number: int) -> None:
        """The event loop has heard an answer."""
        self._answered_over_tcp[node_id] = max(number, self._answered_over_tcp[node_id])

    def beat_now(self) -> None:
        """Asks for a heartbeat ahead of the interval; callable from any thread."""
        try:
            self._waker.send(b"\0")
        except OSError:
            return  # full: it wakes anyway; closed: the thread has ended

    def stop(self) -> None:
        """Ends the thread and closes its socket: from then on a probe is refused."""
        self._stopping = True
        if self.is_alive():
            self.beat_now()
            self.join()
        else:
            self._close()

    def run(self) -> None:
        next_beat = time.monotonic()
        # Not select(), which ends at descriptor 1023: a broker opens its logs before this socket.
        watched = select.poll()
        for end in (self._socket, self._wakened):
            watched.register(end, select.POLLIN)
        try:
            while not self._stopping:
                now = time.monotonic()
                if now >= next_beat:
                    self._read()  # What waits counts: this thread may have been kept from the processor.
                    self._beat(now)
                    next_beat = now + (
                        self._interval_s / _HASTE if self._is_overdue(now) else self._interval_s
                    )
                ready = {descriptor for descriptor, _ in watched.poll(max(0.0, next_beat - now) * 1000)}
                if self._wakened.fileno() in ready:
                    self._wakened.recv(1024)
                    next_beat = 0.0
                if self._socket.fileno() in ready:
                    self._read()
        finally:
            self._close()

    def _close(self) -> None:
        for end in (self._socket, self._waker, self._wakened):
            end.close()

    def _is_overdue(self, now: float) -> bool:
        """Whether a leader that answers over UDP was there, and should have been heard again."""
        return self._answer_at is not None and now - self._answer_at > self._interval_s * _OVERDUE_INTERVALS

    def _beat(self, now: float) -> None:
        number = self.next_number()
        loop_age_ms = max(0, int((now - self.loop_turned_at) * 1000))
        for path in list(self._paths.values()):
            if not path.is_open:
                continue
            heartbeat = DatagramHeartbeat(
                self._broker_id,
                self.broker_epoch,
                self._incarnation,
                number,
                loop_age_ms,
                self.metadata_offset,
                self.answered(path.node_id),
            )
            try:
                self._socket.sendto(path.seal.encode(heartbeat), self._quorum[path.node_id])
            except OSError:
                continue  # unreachable or full: the next heartbeat, or TCP, gets through

    def _read(self) -> None:
        """Takes answers to heartbeats, and answers probes."""
        for _ in range(_DATAGRAMS_PER_TURN_MAX):
            try:
                data, sender = self._socket.recvfrom(_DATAGRAM_BYTES_MAX)
            except OSError:
                return
            key_id = key_id_of(data)
            path = next((one for one in list(self._paths.values()) if one.seal.key_id == key_id), None)
            if path is None:
                continue
            try:
                datagram = path.seal.decode(data)
            except InvalidDatagram:
                continue
            if isinstance(datagram, HeartbeatAnswer):
                self._heard(datagram)
            elif isinstance(datagram, Probe):
                try:
                    self._socket.sendto(path.seal.encode(ProbeAnswer(datagram.nonce)), sender)
                except OSError:
                    continue

    def _heard(self, answer: HeartbeatAnswer) -> None:
        known = self._answered.get(answer.node_id)
        if known is not None and answer.incarnation == self._incarnation and answer.counter > known:
            self._answered[answer.node_id] = answer.counter
            self._answer_at = time.monotonic()
