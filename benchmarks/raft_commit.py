"""Commit latency and failover of the metadata quorum: three processes, every commit on disk.

Prints a table: one command in flight, 200 in flight, and the time from `kill -9` of the leader to the next accepted
command. Run with `python benchmarks/raft_commit.py [--directory DIR]`; results depend on the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.metadata_quorum.node_connection import NodeConnection, accepted_connection
from ottla.metadata_quorum.raft.node import RaftConfig, RaftNode
from ottla.protocol.session.handshake import LinkSecurity, Role
from ottla.protocol.session.node_secrets import Secrets

SECRET = b"only for this benchmark"
COMMAND = b"x" * 150
NODES = (1, 2, 3)


class Counter:
    """The smallest state machine: it counts commands."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Return the number of commands so far."""
        self.count += 1
        return self.count

    def snapshot(self) -> Iterator[bytes]:
        """Yield the count."""
        yield self.count.to_bytes(8, "big")

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Set the count from a snapshot."""
        self.count = int.from_bytes(b"".join(chunks), "big")

    def adopt(self, other: Counter) -> None:
        """Take the count of another machine."""
        self.count = other.count


async def serve(node_id: int, ports: list[int], directory: Path) -> None:
    """Run one quorum node; commands are JSON lines on standard input, and answers go to standard output."""
    config = RaftConfig(
        node_id=node_id,
        peers={peer: ("127.0.0.1", port) for peer, port in zip(NODES, ports, strict=True)},
        directory=directory,
        security=LinkSecurity(Secrets((SECRET,))),
        cluster_id="benchmark",
        machine_factory=f"{Path(__file__).stem}:Counter",
    )
    node = RaftNode(config, Counter(), on_role=lambda change: _say(leads=change.leads))
    loop = asyncio.get_running_loop()

    def accept() -> NodeConnection:
        return accepted_connection(
            LinkSecurity(Secrets((SECRET,))),
            node.identity,
            lambda link: node.adopt(link) if link.peer.role is Role.RAFT else None,
        )

    server = await loop.create_server(accept, "127.0.0.1", ports[node_id - 1])
    await node.start()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        request = json.loads(line)
        _say(**await _measure(node, request["commands"], request["in_flight"]))
    server.close()
    await node.stop()


async def _measure(node: RaftNode, commands: int, in_flight: int) -> dict[str, Any]:
    latencies: list[float] = []
    left = commands

    async def client() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.perf_counter()
            await node.propose(COMMAND)
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    try:
        await asyncio.gather(*(client() for _ in range(in_flight)))
    except Exception as error:
        return {"error": str(error)}
    seconds = time.perf_counter() - began
    latencies.sort()
    return {
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        "per_second": len(latencies) / seconds,
    }


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


class Process:
    """A node in a separate process."""

    def __init__(self, node_id: int, ports: list[int], directory: Path) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                "--node",
                str(node_id),
                "--ports",
                json.dumps(ports),
                "--directory",
                directory,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self.leads = False
        self.killed = False
        self._answers: list[dict[str, Any]] = []
        self._unread = b""

    def listen(self) -> None:
        """Read the node's output."""
        assert self._process.stdout is not None
        try:
            self._unread += os.read(self._process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            fields = json.loads(line)
            if "leads" in fields:
                self.leads = fields["leads"]
            else:
                self._answers.append(fields)

    def ask(self, commands: int, in_flight: int) -> dict[str, Any]:
        """Let the node propose commands; return its measurements."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"commands": commands, "in_flight": in_flight}).encode() + b"\n")
        self._process.stdin.flush()
        while not self._answers:
            self.listen()
            time.sleep(0.0005)
        return self._answers.pop()

    def kill(self) -> None:
        """Send SIGKILL, as the kernel does when memory runs out."""
        self.killed, self.leads = True, False
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.wait()


def leader_of(processes: list[Process]) -> Process:
    """Wait for a leader."""
    while True:
        for process in processes:
            if not process.killed:
                process.listen()
                if process.leads:
                    return process
        time.sleep(0.0005)


def measure_failover(directory: Path) -> float:
    """Return milliseconds from the kill to the next accepted command."""
    processes = start(directory)
    try:
        old = leader_of(processes)
        old.ask(20, 1)
        began = time.perf_counter()
        old.kill()
        while "error" in leader_of(processes).ask(1, 1):
            pass
        return (time.perf_counter() - began) * 1e3
    finally:
        for process in processes:
            process.stop()


def start(directory: Path) -> list[Process]:
    """Start three new nodes."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in NODES]
    ports = [listening.getsockname()[1] for listening in sockets]
    for listening in sockets:
        listening.close()
    return [Process(node_id, ports, directory / f"node-{node_id}") for node_id in NODES]


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", type=int)
    parser.add_argument("--ports", type=json.loads)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    if arguments.node is not None:
        uvloop.run(serve(arguments.node, arguments.ports, arguments.directory))
        return
    table = Table("metadata quorum, 3 processes, fdatasync", "p50 ms", "p99 ms", "commands/s")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        processes = start(Path(name) / "commit")
        try:
            for label, commands, in_flight in (("1 in flight", 2000, 1), ("200 in flight", 40_000, 200)):
                leader_of(processes).ask(200, in_flight)
                result = leader_of(processes).ask(commands, in_flight)
                numbers = (
                    f"{result['p50_ms']:.2f}",
                    f"{result['p99_ms']:.2f}",
                    f"{result['per_second']:,.0f}",
                )
                table.add_row(label, *numbers)
        finally:
            for process in processes:
                process.stop()
        times = sorted(measure_failover(Path(name) / f"failover-{run}") for run in range(7))
        table.add_row(
            "kill -9 of the leader to the next commit", f"{times[3]:.0f}", f"max {times[-1]:.0f}", ""
        )
    Console().print(table)


if __name__ == "__main__":
    main()
