"""A node on a host without power does not answer; a dialling node must notice its return soon."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from ottla.metadata_quorum.node_connection import NodeConnectionLimits
from ottla.metadata_quorum.raft.transport import Listener, PeerLinks, TransportTimes
from ottla.protocol.session.handshake import Identity, LinkSecurity
from ottla.protocol.session.node_secrets import Secrets

from .raft_support import SECRET, until


@contextmanager
def silent_address() -> Iterator[tuple[str, int]]:
    """Yield the address of a listener that accepts no connection, because its queue is full."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        queued = [socket.socket() for _ in range(3)]
        for client in queued:
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        yield listening.getsockname()
        for client in queued:
            client.close()


async def test_a_node_that_does_not_answer_is_dialled_again_and_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    nothing = Listener(lambda peer: None, lambda peer: None, lambda *message: None, lambda: None)
    with silent_address() as address:
        times = TransportTimes(reconnect_ms=10, connect_ms=50)
        me = Identity(2, b"c" * 16, "c")
        links = PeerLinks(
            me, LinkSecurity(Secrets((SECRET,))), {1: address}, nothing, times, NodeConnectionLimits()
        )
        links.start()
        try:
            await until(lambda: "did not answer within 50 ms" in caplog.text)
        finally:
            await links.stop()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
