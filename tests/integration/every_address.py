"""A program for a network namespace: listeners without a host, dialed by IPv4 and by IPv6. Prints JSON."""

from __future__ import annotations

import asyncio
import json

from ottla.dataplane.server import HandlerTable, Server, ServerConfig
from ottla.metadata_quorum.server import QuorumServer
from ottla.protocol.session.handshake import Identity, LinkSecurity
from ottla.protocol.session.node_secrets import Secrets

LOOPBACK = ("127.0.0.1", "::1")
DEADLINE_S = 30


async def peers_of_broker() -> list[str]:
    """Return the addresses that a broker's listener sees."""
    server = Server(HandlerTable(), ServerConfig())
    port = server.listen("CLIENTS", "", 0).port
    server.start()
    writers = [(await asyncio.open_connection(host, port))[1] for host in LOOPBACK]
    async with asyncio.timeout(DEADLINE_S):
        while len(server.connections) < len(writers):
            await asyncio.sleep(0.005)
    seen = sorted(connection.session.host for connection in server.connections)
    for writer in writers:
        writer.close()
    server.close()
    return seen


async def answers_of_quorum() -> list[int]:
    """Return how many bytes a quorum node greets each family with."""
    server = QuorumServer(
        "", 0, LinkSecurity(Secrets((b"s" * 32,))), Identity(101, b"d" * 16, "c"), {}, lambda _: False
    )
    await server.start()
    sizes = []
    for host in LOOPBACK:
        reader, writer = await asyncio.open_connection(host, server.port)
        sizes.append(len(await asyncio.wait_for(reader.read(1), DEADLINE_S)))
        writer.close()
    await server.stop()
    return sizes


async def main() -> None:
    """Try both kinds of nodes."""
    print(json.dumps({"broker": await peers_of_broker(), "quorum": await answers_of_quorum()}))


if __name__ == "__main__":
    asyncio.run(main())
