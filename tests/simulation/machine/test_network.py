"""Stock asyncio and plain sockets between virtual hosts, on a network that does what it is told."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
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
Main = Callable[[], Awaitable[object]]


class _NoDisk:
    """The hosts here keep nothing."""

    def lose_power(self) -> None:
        """Nothing is lost."""


class Room:
    """Three hosts on a good network, and processes to run on them."""

    def __init__(self, seed: int = 1) -> None:
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
    """Sockets and the clock are those of the room."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in sockets.replacements(room.machine):
            patch.setattr(owner, name, value)
        patch.setattr(time, "monotonic", lambda: room.machine.now)
        yield room


@pytest.fixture
def room() -> Iterator[Room]:
    with installed(Room()) as room:
        yield room


class Server:
    """Answers every line with itself, in capitals; keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.ended: list[object] = []

    async def __call__(self) -> None:
        server = await asyncio.start_server(self._serve, "0.0.0.0", PORT)
        await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.seen.append(line)
                writer.write(line.upper())
            self.ended.append("end")
        except OSError as error:
            self.ended.append(error)
        writer.close()


class Client:
    """Sends a line now and then; keeps the answers and what ended it."""

    def __init__(self, address: str = "10.0.0.1", lines: int = 10, pause_s: float = 0.01) -> None:
        self.address = address
        self.lines = lines
        self.pause_s = pause_s
        self.answers: list[bytes] = []
        self.ended: object = None
        self.ended_at = 0.0

    async def __call__(self) -> None:
        try:
            reader, writer = await asyncio.open_connection(self.address, PORT)
            for number in range(self.lines):
                writer.write(b"line %d of a client\n" % number)
                answer = await reader.readline()
                if not answer:
                    self.ended = "end"
                    break
                self.answers.append(answer)
                await asyncio.sleep(self.pause_s)
            else:
                self.ended = "done"
            writer.close()
        except OSError as error:
            self.ended = error
        self.ended_at = asyncio.get_running_loop().time()


def answers(count: int) -> list[bytes]:
    return [b"LINE %d OF A CLIENT\n" % number for number in range(count)]


def both(room: Room, client: Client | None = None) -> tuple[Server, Client, Process, Process]:
    server, client = Server(), client or Client()
    serving = room.start(1, server)
    room.run(0.01)
    return server, client, serving, room.start(2, client)


def test_streams_of_stock_asyncio(room: Room) -> None:
    server, client, _, _ = both(room)
    room.run(5)
    assert client.ended == "done" and client.answers == answers(10)
    assert server.ended == ["end"]
    assert any("connected" in line for line in room.lines)
