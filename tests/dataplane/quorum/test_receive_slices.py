"""Data from the quorum that arrives at once is processed in pieces, between which the loop has turns."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import uvloop
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.quorum.receive_slices import TURN_S, ReceiveSlices

TURN_MS = round(TURN_S * 1000)


class Rig:
    """A transport, a loop and a clock. A payload of n bytes takes n milliseconds."""

    def __init__(self) -> None:
        self.paused = self.closing = False
        self.delivered: list[bytes] = []
        self.due: list[Callable[[], None]] = []
        self.now_ms = 0
        self.turn_began_ms = 0
        self.closes_at = -1
        self.arrivals = ReceiveSlices(self, self.deliver, self, lambda: self.now_ms / 1000)

    def deliver(self, payload: bytes) -> None:
        assert not self.closing
        assert self.now_ms / 1000 < self.turn_began_ms / 1000 + TURN_S
        self.delivered.append(payload)
        self.now_ms += len(payload)
        if len(self.delivered) == self.closes_at:
            self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self.due.append(callback)

    def turn(self) -> None:
        self.turn_began_ms = self.now_ms
        due, self.due = self.due, []
        for callback in due:
            callback()

    def read(self, payloads: list[bytes]) -> None:
        """Read payloads like a transport that is not paused."""
        self.turn_began_ms = self.now_ms
        self.arrivals.add(payloads)


READS = st.lists(st.lists(st.integers(0, 2 * TURN_MS).map(bytes), max_size=8), max_size=8)


@given(READS, st.integers(0, 8), st.integers(-1, 20))
def test_each_is_handed_on_once_and_in_order_and_a_turn_ends_in_time(
    reads: list[list[bytes]], begun_after: int, closes_at: int
) -> None:
    rig = Rig()
    rig.closes_at = closes_at
    for number, read in enumerate(reads):
        if number == begun_after:
            rig.turn_began_ms = rig.now_ms
            rig.arrivals.begin()
        while rig.paused and rig.due:
            rig.turn()
        assert not rig.paused or rig.closing
        rig.read(read)
        if number < begun_after:
            assert not rig.delivered
    if begun_after >= len(reads):
        rig.turn_began_ms = rig.now_ms
        rig.arrivals.begin()
    while rig.due:
        rig.turn()
    arrived = [payload for read in reads for payload in read]
    assert rig.delivered == (arrived[:closes_at] if closes_at > 0 else arrived)
    assert not rig.paused or rig.closing


def test_nothing_more_is_read_while_some_waits() -> None:
    rig = Rig()
    rig.arrivals.begin()
    rig.read([bytes(TURN_MS), b"a", b"b"])
    assert (len(rig.delivered), rig.paused) == (1, True)
    rig.turn()
    assert (len(rig.delivered), rig.paused) == (3, False)


def test_what_is_read_all_the_same_waits_its_turn() -> None:
    """A transport with TLS may have decrypted the data before."""
    rig = Rig()
    rig.arrivals.begin()
    rig.read([bytes(TURN_MS), b"a"])
    rig.read([b"b"])
    assert len(rig.delivered) == 1
    rig.turn()
    assert rig.delivered[1:] == [b"a", b"b"]


class Reader(asyncio.Protocol):
    """A protocol whose received payloads take long to process."""

    def __init__(self, turns: list[str], work_s: float) -> None:
        self._turns = turns
        self._work_s = work_s
        self.taken = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        readable = cast(asyncio.Transport, transport)  # uvloop's derives from nothing of asyncio
        self.arrivals = ReceiveSlices(readable, self._work, asyncio.get_running_loop())
        self.arrivals.begin()

    def data_received(self, data: bytes) -> None:
        self.arrivals.add([data])

    def _work(self, payload: bytes) -> None:
        self._turns.append("payload")
        self.taken += len(payload)
        ends_at = time.monotonic() + self._work_s
        while time.monotonic() < ends_at:
            pass


async def _others_turns(size: int) -> tuple[list[str], int]:
    """Return the events while `size` bytes arrived, which were in the socket or followed at once."""
    turns: list[str] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
    ):
        far, _ = server.accept()
        sender = threading.Thread(target=near.sendall, args=(bytes(size),))
        far.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, reader = await loop.create_connection(lambda: Reader(turns, 2 * TURN_S), sock=far)

        async def others() -> None:
            while reader.taken < size:
                turns.append("others")
                await asyncio.sleep(0)

        sender.start()
        await others()
        transport.close()
        sender.join()
    return turns, reader.taken


def test_others_have_a_turn_between_two_reads_of_a_full_socket() -> None:
    """libuv continues reading while it fills its buffer."""
    turns, taken = uvloop.run(_others_turns(4_000_000))
    assert taken == 4_000_000
    assert ("payload", "payload") not in list(pairwise(turns))
