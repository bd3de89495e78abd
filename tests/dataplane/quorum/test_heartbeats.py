"""The heartbeat thread, and its reports to each quorum node about received answers."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import uvloop

from ottla.dataplane.quorum.heartbeats import HeartbeatThread
from ottla.protocol.session.liveness_datagrams import DatagramHeartbeat, DatagramSeal, HeartbeatAnswer

from .cluster import QuorumAndSessions, until

INCARNATION = b"i" * 16
INTERVAL_S = 0.1


class FakeNode:
    """The UDP port of a quorum node, which answers only as the test permits."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.key = bytes([node_id]) * 32
        self.seal = DatagramSeal(self.key, is_broker=False)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(5)
        self._sender = ("", 0)

    def next(self) -> DatagramHeartbeat:
        data, self._sender = self.socket.recvfrom(512)
        heartbeat = self.seal.decode(data)
        assert isinstance(heartbeat, DatagramHeartbeat)
        return heartbeat

    def answer(
        self, number: int, *, seal: DatagramSeal | None = None, incarnation: bytes = INCARNATION
    ) -> None:
        answer = HeartbeatAnswer(self.node_id, incarnation, number)
        self.socket.sendto((seal or self.seal).encode(answer), self._sender)


@contextmanager
def beating(nodes: int = 1) -> Iterator[tuple[HeartbeatThread, list[FakeNode]]]:
    quorum = [FakeNode(101 + number) for number in range(nodes)]
    addresses = {node.node_id: node.socket.getsockname() for node in quorum}
    thread = HeartbeatThread(1, INCARNATION, "127.0.0.1", addresses, interval_ms=int(INTERVAL_S * 1000))
    for node in quorum:
        thread.link_opened(node.node_id, DatagramSeal(node.key, is_broker=True))
    thread.start()
    try:
        yield thread, quorum
    finally:
        thread.stop()
        for node in quorum:
            node.socket.close()


def test_each_node_is_told_its_own_answers() -> None:
    with beating(2) as (_, (node, other)):
        first = node.next()
        assert first.answered == 0
        node.answer(first.counter)
        assert node.next().answered == first.counter
        other.next()
        assert other.next().answered == 0


def test_old_and_foreign_answers_are_not_heard() -> None:
    with beating() as (thread, (node,)):
        first = node.next()
        node.answer(first.counter)
        second = node.next()
        node.answer(first.counter)
        node.answer(second.counter, incarnation=b"j" * 16)
        node.answer(second.counter, seal=DatagramSeal(b"t" * 32, is_broker=False))
        node.node_id = 109
        node.answer(second.counter)
        node.next()
        assert node.next().answered == first.counter
        assert thread.answered(101) == first.counter


def test_without_a_link_there_are_no_heartbeats_and_a_new_link_has_new_keys() -> None:
    with beating(2) as (thread, (node, other)):
        node.next()
        thread.link_lost(node.node_id)
        for _ in range(3):
            other.next()
        node.socket.settimeout(3 * INTERVAL_S)
        with pytest.raises(TimeoutError):
            while True:  # messages in transit
                node.next()
        node.seal = DatagramSeal(b"n" * 32, is_broker=False)
        thread.link_opened(node.node_id, DatagramSeal(b"n" * 32, is_broker=True))
        assert node.next().broker_id == 1


def test_an_overdue_answer_is_asked_for_more_often_until_it_comes() -> None:
    def pause(of: int) -> float:
        times = []
        for _ in range(of):
            node.next()
            times.append(time.monotonic())
        return sorted(after - before for before, after in pairwise(times))[of // 2]

    with beating() as (_, (node,)):
        assert pause(7) > INTERVAL_S / 2  # a node that never answered gets no extra heartbeats
        node.answer(node.next().counter)
        node.next()
        node.next()
        assert pause(7) < INTERVAL_S / 2


def test_what_was_heard_over_tcp_counts_too() -> None:
    with beating() as (thread, (node,)):
        number = thread.next_number()
        thread.answered_over_tcp(101, number)
        thread.answered_over_tcp(101, number - 1)
        node.next()
        assert node.next().answered == number
        assert node.next().counter > number


@pytest.mark.parametrize("heard_over", ["tcp", "udp"])
def test_a_broker_that_hears_answers_in_one_way_only_is_alive_and_without_any_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard_over: str
) -> None:
    """Only the answers are lost: a session whose own packets are lost ends on its own."""
    deaf = {"tcp": False, "udp": False}
    hears_over_tcp, hears_over_udp = HeartbeatThread.answered_over_tcp, HeartbeatThread._heard

    def over_tcp(thread: HeartbeatThread, node_id: int, number: int) -> None:
        if not deaf["tcp"]:
            hears_over_tcp(thread, node_id, number)

    def over_udp(thread: HeartbeatThread, answer: HeartbeatAnswer) -> None:
        if not deaf["udp"]:
            hears_over_udp(thread, answer)

    monkeypatch.setattr(HeartbeatThread, "answered_over_tcp", over_tcp)
    monkeypatch.setattr(HeartbeatThread, "_heard", over_udp)

    async def scenario() -> None:
        async with asyncio.timeout(90), QuorumAndSessions(tmp_path, session_timeout_ms=3000) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            deaf["udp" if heard_over == "tcp" else "tcp"] = True
            await asyncio.sleep(5)  # longer than a session may be silent: nothing may happen
            assert not session.fenced
            deaf[heard_over] = True
            took = await until(lambda: session.fenced)
            assert took > 0.5
            deaf[heard_over] = False
            await session.unfenced()

    uvloop.run(scenario())
