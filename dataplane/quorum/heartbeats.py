"""The heartbeat thread, which sends UDP heartbeats to every quorum node that has a link, and answers their probes.

It is a dedicated thread, so that an event loop that is busy for a moment does not cost the broker its session. Each
heartbeat carries the age of the loop's last turn, so that a loop that hangs does cost the session. The quorum's leader
answers, and each heartbeat names the last answer that this broker received from the node: a broker that receives no
answers counts as dead, even if the quorum receives its heartbeats. Datagrams are sealed with the keys of the link to
the node, so a node without a link gets none. The socket stays open as long as the process lives. If the socket refuses
a quorum node's probe, the process is gone.
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
"""The factor by which heartbeats are more frequent while the answer is overdue, so that a few lost datagrams cost no
session."""


@dataclass(frozen=True, slots=True)
class _Path:
    """The encryption of the datagrams to and from one quorum node, with the keys of the present link or else of the
    last link."""

    node_id: int
    seal: DatagramSeal
    is_open: bool


class HeartbeatThread(threading.Thread):
    """A thread that sends a heartbeat per interval to every quorum node that has a link, until it is stopped.

    The event loop writes `broker_epoch`, `metadata_offset` and `loop_turned_at`, and by methods the answers over TCP
    and the links. This thread only reads them. Each is a single reference, which is replaced whole.
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
        #: node id -> the highest heartbeat number that the node answered: over UDP (written by this thread), over TCP
        self._answered = dict.fromkeys(self._quorum, 0)
        self._answered_over_tcp = dict.fromkeys(self._quorum, 0)
        #: the paths by node id, of all nodes that have had a link
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
        """Begin to send heartbeats to this node, since there is a link. The seal belongs to this thread."""
        self._paths[node_id] = _Path(node_id, seal, is_open=True)

    def link_lost(self, node_id: int) -> None:
        """Stop sending heartbeats to this node. Its probes are still answered."""
        path = self._paths.get(node_id)
        if path is not None:
            self._paths[node_id] = _Path(node_id, path.seal, is_open=False)

    def next_number(self) -> int:
        """Return a number for a heartbeat over TCP; heartbeats over UDP use the remaining numbers. Callable from any
        thread."""
        return next(self._numbers)

    def answered(self, node_id: int) -> int:
        """Return the highest heartbeat number that this quorum node has answered; 0 if it has answered none. Callable
        from any thread."""
        return max(self._answered[node_id], self._answered_over_tcp[node_id])

    def answered_over_tcp(self, node_id: int, number: int) -> None:
        """Note that a quorum node has answered the heartbeat of this number over TCP, which the event loop received."""
        self._answered_over_tcp[node_id] = max(number, self._answered_over_tcp[node_id])

    def beat_now(self) -> None:
        """Ask for a heartbeat ahead of the interval; callable from any thread."""
        try:
            self._waker.send(b"\0")
        except OSError:
            return  # If the buffer is full, the thread wakes anyway. If the socket is closed, the thread has ended.

    def stop(self) -> None:
        """End the thread and close its socket. Probes are refused from then on."""
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
                    self._read()  # Waiting answers count: this thread may have had no processor time until now.
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
        """Return whether a leader has answered over UDP before, and no answer came for one and a half heartbeat
        intervals."""
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
                continue  # The node is unreachable or the buffer full: the next heartbeat, or TCP, gets through.

    def _read(self) -> None:
        """Receive quorum nodes' answers to heartbeats, and answer their probes."""
        for _ in range(_DATAGRAMS_PER_TURN_MAX):
            try:
                data, sender = self._socket.recvfrom(_DATAGRAM_BYTES_MAX)
            except OSError:
                return
            key_id = key_id_of(data)
            path = next((path for path in list(self._paths.values()) if path.seal.key_id == key_id), None)
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
