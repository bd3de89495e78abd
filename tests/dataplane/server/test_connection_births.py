"""The age limit of a connection, by which the quorum distinguishes a delayed request from one of a
reconnected client.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.server.server import Server
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


async def test_a_connection_is_no_older_than_the_moment_when_nobody_waited() -> None:
    server = Server(HandlerTable())
    position = 10
    server.metadata_offset = lambda: position
    listener = server.listen("TEST", "127.0.0.1", 0)
    early = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(2)]
    server.start()
    try:
        await until(lambda: len(server.connections) == 2)
        assert {connection.birth for connection in server.connections} == {-1}, (
            "they came before this server looked"
        )
        await until(lambda: listener.empty_at == 10)
        position = 20
        server.image_changed(ClusterImage(), ImageDelta())
        later = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(2)]
        await until(lambda: len(server.connections) == 4)
        found = list(server.connections)
        assert {connection.birth for connection in found[2:]} == {20}
        assert [connection.number for connection in found] == [1, 2, 3, 4]
        for client in (*early, *later):
            client.close()
    finally:
        server.close()
