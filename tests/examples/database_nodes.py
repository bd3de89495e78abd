"""Nodes of the example `replicated_database` as processes."""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from examples.replicated_database.state import TABLE
from ottla.cli.local_cluster.ports import free_ports
from tests.cluster import Node

ROOT = Path(__file__).resolve().parents[2]
Rows = list[tuple[object, ...]]
_reserved: list[socket.socket] = []
"""Sockets that reserve the ports of absent nodes."""


class DatabaseNode(Node):
    """A process of the database, with its folder."""

    @property
    def folder(self) -> Path:
        """Folder of the SQLite files."""
        return Path(self.entry["folder"])

    def rows(self, partition: int) -> Rows:
        """Return a partition's rows in the node's file, in the order of the keys."""
        with closing(sqlite3.connect(self.folder / f"{partition}.sqlite")) as file:
            return list(file.execute(f"SELECT * FROM {TABLE} ORDER BY id"))

    def place(self, partition: int) -> tuple[int, int]:
        """Return the generation and SCN up to which the file has been written."""
        with closing(sqlite3.connect(self.folder / f"{partition}.sqlite")) as file:
            generation, scn = file.execute("SELECT generation, scn FROM applied").fetchone()
            return generation, scn


def node_of(
    number: int,
    directory: Path,
    bootstrap: str,
    name: str,
    *options: str,
    host: str = "127.0.0.1",
    port: int | None = None,
    prefix: Sequence[str] = (),
) -> DatabaseNode:
    """Return a node that is not started yet.

    `prefix`: first words of its command, e.g. to enter a network namespace.
    """
    folder = directory / f"{name}-{number}"
    folder.mkdir(parents=True)
    if port is None:
        # None that outgoing connections take while the node is away.
        choosing = free_ports(_reserved)
        port = next(choosing)
        choosing.close()
    argv = [*prefix, sys.executable, "-m", "examples.replicated_database.node", "--bootstrap", bootstrap]
    argv += ["--name", name, "--folder", str(folder), "--host", host, "--port", str(port), *options]
    entry = {
        "id": number,
        "pid": 0,
        "port": port,
        "host": host,
        "argv": argv,
        "cwd": str(ROOT),
        "folder": str(folder),
    }
    return DatabaseNode("database", entry | {"env": dict(os.environ), "log": str(folder / "log")})


@contextmanager
def running(nodes: Sequence[DatabaseNode]) -> Iterator[Sequence[DatabaseNode]]:
    """Start the nodes, and end them after the block."""
    try:
        for node in nodes:
            node.restart()
        yield nodes
    except BaseException as error:
        for node in nodes:
            error.add_note(f"database node {node.id} ends with:\n{node.log()[-3000:]}")
        raise
    finally:
        for node in nodes:
            if node.process is not None and node.alive:
                node.kill9()
