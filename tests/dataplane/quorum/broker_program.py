"""A process with only a broker session: `broker_program.py ID VOTERS` says "unfenced", and waits."""

import asyncio
import os
import sys

import uvloop

from ottla.dataplane.quorum import QuorumSession, QuorumSessionConfig
from ottla.protocol.session.handshake import LinkSecurity
from ottla.protocol.session.node_secrets import Secrets

SECRET = b"secret of a test cluster, 32 byte"


async def main() -> None:
    voters = {}
    for voter in sys.argv[2].split(","):
        node_id, _, address = voter.partition("@")
        host, _, port = address.rpartition(":")
        voters[int(node_id)] = (host, int(port))
    session = QuorumSession(
        QuorumSessionConfig(
            broker_id=int(sys.argv[1]),
            cluster_id="test-cluster",
            security=LinkSecurity(Secrets((SECRET,))),
            voters=voters,
            incarnation=os.urandom(16),
            listeners=(),
            log_dirs=(os.urandom(16),),
            heartbeat_host="127.0.0.1",
            heartbeat_interval_ms=100,
        ),
        on_delta=lambda image, delta: None,
    )
    session.ask_to_unfence()
    await session.start()
    await session.unfenced()
    print("unfenced", flush=True)
    await asyncio.Event().wait()


uvloop.run(main())
