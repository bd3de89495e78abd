"""The faults of the library on its connections, beside the same situation on ours."""

from __future__ import annotations

import itertools
import os
import pickle
import socket
import struct
import time
import zlib
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pysyncobj.poller import createPoller
from pysyncobj.tcp_connection import TcpConnection

from ottla.metadata_quorum.raft import messages
from ottla.metadata_quorum.raft.messages import SnapshotChunk, SnapshotReply
from tests.metadata_quorum.raft.ours import propose_all, settled
from tests.metadata_quorum.raft.stock import stock_sockets
from tests.simulation.raft.world import SETTINGS, World, virtual_time


class _Dangerous:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_hole_9_library_runs_what_a_stranger_sends(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    poller = createPoller("auto")
    connection = TcpConnection(poller, socket=ours, onMessageReceived=lambda message: None)
    payload = zlib.compress(pickle.dumps(_Dangerous(str(tmp_path / "owned")), 2))
    theirs.sendall(struct.pack("i", len(payload)) + payload)
    deadline = time.monotonic() + 5
    while not (tmp_path / "owned").exists() and time.monotonic() < deadline:
        poller.poll(0.05)
    assert (tmp_path / "owned").exists()
    connection.disconnect()
    theirs.close()


def test_hole_9_nothing_of_ours_unpickles() -> None:
    root = Path(messages.__file__).parent
    sources = "".join(path.read_text() for path in root.glob("*.py"))
    assert "import pickle" not in sources
    with pytest.raises(messages.MalformedRaftMessage):
        messages.decode(pickle.dumps(_Dangerous("/nonexistent")))


@pytest.mark.parametrize(("idle_seconds", "arrives"), [(0.1, True), (5.0, False)])
def test_hole_16_library_drops_an_idle_link_at_first_use(idle_seconds: float, arrives: bool) -> None:
    with stock_sockets(3) as world:
        for address in world.addresses:
            world.start(address)
        pairs = list(itertools.combinations(world.addresses, 2))
        assert world.until(lambda: all(world.connected(*pair) for pair in pairs), 1)
        assert world.until(lambda: any(node._isLeader() for node in world.nodes.values()), 20)
        leader = next(address for address, node in world.nodes.items() if node._isLeader())
        followers = [address for address in world.addresses if address != leader]
        world.until(lambda: False, idle_seconds)
        assert world.connected(*followers), "as far as they know"
        term = world.nodes[leader].raftCurrentTerm
        world.stop(leader)

        def terms() -> list[int]:
            return [world.nodes[address].raftCurrentTerm for address in followers]

        assert world.until(lambda: max(terms()) > term, 10)
        for _ in range(20):
            world.step(0)
        assert (min(terms()) > term) is arrives, "the question for a vote is lost with the link"


def test_hole_16_library_dials_again_only_after_five_seconds() -> None:
    with stock_sockets(2) as world:
        smaller, larger = world.addresses
        world.start(larger)
        world.step()
        world.start(smaller)
        assert not world.until(lambda: world.connected(smaller, larger), 4.5)
        assert world.until(lambda: world.connected(smaller, larger), 1)


class _Counted(bytes):
    """A buffer that counts the bytes its owner copies."""

    copied = 0

    def __add__(self, other: Any) -> _Counted:
        return self._counting(bytes.__add__(self, other))

    def __getitem__(self, position: Any) -> Any:
        part = bytes.__getitem__(self, position)
        return part if isinstance(part, int) else self._counting(part)

    @staticmethod
    def _counting(result: bytes) -> _Counted:
        _Counted.copied += len(result)
        return _Counted(result)


def _library_copies(pieces: int) -> int:
    """Return the bytes that the library copies to send and to receive this number of pieces at
    once, as in a snapshot.
    """
    poller = createPoller("auto")
    here, there = socket.socketpair()
    received: list[bytes] = []
    for end in (here, there):
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
    sender = TcpConnection(poller, socket=here, timeout=1000.0)
    receiver = TcpConnection(poller, socket=there, timeout=1000.0, onMessageReceived=received.append)
    sender._TcpConnection__writeBuffer = receiver._TcpConnection__readBuffer = _Counted()
    _Counted.copied = 0
    piece = Random(4).randbytes(1 << 14)
    for _ in range(pieces):
        sender.send(piece)
    deadline = time.monotonic() + 30
    while len(received) < pieces and time.monotonic() < deadline:
        poller.poll(0.05)
    assert received == [piece] * pieces
    sender.disconnect()
    receiver.disconnect()
    return _Counted.copied


def test_hole_r4_library_copies_with_the_square_of_what_it_sends() -> None:
    assert _library_copies(128) > 2 * 4 * _library_copies(32)


@pytest.mark.parametrize("entries", [100, 400])
def test_hole_r4_ours_moves_a_snapshot_once_and_little_of_it_at_a_time(entries: int) -> None:
    world = World(10, 3, ())
    with virtual_time(world):
        leader = settled(world)
        lagging = next(node for node in world.nodes.values() if node is not leader)
        lagging.crash(power_loss=False)
        world.network.node_died(lagging.node_id, noticed=True)
        for _ in range(entries):
            propose_all(world, leader, 1)
        world.run(world.now() + 1)
        pieces, waiting = _snapshot_pieces(world, leader, lagging)
        lagging.start()
        last_index = leader.running.journal.last_index
        assert world.run(world.now() + 20, lambda: lagging.running.consensus.last_applied >= last_index)
        latest = leader.running._compactor._store.latest
        assert latest is not None
        assert sum(pieces) == latest.size > 10 * SETTINGS.chunk_bytes
        assert max(waiting) <= SETTINGS.chunks_in_flight * SETTINGS.chunk_bytes


def _snapshot_pieces(world: World, leader: Any, lagging: Any) -> tuple[list[int], list[int]]:
    """Return the sizes of snapshot pieces sent from now on, and the bytes in flight after each."""
    pieces: list[int] = []
    waiting: list[int] = []
    send, confirmed = world.network.send, 0

    def watching(sender: int, receiver: int, payload: bytes) -> None:
        nonlocal confirmed
        message = messages.decode(payload)
        if isinstance(message, SnapshotChunk) and receiver == lagging.node_id:
            pieces.append(len(message.data))
            waiting.append(sum(pieces) - confirmed)
        if isinstance(message, SnapshotReply) and receiver == leader.node_id:
            confirmed = message.received
        send(sender, receiver, payload)

    world.network.send = watching  # type: ignore[method-assign]
    return pieces, waiting
