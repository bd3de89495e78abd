"""Plain datagram sockets between virtual hosts, on a network that the test controls."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.simulation.machine.network_rooms import PORT, Asker, Listener, Room, ask, installed


@pytest.fixture
def room() -> Iterator[Room]:
    with installed(Room()) as room:
        yield room


def test_datagrams_arrive_late_twice_or_never(room: Room) -> None:
    listener = Listener()
    room.start(1, listener)
    room.run(0.01)
    asker = ask(room, Asker(count=5))
    room.run(2)
    assert sorted(listener.seen) == [b"0", b"1", b"2", b"3", b"4"]
    assert sorted(asker.answers) == [b"got %d" % number for number in range(5)]
    listener.seen.clear()
    room.network.disturb_datagrams("h1", "h2", loss=0.2, duplicate=0.2, reorder=0.2)
    ask(room, Asker(count=300))
    room.run(2)
    numbers = [int(data) for data in listener.seen]
    assert 200 < len(set(numbers)) < 300
    assert len(numbers) > len(set(numbers))
    assert numbers != sorted(numbers)
    room.network.heal()
    room.network.cut("h1", "h2")
    listener.seen.clear()
    ask(room, Asker(count=10))
    room.run(2)
    assert listener.seen == []
    counts = room.network.counts
    assert min(counts[f"datagrams {fault}"] for fault in ("lost", "duplicated", "reordered", "cut")) > 0


def test_a_connected_datagram_socket_hears_that_nobody_is_there(room: Room) -> None:
    asker = ask(room, Asker())
    room.run(0.5)
    assert isinstance(asker.errors[0], ConnectionRefusedError)
    room.hosts[0].lose_power()
    asker = ask(room, Asker())
    room.run(2)
    assert asker.errors == []


def test_on_the_own_host_a_refusal_is_there_at_once(room: Room) -> None:
    heard: list[object] = []

    def probe() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.setblocking(False)
            asking.connect(("10.0.0.2", PORT))
            asking.send(b"?")
            try:
                heard.append(asking.recv(10))
            except OSError as error:
                heard.append(type(error))

    room.start(2, None).spawn_thread(probe, "probe")
    room.run(0.1)
    assert heard == [ConnectionRefusedError]
