"""The heartbeat thread: UDP signs of life to every quorum node, and answers to their probes.

A thread of its own, so that a loop kept busy for a moment does not cost the broker its session; each
heartbeat carries the age of the loop's last turn, so that a loop that hangs does. The socket stands as long
as the process does: when a quorum node is refused there, the process is gone.
"""

import select
import socket
import threading
import time
from collections.abc import Iterable

from ...protocol.liveness_datagrams import (
    DatagramHeartbeat,
    DatagramSeal,
    InvalidDatagram,
    Probe,
    ProbeAnswer,
)

_PROBES_PER_TURN_MAX = 64
_DATAGRAM_BYTES_MAX = 512


class HeartbeatThread(threading.Thread):
    """Sends a heartbeat to every quorum node once per interval until stopped.

    The event loop writes `broker_epoch`, `metadata_offset` and `loop_turned_at`; this thread only reads
    them. Each is one reference, replaced whole.
    """

    def __init__(
        self,
        seal: DatagramSeal,
        broker_id: int,
        incarnation: bytes,
        local_host: str,
        quorum_addresses: Iterable[tuple[str, int]],
        interval_ms: int,
    ) -> None:
        super().__init__(name=f"heartbeats-of-broker-{broker_id}", daemon=True)
        self.broker_epoch = -1
        self.metadata_offset = 0
        self.loop_turned_at = time.monotonic()
        self._seal = seal
        self._broker_id = broker_id
        self._incarnation = incarnation
        self._addresses = list(quorum_addresses)
        self._interval_s = interval_ms / 1000
        self._counter = 0
        self._stopping = False
        family = socket.AF_INET6 if ":" in local_host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.bind((local_host, 0))
        self._socket.setblocking(False)
        #: the UDP port that answers probes
        self.port: int = self._socket.getsockname()[1]
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)

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
                    self._beat(now)
                    next_beat = now + self._interval_s
                ready = {descriptor for descriptor, _ in watched.poll(max(0.0, next_beat - now) * 1000)}
                if self._wakened.fileno() in ready:
                    self._wakened.recv(1024)
                    next_beat = 0.0
                if self._socket.fileno() in ready:
                    self._answer_probes()
        finally:
            self._close()

    def _close(self) -> None:
        for end in (self._socket, self._waker, self._wakened):
            end.close()

    def _beat(self, now: float) -> None:
        self._counter += 1
        loop_age_ms = max(0, int((now - self.loop_turned_at) * 1000))
        datagram = self._seal.encode(
            DatagramHeartbeat(
                self._broker_id,
                self.broker_epoch,
                self._incarnation,
                self._counter,
                loop_age_ms,
                self.metadata_offset,
            )
        )
        for address in self._addresses:
            try:
                self._socket.sendto(datagram, address)
            except OSError:
                continue  # unreachable or full: the next heartbeat, or TCP, gets through

    def _answer_probes(self) -> None:
        for _ in range(_PROBES_PER_TURN_MAX):
            try:
                data, sender = self._socket.recvfrom(_DATAGRAM_BYTES_MAX)
            except OSError:
                return
            try:
                datagram = self._seal.decode(data)
            except InvalidDatagram:
                continue
            if isinstance(datagram, Probe):
                answer = ProbeAnswer(datagram.nonce, self._broker_id, self._incarnation)
                try:
                    self._socket.sendto(self._seal.encode(answer), sender)
                except OSError:
                    continue
