"""Fetches of a follower by the short cut are those of the long way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from ottla.dataplane.replication.fetch_codec import decode_answer
from ottla.dataplane.replication.fetch_layout import write_fetch
from ottla.dataplane.replication.fetch_values import FetchPosition, FollowerFetch, SessionAnswer
from ottla.dataplane.server.connection import ClientConnection
from ottla.protocol.errors import ErrorCode
from ottla.protocol.session.node_proof import NodeRole, ProvenNode

from .consumers import OTHER_ID, OWN_ID, Shelf, Wire

ID = b"t" * 16


class ProvenWire(Wire):
    """A connection whose peer may have proved to be a broker."""

    number = 1

    def is_broker(self, broker_id: int) -> bool:
        return self.session.is_broker(broker_id)


class Follower:
    """The other broker, on a connection on which it has proved itself."""

    def __init__(self, shelf: Shelf, *, short: bool = True) -> None:
        self.shelf, self.short = shelf, short
        self.adapter = ProvenWire()
        self.adapter.session = self.adapter.session.of_node(ProvenNode(NodeRole.BROKER, OTHER_ID))
        self.session_id = self.epoch = 0
        self.shortcuts = 0
        self.frame = memoryview(b"")

    def send(
        self, *offsets: int, forgotten: tuple[int, ...] = (), broker_id: int = OTHER_ID, leader_epoch: int = 0
    ):
        """Ask from those offsets of partitions 0, 1 and so on, without waiting."""
        positions = [
            FetchPosition((ID, index), leader_epoch, offset, 0 if offset else -1, 0, 1 << 20)
            for index, offset in enumerate(offsets)
        ]
        keys = [(ID, index) for index in forgotten]
        fetch = FollowerFetch(OTHER_ID, OTHER_ID, self.session_id, self.epoch, positions, keys, 1 << 20)
        self.frame = memoryview(bytearray(write_fetch(fetch._replace(broker_id=broker_id), 0, 7)))[4:]
        if not self.short:
            self.adapter.shortcut = None
        elif self.adapter.shortcut is not None:
            self.count(self.adapter.shortcut)
        self.shelf.router.dispatch(cast(ClientConnection, self.adapter), self.frame)

    def count(self, shortcut) -> None:
        def counted(connection: ClientConnection, frame: memoryview, now: float) -> bool:
            self.adapter.shortcut = shortcut
            taken: bool = shortcut(connection, frame, now)
            self.shortcuts += taken
            return taken

        self.adapter.shortcut = counted

    def take(self) -> SessionAnswer:
        correlation_id, answer = decode_answer(memoryview(self.adapter.answers.pop(0)))
        assert correlation_id == 7
        return answer

    def fetch(self, *offsets: int, **fields) -> SessionAnswer:
        self.send(*offsets, **fields)
        answer = self.take()
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return answer


def plain(answer: SessionAnswer) -> tuple[object, ...]:
    rows = [
        (
            part.key,
            part.error,
            part.high_watermark,
            part.log_start_offset,
            part.diverging,
            bytes(part.records or b""),
        )
        for part in answer.partitions
    ]
    return answer.error, rows


def history(shelf: Shelf, follower: Follower) -> list[tuple[object, ...]]:
    shelf.create("t", ID, 2)
    shelf.tell(*(shelf.state(ID, index, isr=[OWN_ID, OTHER_ID]) for index in (0, 1)))
    found = [follower.fetch(0, 0)]
    shelf.append("t", 0, b"a")
    found.append(follower.fetch(0))
    found.append(follower.fetch(1))
    shelf.append("t", 0, b"b" * 50_000)
    shelf.append("t", 1, b"c")
    found.append(follower.fetch(1))
    found.append(follower.fetch(2, 1))
    found.append(follower.fetch())
    found.append(follower.fetch(2, leader_epoch=1))
    found.append(follower.fetch(3))
    found.append(follower.fetch(2, forgotten=(1,)))
    shelf.append("t", 0, b"d" * 200_000)
    found.append(follower.fetch(2))
    return [plain(answer) for answer in found]


async def test_a_history_of_fetches_is_answered_alike(tmp_path: Path) -> None:
    answers = []
    for short in (True, False):
        folder = tmp_path / str(short)
        folder.mkdir()
        shelf = Shelf(folder)
        follower = Follower(shelf, short=short)
        answers.append(history(shelf, follower))
        assert shelf.replica("t").high_watermark == 2
        assert follower.shortcuts == (8 if short else 0), "not the first, nor the one that forgets"
        await shelf.close()
    assert answers[0] == answers[1]


async def test_who_is_another_now_goes_the_long_way(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.create("t", ID, 1)
    follower = Follower(shelf)
    follower.fetch(0)
    follower.fetch(0)
    assert follower.shortcuts == 1
    answer = follower.fetch(0, broker_id=3)
    assert answer.partitions[0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    follower.adapter.session = replace(follower.adapter.session, node=ProvenNode(NodeRole.BROKER, 3))
    answer = follower.fetch(0)
    assert answer.partitions[0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert follower.shortcuts == 1
    await shelf.close()


async def test_a_fault_is_answered_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf(tmp_path)
    shelf.create("t", ID, 1)
    follower = Follower(shelf)
    follower.fetch(0)

    def fail(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(shelf.replicas.sessions, "fetch", fail)
    assert follower.fetch(0).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert follower.shortcuts == 1
    assert "planted" in caplog.text
    await shelf.close()


async def test_a_parked_fetch_is_answered_when_records_arrive(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.create("t", ID, 1)
    follower = Follower(shelf)
    follower.fetch(0)
    at = FetchPosition((ID, 0), 0, 0, -1, 0, 1 << 20)
    fetch = FollowerFetch(OTHER_ID, OTHER_ID, follower.session_id, 1, (at,), (), 1 << 20)
    frame = memoryview(bytearray(write_fetch(fetch, 60_000, 7)))[4:]
    follower.adapter.arrived.clear()
    shortcut = follower.adapter.shortcut
    assert shortcut is not None
    assert shortcut(cast(ClientConnection, follower.adapter), frame, asyncio.get_running_loop().time())
    assert follower.adapter.answers == []
    shelf.append("t", 0, b"late")
    await asyncio.wait_for(follower.adapter.arrived.wait(), 60)
    (part,) = follower.take().partitions
    assert (part.key, part.error) == ((ID, 0), ErrorCode.NONE)
    assert bytes(part.records or b"").endswith(b"late\0")
    await shelf.close()
