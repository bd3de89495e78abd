"""A process that was stopped reads the messages of its peers before it judges their silence."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from ottla.metadata_quorum.node_connection import accepted_connection
from ottla.protocol.session.handshake import Identity

from .linked_node import CONNECTED, SECURITY, STOPPING, links_of

SILENCE_MS = 300
STOPPED_S = 0.8
STOPS = 3
PATIENT_MS = 600_000


async def test_a_node_that_was_stopped_keeps_its_links() -> None:
    links = links_of(1, {2: ("127.0.0.1", 0)}, PATIENT_MS, lambda event: None)
    identity = Identity(1, b"\1" * 16, "test")
    server = await asyncio.get_running_loop().create_server(
        lambda: accepted_connection(SECURITY, identity, lambda link: links if links.adopt(link) else None),
        "127.0.0.1",
        0,
    )
    links.start()
    node = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.metadata_quorum.raft.linked_node"),
        *(str(server.sockets[0].getsockname()[1]), str(SILENCE_MS)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert node.stdin is not None
    assert node.stdout is not None
    try:
        assert await asyncio.wait_for(node.stdout.readline(), 60) == f"{CONNECTED}\n".encode()
        for _ in range(STOPS):
            os.kill(node.pid, signal.SIGSTOP)
            await asyncio.sleep(STOPPED_S)
            os.kill(node.pid, signal.SIGCONT)
            await asyncio.sleep(SILENCE_MS / 1000 / 2)
        node.stdin.close()
        assert await asyncio.wait_for(node.stdout.readline(), 60) == f"{STOPPING}\n".encode()
        await node.wait()
    finally:
        if node.returncode is None:
            node.kill()
            await node.wait()
        await links.stop()
        server.close()
