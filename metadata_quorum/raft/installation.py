"""The follower's side of snapshot transfer: collect the file, make it durable, restore it off the loop, then switch to
it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from . import snapshots
from .disk import CorruptFile, Disk, File
from .effects import Effects
from .machine import Adopting, Machine
from .messages import Message, SnapshotChunk, SnapshotReply
from .snapshots import RECEIVED_NAME, Snapshot, SnapshotStore
from .syncobj import Consensus

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Incoming:
    sender: int
    index: int
    size: int
    file: File
    received: int = 0
    complete: bool = False


class Installer:
    """The receiver of a snapshot that the leader sends in chunks. It handles at most one at a time. A snapshot that
    holds no entry beyond this node's state is acknowledged as installed."""

    def __init__(
        self,
        consensus: Consensus,
        store: SnapshotStore,
        disk: Disk,
        effects: Effects,
        factory: Callable[[], Machine],
        machine: Machine,
        send: Callable[[int, Message], None],
        installed: Callable[[Snapshot, str | None], None],
    ) -> None:
        """`installed` is called once the machine holds the snapshot's state, with a surplus file to remove or None."""
        self._consensus = consensus
        self._store = store
        self._disk = disk
        self._effects = effects
        self._factory = factory
        self._machine = machine
        self._send = send
        self._installed = installed
        self._incoming: _Incoming | None = None

    def on_chunk(self, leader: int, chunk: SnapshotChunk) -> None:
        """Store a chunk of a snapshot from the leader of the current term, and acknowledge the bytes received so far.
        The last chunk starts the installation."""
        if chunk.index <= self._consensus.last_applied:
            self._reply(leader, chunk.index, chunk.size, installed=True)
            return
        incoming = self._incoming
        if incoming is not None and incoming.complete:
            return
        if chunk.offset == 0:
            incoming = self._begin(leader, chunk)
        if incoming is None or (incoming.sender, incoming.index) != (leader, chunk.index):
            self._reply(leader, chunk.index, 0)
            return
        if chunk.offset == incoming.received and chunk.data:
            incoming.file.write(chunk.offset, chunk.data)
            incoming.received += len(chunk.data)
        self._reply(leader, chunk.index, incoming.received)
        if incoming.received >= incoming.size:
            self._finish(incoming)

    def forget(self, peer: int) -> None:
        """Drop a partly received snapshot after the connection to `peer` is lost."""
        if self._incoming is not None and self._incoming.sender == peer and not self._incoming.complete:
            self._incoming.file.close()
            self._incoming = None

    def _begin(self, leader: int, chunk: SnapshotChunk) -> _Incoming:
        if self._incoming is not None:
            self._incoming.file.close()
        self._incoming = _Incoming(leader, chunk.index, chunk.size, self._disk.create(RECEIVED_NAME))
        return self._incoming

    def _finish(self, incoming: _Incoming) -> None:
        incoming.complete = True
        adopting = isinstance(self._machine, Adopting)

        def make_durable_and_restore() -> tuple[Snapshot, Machine | None]:
            incoming.file.sync()
            incoming.file.close()
            fresh = self._factory() if adopting else None
            chunks = snapshots.read_chunks(self._disk, RECEIVED_NAME)
            if fresh is not None:
                fresh.restore(chunks)
            else:
                for _ in chunks:
                    pass
            return self._store.publish(RECEIVED_NAME), fresh

        self._effects.aside(make_durable_and_restore, self._restored)

    def _restored(self, outcome: object, error: Exception | None) -> None:
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        if isinstance(error, CorruptFile):
            logger.error("node %d sent a snapshot that does not check: %s", incoming.sender, error)
            self._reply(incoming.sender, incoming.index, 0)
            return
        if error is not None:
            raise error
        snapshot, fresh = cast("tuple[Snapshot, Machine | None]", outcome)
        surplus = self._store.supersede(snapshot)
        if snapshot.index > self._consensus.last_applied:
            if fresh is not None and isinstance(self._machine, Adopting):
                self._machine.adopt(fresh)
            else:
                self._machine.restore(snapshots.read_chunks(self._disk, snapshot.name))
            self._consensus.snapshot_installed(snapshot.index)
        self._installed(snapshot, surplus)
        self._reply(incoming.sender, snapshot.index, snapshot.size, installed=True)

    def _reply(self, leader: int, index: int, received: int, *, installed: bool = False) -> None:
        self._send(leader, SnapshotReply(self._consensus.term, index, received, installed))
