"""Node 2 in a separate process, linked to node 1: it prints when the link begins, when it ends, and when node 2 stops.

python -m tests.metadata_quorum.raft.linked_node PORT SILENCE_MS
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import uvloop

from ottla.metadata_quorum.node_connection import NodeConnectionLimits
from ottla.metadata_quorum.raft.transport import Listener, PeerLinks, TransportTimes
from ottla.protocol.session.handshake import Identity, LinkSecurity
from ottla.protocol.session.node_secrets import Secrets

from .raft_support import SECRET

SECURITY = LinkSecurity(Secrets((SECRET,)))
CONNECTED, ENDED, STOPPING = "connected", "ended", "stopping"
PING_MS = 20


def links_of(
    node_id: int, addresses: dict[int, tuple[str, int]], silence_ms: int, report: Callable[[str], object]
) -> PeerLinks:
    """Return the links of a node without a core, which reports when they begin and end."""
    listener = Listener(
        lambda peer: report(CONNECTED) and None,
        lambda peer: report(ENDED) and None,
        lambda *message: None,
        lambda: None,
    )
    identity = Identity(node_id, bytes([node_id]) * 16, "test")
    times = TransportTimes(ping_ms=PING_MS, silence_ms=silence_ms)
    return PeerLinks(identity, SECURITY, addresses, listener, times, NodeConnectionLimits())


async def main() -> None:
    """Run until standard input ends."""
    port, silence_ms = int(sys.argv[1]), int(sys.argv[2])
    links = links_of(2, {1: ("127.0.0.1", port)}, silence_ms, lambda event: print(event, flush=True))
    links.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(STOPPING, flush=True)
    await links.stop()


if __name__ == "__main__":
    uvloop.run(main())
