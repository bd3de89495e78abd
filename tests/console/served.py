"""A console of a fake cluster that listens, for tests with a real browser."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import cast

import uvicorn

from ottla.client.admin import Admin
from ottla.console.pages import all_areas
from ottla.console.security import ListenAddress, door_of
from tests.console.fakes import TOKEN, FakeAdmin, app_behind_token, session_with

PATIENCE_S = 60.0


class ServedConsole:
    """A console in a separate thread, for a `with` block. Tests change its admin client between two of its answers."""

    def __init__(self, admin: FakeAdmin) -> None:
        self.admin = admin
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.origin = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="console")

    @property
    def entry(self) -> str:
        """The address that lets a browser in."""
        return f"{self.origin}/?token={TOKEN}"

    def __enter__(self) -> ServedConsole:
        self._thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while self._server is None or not self._server.started:
            assert self._thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the console; repeated calls do nothing."""
        if self._thread.is_alive():
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive()

    def end_news(self) -> None:
        """End the open event streams."""
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)

    def _end(self) -> None:
        assert self._server is not None
        assert self._stopping is not None
        self._stopping.set()
        self._server.should_exit = True

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        door = door_of(ListenAddress("127.0.0.1", int(self.origin.rpartition(":")[2])), token=TOKEN)
        session = session_with(cast(Admin, self.admin), door, all_areas())
        self._stopping = session.ended
        app = app_behind_token(session, door, all_areas(), may_change=True)
        config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None)
        self._server = uvicorn.Server(config)
        session.sampler.start()
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            await session.sampler.stop()
