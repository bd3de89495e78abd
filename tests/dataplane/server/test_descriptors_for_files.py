"""Connections leave descriptors to files, since a log may have to be opened for its next record."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NoReturn
from unittest import mock

import pytest

from ottla.dataplane.server.listener import descriptors_of_connections

from .conftest import FrameServer, echo, start, until

SPARE = 40


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Lower the limit so that only few descriptors, above the highest used one, are free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1 + 32 + SPARE, hard)
    )
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def is_served(server: FrameServer) -> asyncio.StreamWriter | None:
    """Return a connection to the server; None if it was closed at once."""
    before = len(server.connections)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    ended = asyncio.create_task(reader.read(1))
    async with asyncio.timeout(60):
        while len(server.connections) == before:
            if ended.done():
                writer.close()
                return None
            await asyncio.sleep(0.001)
    ended.cancel()
    return writer


async def test_whoever_comes_when_few_descriptors_are_left_is_closed(
    cleanup: ExitStack, few_descriptors: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    server = start(cleanup, FrameServer(echo))
    served = []
    while (writer := await is_served(server)) is not None:
        served.append(writer)
    assert served
    assert "kept for files" in caplog.text
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    for fd in files:
        os.close(fd)
    for writer in served:
        writer.close()
    await until(lambda: not server.connections)
    async with asyncio.timeout(60):
        while (later := await is_served(server)) is None:
            await asyncio.sleep(0.01)
    later.close()


class Refusing:
    """A listening socket whose kernel refuses every connection."""

    def __init__(self, real: socket.socket, error: int) -> None:
        self._real, self._error = real, error

    def fileno(self) -> int:
        return self._real.fileno()

    def accept(self) -> NoReturn:
        raise OSError(self._error, os.strerror(self._error))


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EPERM, errno.EPROTO])
async def test_what_the_kernel_refuses_fails_nobody_who_has_it_accept(
    cleanup: ExitStack, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    """A broker exits if it cannot apply its metadata; with each change it accepts the waiting connections."""
    caplog.set_level(logging.WARNING)
    server = start(cleanup, FrameServer(echo))
    listener = server.listener
    real = listener._socket
    with mock.patch.object(listener, "_socket", Refusing(real, error)):
        listener.accept_waiting()
    assert os.strerror(error) in caplog.text
    async with asyncio.timeout(60):
        writer = await is_served(server)
    assert writer is not None
    writer.close()


@pytest.mark.parametrize(
    ("limit", "below"), [(256, 224), (1_024, 960), (20_000, 18_750), (resource.RLIM_INFINITY, sys.maxsize)]
)
def test_how_many_are_kept(limit: int, below: int) -> None:
    assert descriptors_of_connections(limit) == below
