"""The minimal cost of a transaction's path: its messages, its disk writes and wake-ups, without any logic.

    python -m benchmarks.transaction_hops [--partitions 10] [--rounds 3] [--directory DIR]

Three brokers and three quorum nodes are processes on uvloop. All brokers have a replica of every partition, and the
first leads all partitions. The client adds partitions, writes and ends, one after the other:

    add      client > coordinator > quorum's leader > followers, on disk > leader > coordinator > client
    write    client > partition leader > replicas > partition leader > client
    end      as add, but to the partition leader, whose markers go to the replicas; then > quorum's leader >
             coordinator > client

The difference to `benchmarks.transactions` is Ottla's work, and about a millisecond that librdkafka waits before its
first request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import uvloop

from .cpu import cpu_s

PARTITION_LEADER, COORDINATOR, REPLICA = "B1", "B2", "B3"
QUORUM_LEADER, *QUORUM_FOLLOWERS = "Q1", "Q2", "Q3"
NODES = (PARTITION_LEADER, COORDINATOR, REPLICA, QUORUM_LEADER, *QUORUM_FOLLOWERS)
BROKERS, REPLICAS = NODES[:3], (COORDINATOR, REPLICA)
CLIENT = "CC"
FRAME = 180
"""Bytes of a message: its kind and padding. Entries and records have the same size."""
FILE_BYTES = 1 << 22
TRANSACTIONS, WARM_UP = 1000, 200


class Node:
    """A broker or quorum node, which reacts to messages."""

    def __init__(self, name: str, partitions: int, directory: Path) -> None:
        self.name = name
        self.peers: dict[str, asyncio.WriteTransport] = {}
        self._partitions = partitions
        self._file = os.open(directory / name, os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._file, 0, FILE_BYTES)
        self._position = 0
        self._thread = ThreadPoolExecutor(1)
        self._entries = 0
        self._held: Counter[str] = Counter()
        self._missing = 0
        self._then: Callable[[], None] = partial(self._send, CLIENT, "done")

    def received(self, sender: str, kind: str) -> None:
        """React to a message."""
        match kind:
            case "add" | "end" if self.name == COORDINATOR:
                self._send(QUORUM_LEADER, kind)
            case "add" | "end":
                self._await(2, partial(self._push, "told" if kind == "add" else "mark"))
                self._entries += 1
                for follower in QUORUM_FOLLOWERS:
                    self._send(follower, "entry")
                self._write_durably(self._arrived)
            case "entry":
                self._write_durably(partial(self._send, sender, "held"))
            case "held":
                self._held[sender] += 1
                # An answer to an earlier entry, for which the other follower was faster, does not count.
                if self._held[sender] == self._entries:
                    self._arrived()
            case "have":
                self._arrived()
            case "write":
                self._replicate(partial(self._send, CLIENT, "done"))
            case "mark" if self.name == PARTITION_LEADER:
                self._replicate(partial(self._send, QUORUM_LEADER, "marked"))
            case "records":
                self._write(self._partitions)
                self._send(sender, "have")
            case "marked":
                self._send(COORDINATOR, "told")
            case "told" if self.name == COORDINATOR:
                self._send(CLIENT, "done")

    def _push(self, kind: str) -> None:
        for broker in BROKERS:
            self._send(broker, kind)

    def _replicate(self, then: Callable[[], None]) -> None:
        self._write(self._partitions)
        self._await(len(REPLICAS), then)
        for replica in REPLICAS:
            self._send(replica, "records")

    def _await(self, messages: int, then: Callable[[], None]) -> None:
        self._missing, self._then = messages, then

    def _arrived(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._then()

    def _write(self, times: int) -> None:
        for _ in range(times):
            os.pwrite(self._file, bytes(FRAME), self._position)
            self._position = (self._position + FRAME) % (FILE_BYTES - FRAME)

    def _write_durably(self, then: Callable[[], None]) -> None:
        self._write(1)
        synced = asyncio.get_running_loop().run_in_executor(self._thread, os.fdatasync, self._file)
        synced.add_done_callback(lambda _: then())

    def _send(self, to: str, kind: str) -> None:
        self.peers[to].write(frame(kind))


class Link(asyncio.Protocol):
    """A connection; its initiator sends its name first."""

    def __init__(self, node: Node, peer: str = "") -> None:
        self._node = node
        self._peer = peer
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send this node's name, if it made the connection."""
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]
        if self._peer:
            self._node.peers[self._peer] = self._transport
            self._transport.write(frame(self._node.name))

    def data_received(self, data: bytes) -> None:
        """Take received bytes."""
        self._unread += data
        while len(self._unread) >= FRAME:
            kind, self._unread = self._unread[:FRAME].rstrip(b" ").decode(), self._unread[FRAME:]
            if self._peer:
                self._node.received(self._peer, kind)
            else:
                self._peer = kind
                if kind == CLIENT:
                    self._node.peers[CLIENT] = self._transport


