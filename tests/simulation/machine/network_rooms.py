"""Three hosts on a virtual network, with processes that exchange datagrams."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncio_dgram
import pytest

from tests.simulation.machine import sockets
from tests.simulation.machine.host import Host
from tests.simulation.machine.machine import Machine
from tests.simulation.machine.network import Network
from tests.simulation.machine.process import Process
from tests.simulation.machine.trace import Trace

PORT = 9092
_KEPT: list[Room] = []
"""Rooms that are never collected, since code of their processes must not run afterwards."""


class _NoDisk:
    """A disk for hosts that store nothing."""

    def lose_power(self, *, keeps_some: bool = True) -> None:
        """Do nothing."""


class Room:
    """Three hosts on a good network, and the processes that run on them."""

    def __init__(self, seed: int = 1) -> None:
        _KEPT.append(self)
        self.lines: list[str] = []
        self.machine = Machine(seed, Trace(self.lines.append))
        self.machine.network = self.network = Network(self.machine)
        self.hosts = [Host(self.machine, f"h{n}", f"10.0.0.{n}", _NoDisk()) for n in (1, 2, 3)]  # type: ignore[arg-type]

    def start(self, host: int, main: Any) -> Process:
        return Process(self.hosts[host - 1], f"p{host}", main)

    def run(self, seconds: float) -> None:
        self.machine.run(self.machine.now + seconds)

    def digest(self) -> str:
        return self.machine.trace.digest()


@contextmanager
def installed(room: Room) -> Iterator[Room]:
    """Replace sockets and the clock by those of the room."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in sockets.replacements(room.machine):
            patch.setattr(owner, name, value)
        patch.setattr(time, "monotonic", lambda: room.machine.now)
        yield room


class Listener:
    """A receiver that keeps its datagrams."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    async def __call__(self) -> None:
        stream = await asyncio_dgram.bind(("10.0.0.1", PORT))
        while True:
            data, sender = await stream.recv()
            self.seen.append(data)
            await stream.send(b"got " + data, sender)


class Asker:
    """A sender of datagrams that keeps the answers and refusals."""

    def __init__(self, address: str = "10.0.0.1", count: int = 1) -> None:
        self.address = address
        self.count = count
        self.answers: list[bytes] = []
        self.errors: list[OSError] = []

    def __call__(self) -> None:
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asking.connect((self.address, PORT))
        asking.setblocking(False)
        waiting = asking.fileno()
        assert waiting > select.POLLIN
        for number in range(self.count):
            asking.send(b"%d" % number)
        while True:
            asking.settimeout(1.0)
            try:
                self.answers.append(asking.recv(100))
            except TimeoutError:
                return
            except OSError as error:
                self.errors.append(error)
                return


def ask(room: Room, asker: Asker, host: int = 2) -> Asker:
    room.start(host, None).spawn_thread(asker, "asker")
    return asker
