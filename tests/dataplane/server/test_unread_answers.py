"""Clients that do not read their answers: the broker keeps a bounded number of bytes for them."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import USER, Principal
from ottla.dataplane.server import ClientRequest, ConnectionLimits
from ottla.dataplane.server.unread_answers import PATIENCE_S, UnreadAnswers

from .conftest import FrameServer, frame, read_frame, start, until

KIB = 1024


@dataclass(eq=False)
class Peer:
    unread: UnreadAnswers
    session: PeerSession
    closed: bool = False

    def close(self) -> None:
        self.closed = True
        self.unread.emptied(self)


def peer(unread: UnreadAnswers, name: str, host: str) -> Peer:
    return Peer(unread, PeerSession(Principal(USER, name), host, "L"))


def test_those_blocked_longest_are_closed_and_others_have_their_share() -> None:
    unread = UnreadAnswers(100)
    greedy = [peer(unread, "mallory", f"192.0.2.{number}") for number in range(6)]
    ann = peer(unread, "ann", "198.51.100.1")
    unread.note(ann, 30, 0.0)
    for number, each in enumerate(greedy):
        unread.note(each, 10, float(number) / 10)
    assert not any(each.closed for each in greedy), "they have just begun"
    unread.note(greedy[-1], 20, PATIENCE_S + 0.15)
    assert [each.closed for each in greedy] == [True, True, False, False, False, False]
    assert not ann.closed, "that one has its own share"
    unread.budget.check()
    assert unread.budget.total == 30 + 10 * 3 + 20


def test_beyond_twice_the_budget_nobody_has_time() -> None:
    unread = UnreadAnswers(100)
    peers = [peer(unread, f"u{number}", f"192.0.2.{number}") for number in range(30)]
    for each in peers:
        unread.note(each, 20, 0.0)
    assert unread.budget.total <= 200
    assert not peers[-1].closed
    assert peers[0].closed


def test_who_reads_again_is_not_counted() -> None:
    unread = UnreadAnswers(100)
    reader = peer(unread, "ann", "192.0.2.1")
    for round_s in range(10):
        unread.note(reader, 40, float(10 * round_s))
        unread.emptied(reader)
    assert (reader.closed, unread.budget.total) == (False, 0)
    unread.note(reader, 60, 100.0)
    assert not reader.closed


@pytest.mark.parametrize("order", ["unread", "behind one that is parked"])
async def test_connections_that_read_no_answers_are_closed_when_there_are_too_many(
    cleanup: ExitStack, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Four hundred connections kept 240 MB, and their number was not bounded."""
    caplog.set_level(logging.INFO)

    def answer(request: ClientRequest, body: memoryview) -> None:
        if bytes(body[:4]) != b"park":
            request.connection.answer(request, (frame(bytes(300 * KIB)),))

    unread_bytes = 2048 * KIB
    limits = ConnectionLimits(queued_bytes_max=200 * KIB)
    server = start(cleanup, FrameServer(answer, limits=limits, unread_bytes=unread_bytes))
    for _ in range(40):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        cleanup.callback(client.close)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", server.listener.port))
        first = b"park1234" if order != "unread" else b"answer it"
        client.send(frame(first) + 20 * frame(b"answer it"))
    largest = 0

    def are_closed() -> bool:
        nonlocal largest
        largest = max(largest, sum(connection.held_bytes for connection in server.connections))
        return "has not read" in caplog.text

    await until(are_closed)
    assert are_closed()
    assert largest <= 2 * unread_bytes + 40 * 64 * KIB, "of which each may hold 64 KiB without being counted"
    # Another client is answered all the same.
    reader, writer = await server.connect()
    cleanup.callback(writer.close)
    writer.write(frame(b"answer it"))
    assert len(await asyncio.wait_for(read_frame(reader), 60)) == 300 * KIB