def frame(kind: str) -> bytes:
    """Return a message."""
    return kind.encode().ljust(FRAME)


async def serve(name: str, ports: dict[str, int], listening: socket.socket, node: Node) -> None:
    """Run one node until killed; print a line once it is connected to all others."""
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Link(node), sock=listening)
    for peer in NODES:
        if peer != name:
            await loop.create_connection(lambda peer=peer: Link(node, peer), "127.0.0.1", ports[peer])  # type: ignore[misc]
    print("connected", flush=True)
    await asyncio.Event().wait()


@contextmanager
def nodes(partitions: int, directory: Path) -> Iterator[tuple[dict[str, int], list[int]]]:
    """Run all nodes; yield their ports and process ids."""
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in NODES}
    ports = {name: listening.getsockname()[1] for name, listening in sockets.items()}
    processes = []
    try:
        for name, listening in sockets.items():
            listening.set_inheritable(True)
            arguments = [name, str(listening.fileno()), json.dumps(ports), str(partitions), str(directory)]
            command = [sys.executable, "-m", "benchmarks.transaction_hops", "--node", *arguments]
            processes.append(
                subprocess.Popen(command, pass_fds=(listening.fileno(),), stdout=subprocess.PIPE)
            )
            listening.close()
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield ports, [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Client:
    """A client with one request in flight, and a connection to each broker that it needs."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._sockets = {name: self._connected(ports[name]) for name in (COORDINATOR, PARTITION_LEADER)}

    def transact(self) -> tuple[float, float, float]:
        """Return the seconds of adding, writing and ending."""
        times = [time.perf_counter()]
        for broker, kind in ((COORDINATOR, "add"), (PARTITION_LEADER, "write"), (COORDINATOR, "end")):
            self._sockets[broker].sendall(frame(kind))
            self._sockets[broker].recv(FRAME, socket.MSG_WAITALL)
            times.append(time.perf_counter())
        add, write, end = (after - before for before, after in pairwise(times))
        return add, write, end

    @staticmethod
    def _connected(port: int) -> socket.socket:
        connected = socket.create_connection(("127.0.0.1", port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.sendall(frame(CLIENT))
        return connected


def measure(partitions: int, directory: Path) -> str:
    """Run one round; return its line of output."""
    with nodes(partitions, directory) as (ports, processes):
        client = Client(ports)
        for _ in range(WARM_UP):
            client.transact()
        before = sum(map(cpu_s, processes))
        times = [client.transact() for _ in range(TRANSACTIONS)]
        used = (sum(map(cpu_s, processes)) - before) * 1e3 / TRANSACTIONS
    add, write, end = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
    whole = statistics.median(map(sum, times)) * 1e3
    return f"add {add:.2f}, write {write:.2f}, end {end:.2f}, all {whole:.2f} ms (p50); processor time {used:.2f} ms"


def main() -> None:
    """Print a line for each round."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--partitions", type=int, default=1, metavar="N", help="that are written to (1)")
    options.add_argument("--rounds", type=int, default=3, metavar="N", help="(3)")
    options.add_argument("--directory", type=Path, help="on the disk to measure")
    options.add_argument("--node", nargs=5, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.node is not None:
        name, descriptor, ports, partitions, directory = arguments.node
        node = Node(name, int(partitions), Path(directory))
        uvloop.run(serve(name, json.loads(ports), socket.socket(fileno=int(descriptor)), node))
    else:
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
                print(measure(arguments.partitions, Path(name)))


if __name__ == "__main__":
    main()
