"""The cost of protecting frames between nodes: CPU microseconds for each frame, of both ends together.

One process seals frames and opens them again, without sockets, so that only the codec is measured. Prints a table of
the encrypted frames and of the tagged frames of older versions, and a line fitted to the encrypted ones. Also measures
a handshake, both ends together. Run with `python -m benchmarks.link_frames`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from ottla.protocol.session.frames import Channel, EncryptedChannel, TaggedChannel
from ottla.protocol.session.handshake import (
    CHANCE_BYTES,
    ClientHandshake,
    Identity,
    LinkSecurity,
    Role,
    ServerHandshake,
)
from ottla.protocol.session.node_secrets import Secrets

SIZES = (0, 50, 200, 1000, 10_000, 100_000, 1_000_000)
FITTED = 100_000
"""Size up to which the line is fitted: larger frames cost mainly fresh memory."""
ROUNDS = 7
ROUND_S = 0.1
SECURITY = LinkSecurity(Secrets((b"only for this benchmark",)))


def frame_us(kind: type[EncryptedChannel] | type[TaggedChannel], size: int) -> float:
    """Return the best round: one frame sealed, joined as a socket would, and opened."""
    sender, receiver = kind(b"1" * 32, b"2" * 32, b"3" * 32), kind(b"2" * 32, b"1" * 32, b"3" * 32)
    payload = os.urandom(size)
    return best_us(lambda: _through(sender, receiver, payload))


def _through(sender: Channel, receiver: Channel, payload: bytes) -> None:
    receiver.feed(b"".join(sender.seal(payload)))


def handshake_us() -> float:
    """Return the best round of whole handshakes."""
    server_id, client_id = Identity(1, bytes(16), "c"), Identity(2, bytes(16), "c")

    def once() -> None:
        server = ServerHandshake(SECURITY, server_id, os.urandom(CHANCE_BYTES))
        client = ClientHandshake(SECURITY, client_id, Role.RAFT, os.urandom(CHANCE_BYTES))
        client.receive(server.receive(client.receive(server.hello())))

    return best_us(once)


def best_us(once: Callable[[], None]) -> float:
    """Return microseconds for one call: the mean of the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        calls, began = 0, time.process_time()
        while (took := time.process_time() - began) < ROUND_S:
            for _ in range(10):
                once()
            calls += 10
        best = min(best, took / calls)
    return best * 1e6


def main() -> None:
    """Measure everything and print it."""
    table = Table("bytes", "tagged, us", "encrypted, us", "difference, us")
    encrypted: dict[int, float] = {}
    for size in SIZES:
        before, encrypted[size] = frame_us(TaggedChannel, size), frame_us(EncryptedChannel, size)
        table.add_row(
            f"{size:,}", f"{before:.2f}", f"{encrypted[size]:.2f}", f"{encrypted[size] - before:+.2f}"
        )
    console = Console()
    console.print(table)
    per_byte_ns = (encrypted[FITTED] - encrypted[0]) / FITTED * 1000
    console.print(f"encrypted: {encrypted[0]:.2f} us for each frame and {per_byte_ns:.2f} ns for each byte")
    console.print(f"handshake, both ends: {handshake_us():.0f} us")


if __name__ == "__main__":
    main()
