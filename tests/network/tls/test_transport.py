"""A transport waits for the same events as its stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from ottla.network.tls.stream import TlsStream
from ottla.network.tls.transport import TlsTransport

FD = 7
NEWS = b"news"


class Stream:
    """A stream with news. It may owe data to the socket, and hold received data."""

    def __init__(self) -> None:
        self.owes = self.is_full = self.is_broken = self.held = False
        self.ends: list[str] = []

    def fileno(self) -> int:
        return FD

    def holds_some(self) -> bool:
        return self.held

    def recv_into(self, space: memoryview) -> int:
        if self.owes:
            raise BlockingIOError
        space[: len(NEWS)] = NEWS
        return len(NEWS)

    def send(self, data: bytes) -> int:
        return len(data)

    def flush(self) -> bool:
        if self.is_broken:
            self.owes = False
            raise ConnectionResetError
        self.owes = self.is_full
        return not self.is_full

    def say_end(self) -> None:
        self.ends.append("said")
        self.owes = False

    def close(self) -> None:
        self.ends.append("closed")


class Loop:
    """The watched directions, and due callbacks."""

    def __init__(self) -> None:
        self.reader: Callable[[], object] | None = None
        self.writer: Callable[[], object] | None = None
        self.due: list[Callable[[], object]] = []

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None:
        self.reader = callback

    def remove_reader(self, fd: int, /) -> None:
        self.reader = None

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> None:
        self.writer = callback

    def remove_writer(self, fd: int, /) -> None:
        self.writer = None

    def call_soon(self, callback: Callable[[], object], /) -> None:
        self.due.append(callback)

    def turn(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


class Waiting:
    """A transport whose stream owes data, with a reader and a writer that note their turns."""

    def __init__(self) -> None:
        self.stream, self.loop = Stream(), Loop()
        self.transport = TlsTransport(cast(TlsStream, self.stream), self.loop)
        self.turns: list[str] = []
        self.transport.add_reader(FD, lambda: self.turns.append("read"))
        self.stream.owes = self.stream.is_full = True
        with pytest.raises(BlockingIOError):
            self.transport.recv_into(memoryview(bytearray(10)))


def test_what_the_stream_owes_is_sent_before_more_is_read() -> None:
    waiting = Waiting()
    loop = waiting.loop
    assert loop.reader is None, "it would be called over and over in vain"
    assert loop.writer is not None
    loop.writer()
    assert (loop.reader, loop.writer is None) == (None, False), "the socket took nothing"
    waiting.stream.is_full = False
    loop.writer()
    assert loop.writer is None, "no writer is left"
    assert loop.reader is not None
    loop.reader()
    assert waiting.turns == ["read"]


def test_a_writer_waits_until_nothing_is_owed() -> None:
    waiting = Waiting()
    waiting.transport.add_writer(FD, lambda: waiting.turns.append("write"))
    assert waiting.loop.writer is not None
    waiting.loop.writer()
    assert waiting.turns == []
    waiting.stream.is_full = False
    waiting.loop.writer()
    assert waiting.turns == ["write"]
    waiting.transport.remove_writer(FD)
    assert waiting.loop.writer is None


def test_a_reader_is_told_of_a_connection_that_breaks_meanwhile() -> None:
    waiting = Waiting()
    waiting.stream.is_broken = True
    assert waiting.loop.writer is not None
    waiting.loop.writer()
    assert (waiting.loop.reader is not None, waiting.loop.writer) == (True, None)


def test_what_is_held_is_offered_once_in_each_turn_of_the_loop() -> None:
    stream, loop, read = Stream(), Loop(), bytearray(10)
    transport, turns = TlsTransport(cast(TlsStream, stream), loop), []
    transport.add_reader(FD, lambda: turns.append(1))
    stream.held = True
    assert transport.recv_into(memoryview(read)) == len(NEWS)
    for count in range(1, 4):
        loop.turn()
        assert len(turns) == count
    transport.remove_reader(FD)
    loop.turn()
    assert (len(turns), loop.due) == (3, [])
    transport.add_reader(FD, lambda: turns.append(1))
    loop.turn()
    assert len(turns) == 4, "a later callback is called, too"


def test_the_end_is_said_and_nothing_is_waited_for() -> None:
    waiting = Waiting()
    waiting.transport.close()
    assert waiting.stream.ends == ["said", "closed"]
    assert (waiting.loop.reader, waiting.loop.writer) == (None, None)
