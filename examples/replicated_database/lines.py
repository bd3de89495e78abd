"""The protocol of nodes and clients over TCP: a JSON object on each line, answered by another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

LINE_BYTES_MAX = 32 << 20
Said = dict[str, Any]


class Line:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def say(self, what: Said) -> None:
        """Send an object. Raises ConnectionError."""
        self._writer.write(json.dumps(what).encode() + b"\n")
        await self._writer.drain()

    async def hear(self) -> Said:
        """Return the next object. Raises ConnectionError at the end, ValueError if a line is not an object."""
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the connection was closed")
        heard = json.loads(line)
        if not isinstance(heard, dict):
            raise ValueError(
                'each line is an object of JSON, as in {"view": {"sql": "SELECT 1", "args": []}}'
            )
        return heard

    async def ask(self, what: Said) -> Said:
        """Send an object and return the answer. Raises ConnectionError."""
        await self.say(what)
        return await self.hear()

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@asynccontextmanager
async def dialled(address: str) -> AsyncIterator[Line]:
    """Open a connection to `host:port`. Raises ConnectionError."""
    host, _, port = address.rpartition(":")
    line = Line(*await asyncio.open_connection(host, int(port), limit=LINE_BYTES_MAX))
    try:
        yield line
    finally:
        await line.close()
