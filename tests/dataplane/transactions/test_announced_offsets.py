"""A connection that is silent after AddOffsetsToTxn is closed once, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla.dataplane.transactions import announced_offsets
from ottla.dataplane.transactions.announced_offsets import AnnouncedOffsets
from tests.dataplane.event_loop import event_loop_policy as event_loop_policy

SILENCE_S = 0.1


class FakeConnection:
    """The part of a connection that is used here."""

    def __init__(self) -> None:
        self.closed = False
        self.owes_replies = False
        self.last_activity = asyncio.get_running_loop().time()

    def close(self) -> None:
        self.closed = True

    def speak(self) -> None:
        self.last_activity = asyncio.get_running_loop().time()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announced_offsets, "SILENCE_S", SILENCE_S)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(SILENCE_S / 10)


async def test_a_silent_client_is_hung_up_on_once_the_offsets_are_overdue() -> None:
    watched, connection = AnnouncedOffsets(), FakeConnection()
    began = asyncio.get_running_loop().time()
    watched.added(connection)  # type: ignore[arg-type]
    await until(lambda: connection.closed)
    took_s = asyncio.get_running_loop().time() - began
    assert round(took_s, 3) >= SILENCE_S, "the loop's clock counts milliseconds"


async def test_a_client_that_speaks_or_is_owed_an_answer_keeps_its_connection() -> None:
    watched, busy, owed, lone = AnnouncedOffsets(), FakeConnection(), FakeConnection(), FakeConnection()
    owed.owes_replies = True
    for connection in (busy, owed, lone):
        watched.added(connection)  # type: ignore[arg-type]

    def lone_closed() -> bool:
        busy.speak()
        return lone.closed

    await until(lone_closed)
    assert not busy.closed
    assert not owed.closed
    owed.owes_replies = False
    await until(lambda: owed.closed and busy.closed)


async def test_one_that_ends_its_transaction_is_not_watched_any_more() -> None:
    watched, ended, lone = AnnouncedOffsets(), FakeConnection(), FakeConnection()
    watched.added(ended)  # type: ignore[arg-type]
    watched.ending(ended)  # type: ignore[arg-type]
    watched.ending(ended)  # type: ignore[arg-type]
    watched.added(lone)  # type: ignore[arg-type]
    watched.added(lone)  # type: ignore[arg-type]
    await until(lambda: lone.closed)
    assert not ended.closed
