"""Stock asyncio and plain sockets between virtual hosts, on a network that the test controls."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections.abc import Iterator

import pytest

from tests.simulation.machine.network_rooms import PORT, Asker, Listener, Room, ask, installed
from tests.simulation.machine.process import Process


@pytest.fixture
def room() -> Iterator[Room]:
    with installed(Room()) as room:
        yield room


class Server:
    """A server that answers every line in capitals, and records its observations."""

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


class LineSender:
    """A client that sends a line now and then; it keeps the answers and the error that ended it."""

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
        self.ended_at = time.monotonic()


def answers(count: int) -> list[bytes]:
    return [b"LINE %d OF A CLIENT\n" % number for number in range(count)]


def both(room: Room, client: LineSender | None = None) -> tuple[Server, LineSender, Process, Process]:
    server, client = Server(), client or LineSender()
    serving = room.start(1, server)
    room.run(0.01)
    return server, client, serving, room.start(2, client)


def test_streams_of_stock_asyncio(room: Room) -> None:
    server, client, _, _ = both(room)
    room.run(5)
    assert client.ended == "done"
    assert client.answers == answers(10)
    assert server.ended == ["end"]
    assert any("connected" in line for line in room.lines)


def test_a_connection_to_a_name_and_to_the_own_host(room: Room) -> None:
    server = Server()
    room.start(1, server)
    room.run(0.01)
    remote, own = LineSender("h1"), LineSender("127.0.0.1")

    async def by_number() -> None:
        # Names are resolved by a pool of threads, which this test does not replace.
        remote.address = str(socket.getaddrinfo("h1", PORT, type=socket.SOCK_STREAM)[0][4][0])
        await remote()

    room.start(2, by_number)
    room.start(1, own)
    room.run(5)
    assert remote.ended == own.ended == "done"


def test_a_slow_link_delays_every_answer(room: Room) -> None:
    room.network.slow("h1", "h2", 0.1)
    _, client, _, _ = both(room, LineSender(lines=10, pause_s=0))
    start = room.machine.now
    room.run(10)
    assert client.ended == "done"
    assert client.ended_at - start > 2.0


def test_lost_segments_come_again(room: Room) -> None:
    room.network.lossy("h1", "h2", 0.3)
    _, client, _, _ = both(room, LineSender(lines=30))
    room.run(60)
    assert client.ended == "done"
    assert client.answers == answers(30)
    assert room.network.counts["segments lost"] > 5


def test_a_connection_survives_a_short_cut(room: Room) -> None:
    server, client, _, _ = both(room, LineSender(lines=10, pause_s=0.1))
    room.run(0.35)
    room.network.cut("h1", "h2")
    room.run(5)
    before = len(client.answers)
    assert before < 10
    room.network.heal()
    room.run(1.1)
    assert len(client.answers) > before
    room.run(5)
    assert client.answers == answers(10)
    assert server.ended == ["end"]


def test_a_connection_ends_in_a_long_cut_at_the_side_that_sends(room: Room) -> None:
    server, client, _, _ = both(room, LineSender(lines=100, pause_s=0.1))
    room.run(0.35)
    start = room.machine.now
    room.network.isolate("h1")
    room.run(20)
    assert isinstance(client.ended, TimeoutError)
    assert 14 < client.ended_at - start < 17
    assert server.ended == []  # it waits for a line, and gets no notice


@pytest.mark.parametrize("there", [True, False])
def test_a_one_way_cut_is_a_cut_for_the_answers(room: Room, there: bool) -> None:
    server, client, _, _ = both(room, LineSender(lines=100, pause_s=0.1))
    room.run(0.35)
    seen = len(server.seen)
    room.network.cut(*(("h2", "h1") if there else ("h1", "h2")), both=False)
    room.run(3)
    assert len(server.seen) == (seen if there else seen + 1)
    room.network.heal()
    room.run(2)
    assert len(server.seen) > seen + 3
    assert client.answers == answers(len(client.answers))
    room.network.cut(*(("h2", "h1") if there else ("h1", "h2")), both=False)
    room.run(20)
    assert isinstance(client.ended if there else server.ended[0], TimeoutError)


def test_peers_of_a_killed_process_hear_it(room: Room) -> None:
    _, client, serving, _ = both(room, LineSender(lines=100, pause_s=0.1))
    room.run(0.35)
    serving.kill()
    room.run(0.2)
    assert client.ended == "end" or isinstance(client.ended, ConnectionResetError)


def test_peers_of_a_host_without_power_hear_nothing_until_it_is_back(room: Room) -> None:
    _, client, _, _ = both(room, LineSender(lines=100, pause_s=0.1))
    room.run(0.35)
    room.hosts[0].lose_power()
    room.run(5)
    assert client.ended is None
    room.hosts[0].power_on()
    room.run(1.1)
    assert isinstance(client.ended, ConnectionResetError)


def test_a_connect_is_refused_or_gets_no_answer(room: Room) -> None:
    refused, cut, powerless = LineSender("10.0.0.1"), LineSender("10.0.0.1"), LineSender("10.0.0.3")
    room.start(2, refused)
    room.run(1)
    assert isinstance(refused.ended, ConnectionRefusedError)
    room.network.cut("h1", "h2")
    room.hosts[2].lose_power()
    room.start(2, cut)
    room.start(2, powerless)
    room.run(9)
    assert cut.ended is powerless.ended is None
    room.run(3)
    assert isinstance(cut.ended, TimeoutError)
    assert isinstance(powerless.ended, TimeoutError)
    assert room.network.counts["connects refused"] == 1
    assert room.network.counts["connects timed out"] == 2


def test_a_connect_that_began_in_a_cut_succeeds_after_it(room: Room) -> None:
    room.network.cut("h1", "h2")
    server, client, _, _ = both(room)
    room.run(2)
    assert server.seen == []
    room.network.heal("h1", "h2")
    room.run(5)
    assert client.ended == "done"


def test_a_port_is_free_again_once_its_process_is_dead(room: Room) -> None:
    _, _, serving, _ = both(room)
    server = Server()
    in_use = room.start(1, server)
    room.run(0.1)
    assert isinstance(in_use.failure, OSError)
    serving.kill()
    again = room.start(1, server)
    room.run(0.1)
    assert again.alive


async def _accepted(backlog: int = 5) -> tuple[socket.socket, socket.socket]:
    listening = socket.socket()
    listening.setblocking(False)
    listening.bind(("0.0.0.0", PORT))
    listening.listen(backlog)
    accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
    accepted.setblocking(False)
    return listening, accepted


@pytest.mark.parametrize("cut", [False, True])
def test_a_sender_waits_for_a_reader_who_does_not_read(room: Room, cut: bool) -> None:
    sent = 0
    received = 0

    async def slow_reader() -> None:
        nonlocal received
        listening, accepted = await _accepted()
        await asyncio.sleep(1)
        with listening, accepted:
            while data := await asyncio.get_running_loop().sock_recv(accepted, 100_000):
                received += len(data)

    async def sender() -> None:
        nonlocal sent
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("10.0.0.1", PORT))
            if cut:
                room.network.cut("h1", "h2", both=False)  # the acknowledgements, not the data
            for _ in range(20):
                await loop.sock_sendall(sock, bytes(100_000))
                sent += 100_000

    room.start(1, slow_reader)
    room.run(0.01)
    room.start(2, sender)
    room.run(0.9)
    assert 200_000 <= sent <= (262_144 if cut else 600_000)
    if cut:
        room.run(1)
        assert received == 262_144
        room.network.heal()
    room.run(3)
    assert received == sent == 2_000_000


@pytest.mark.parametrize("seed", range(6))
def test_bytes_arrive_as_they_were_sent_whatever_happens(seed: int) -> None:
    size, sent, received = 0, hashlib.sha256(), hashlib.sha256()

    async def reader() -> None:
        nonlocal size
        loop = asyncio.get_running_loop()
        _, accepted = await _accepted()
        buffer = bytearray(70_000)
        while count := await loop.sock_recv_into(accepted, buffer):
            received.update(buffer[:count])
            size += count

    async def sender() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("10.0.0.1", PORT))
            for number in range(300):
                data = b"%d" % number * (number * 17 % 5000)
                sent.update(data)
                await loop.sock_sendall(sock, data)
                await asyncio.sleep(number % 7 * 0.003)

    with installed(Room(seed)) as room:
        network, random = room.network, room.machine.random
        reading = room.start(1, reader)
        room.run(0.01)
        sending = room.start(2, sender)
        for _ in range(8):
            room.run(random.uniform(0, 0.1))
            network.slow("h1", "h2", random.uniform(0, 0.05), random.uniform(0, 0.05))
            network.lossy("h1", "h2", random.uniform(0, 0.3))
            network.cut(*random.sample(("h1", "h2"), 2), both=random.random() < 0.5)
            room.run(random.uniform(0, 0.4))
            network.heal()
        room.run(4)
    assert not sending.alive
    assert not reading.alive
    assert size > 2_000_000
    assert received.digest() == sent.digest()
    assert min(network.counts[f"segments {fault}"] for fault in ("held", "split")) > 0


def test_closing_with_unread_data_resets_the_peer(room: Room) -> None:
    ends: list[object] = []

    async def rude() -> None:
        _, accepted = await _accepted()
        await asyncio.sleep(0.1)
        accepted.close()

    async def polite() -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, ("10.0.0.1", PORT))
        await loop.sock_sendall(sock, b"hello")
        for attempt in (lambda: loop.sock_recv(sock, 10), lambda: loop.sock_sendall(sock, b"again")):
            try:
                ends.append(await attempt())
            except OSError as error:
                ends.append(type(error))

    room.start(1, rude)
    room.run(0.01)
    room.start(2, polite)
    room.run(1)
    assert ends == [ConnectionResetError, BrokenPipeError]


def test_one_side_may_end_while_the_other_goes_on(room: Room) -> None:
    answer = b""

    async def total() -> None:
        loop = asyncio.get_running_loop()
        _, accepted = await _accepted()
        size = 0
        while data := await loop.sock_recv(accepted, 1000):
            size += len(data)
        await loop.sock_sendall(accepted, b"%d" % size)
        accepted.close()

    def asking() -> None:
        nonlocal answer
        with socket.create_connection(("10.0.0.1", PORT), 1.0) as sock:
            sock.sendall(bytes(400_000))
            sock.shutdown(socket.SHUT_WR)
            while data := sock.recv(3):
                answer += data

    room.start(1, total)
    room.run(0.01)
    room.start(2, None).spawn_thread(asking, "asking")
    room.run(5)
    assert answer == b"400000"


def played(seed: int) -> str:
    """Return the digest of a run with all features."""
    with installed(Room(seed)) as room:
        room.network.lossy("h1", {"h2", "h3"}, 0.1)
        server, _, serving, _ = both(room, LineSender(lines=50))
        listener = Listener()
        room.start(1, listener)
        room.start(3, LineSender(lines=50))
        ask(room, Asker(count=20), 3)
        room.run(0.5)
        room.network.isolate("h3")
        room.run(1)
        room.network.heal()
        serving.kill()
        room.run(1)
        room.start(1, server)
        room.start(2, LineSender(lines=5))
        room.run(2)
        room.hosts[0].lose_power()
        room.run(3)
        return room.digest()


def test_the_same_seed_gives_the_same_run() -> None:
    assert played(7) == played(7)
    assert played(7) != played(8)
