"""The faults of the library in sending entries and snapshots, beside the same situation on ours."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import pysyncobj.syncobj as library
import pytest
from pysyncobj.node import Node

from ottla.metadata_quorum.raft import messages
from ottla.metadata_quorum.raft.messages import Append, SnapshotChunk
from tests.metadata_quorum.raft.ours import propose_all, settled
from tests.metadata_quorum.raft.stock import StockWorld, stock_world
from tests.simulation.raft.world import World, virtual_time


def _cut_off_leader_with_tail(world: StockWorld) -> tuple[str, str, list[int]]:
    """Return an old leader with thirty uncommitted entries, and a new leader that has compacted its log."""
    old = world.leader()
    rest = tuple(name for name in world.nodes if name != old)
    for name in rest:
        world.drop(old, name)
    committed: list[int] = []
    for number in range(30):
        world.nodes[old].put(f"uncommitted {number}", callback=lambda _, error: committed.append(error))
    world.tick(old, seconds=0.01)
    world.step(300, rest)
    new = world.leader(rest)
    for number in range(50):
        world.nodes[new].put(f"good {number}")
    world.step(200, rest)
    world.nodes[new].forceLogCompaction()
    world.step(5, rest)
    return old, new, committed


def test_hole_r2_library_commits_an_uncommitted_tail_on_a_snapshot_piece() -> None:
    with stock_world(appendEntriesUseBatch=True, logCompactionBatchSize=64) as world:
        old, new, committed = _cut_off_leader_with_tail(world)
        world.connect(old, new)
        world.tick(new)
        for _ in range(200):
            world.deliver(new, old, 1)
            world.nodes[old].doTick(0)
            if 0 in committed:
                break
        assert 0 in committed, "a caller gets success for an uncommitted command"


def test_hole_r2_ours_does_not_move_the_commit_index_on_a_piece() -> None:
    world = World(2, 3, ())
    with virtual_time(world):
        leader = settled(world)
        follower = next(node for node in world.nodes.values() if node is not leader).running
        commit, term = follower.consensus.commit_index, follower.consensus.term
        follower.journal.append(b"\x00\x01", follower.journal.last_index + 1, term)
        chunk = SnapshotChunk(term, 10_000, term, 100, 0, b"x" * 50)
        follower.receive(leader.node_id, bytes(16), b"".join(messages.encode(chunk)))
        assert follower.consensus.commit_index == commit


def test_hole_r3_library_installs_a_snapshot_of_the_past() -> None:
    with stock_world(appendEntriesUseBatch=True) as world:
        leader = world.leader()
        name, down = (other for other in world.nodes if other != leader)
        follower = world.nodes[name]
        for number in range(50):
            world.nodes[leader].put(number)
        world.step(60)
        world.nodes[leader].forceLogCompaction()
        world.step(3)
        world.drop(leader, down)
        world.drop(name, down)
        acknowledged: list[int] = []
        for number in range(50, 60):
            world.nodes[leader].put(number, callback=lambda _, error: acknowledged.append(error))
        world.step(40, (leader, name))
        assert acknowledged == [0] * 10, "held by these two alone"
        last_index, applied = follower.last_index, follower.raftLastApplied
        late = {"type": "next_node_idx", "next_node_idx": 10, "reset": True, "success": False}
        world.links[leader]._onMessageReceived(Node(name), late)
        world.tick(leader)
        while follower.last_index == last_index and world.queues[leader, name]:
            world.deliver(leader, name, 1)
        assert follower.last_index < last_index, "acknowledged entries are gone"
        assert follower.raftLastApplied < applied, "and what was applied is applied again"
        assert follower.items == list(range(50))


def test_hole_r3_ours_ignores_a_snapshot_of_the_past() -> None:
    world = World(4, 3, ())
    with virtual_time(world):
        leader = settled(world)
        propose_all(world, leader, 30)
        world.run(world.now() + 1)
        follower = next(node for node in world.nodes.values() if node is not leader).running
        applied, last = follower.consensus.last_applied, follower.journal.last_index
        for index in (3, applied):
            chunk = SnapshotChunk(follower.consensus.term, index, 1, 100, 0, b"x" * 100)
            follower.receive(leader.node_id, bytes(16), b"".join(messages.encode(chunk)))
        assert (follower.consensus.last_applied, follower.journal.last_index) == (applied, last)


def test_hole_r5_library_sends_again_what_is_on_its_way() -> None:
    with stock_world(appendEntriesUseBatch=True) as world:
        leader = world.leader()
        other = next(name for name in world.nodes if name != leader)
        first, sent = world.nodes[leader].last_index, 0
        travelling: deque[dict[tuple[str, str], list[Any]]] = deque([{}] * 3)
        for number in range(100):
            world.nodes[leader].put(number)
            world.tick(leader, seconds=0.002)
            world.nodes[leader]._SyncObj__sendAppendEntries()
            world.tick(*(name for name in world.nodes if name != leader), seconds=0)
            sent += sum(len(message.get("entries", ())) for message in world.queues[leader, other])
            travelling.append({pair: list(queue) for pair, queue in world.queues.items()})
            for queue in world.queues.values():
                queue.clear()
            for (sender, receiver), arriving in travelling.popleft().items():
                for message in arriving:
                    world.links[receiver]._onMessageReceived(Node(sender), message)
        assert sent > 3 * (world.nodes[leader].last_index - first)


def test_hole_r5_ours_sends_an_entry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(6, 3, ())
    with virtual_time(world):
        leader = settled(world)
        for node in world.nodes:
            for other in world.nodes:
                if node != other:
                    world.network.slow_down(node, other, (0.003, 0.003))
        sent = 0
        encode = messages.encode

        def counting(message: Any) -> list[bytes]:
            nonlocal sent
            if isinstance(message, Append):
                sent += len(message.entries)
            return encode(message)

        monkeypatch.setattr(messages, "encode", counting)
        first = leader.running.journal.last_index
        for _ in range(200):
            world.propose(leader)
            world.run(world.now() + 0.0005)
        world.run(world.now() + 1)
        appended = leader.running.journal.last_index - first
        assert appended <= sent / 2 <= appended * 1.1


def test_hole_r7_library_spins_while_a_snapshot_is_written() -> None:
    with stock_world(appendEntriesUseBatch=True) as world:
        leader = world.leader()
        node = world.nodes[leader]
        other = next(name for name in world.nodes if name != leader)
        for number in range(50):
            node.put(number)
        world.step(60)
        node.forceLogCompaction()
        world.step(3)
        node.private("raftNextIndex")[Node(other)] = 2
        node.private("serializer")._Serializer__pid = 12345
        for queue in world.queues.values():
            queue.clear()
        library.monotonicTime = time.monotonic
        node._SyncObj__sendAppendEntries()
        assert len(world.queues[leader, other]) > 10


def test_hole_r7_ours_says_one_thing_per_heartbeat() -> None:
    world = World(9, 3, ())
    with virtual_time(world):
        leader = settled(world)
        lagging = next(node for node in world.nodes.values() if node is not leader)
        lagging.crash(power_loss=False)
        world.network.node_died(lagging.node_id, noticed=True)
        for _ in range(8):
            propose_all(world, leader, 30)
        assert world.run(world.now() + 20, lambda: leader.running.journal.base_index > 1)
        lagging.start()
        lagging.disk_stalled_until = world.now() + 5
        sent: list[int] = []
        send = world.network.send
        world.network.send = lambda *arguments: (sent.append(arguments[1]), send(*arguments))[1]  # type: ignore[method-assign, func-returns-value]
        world.run(world.now() + 2.0)
        assert sent.count(lagging.node_id) < 250, "about 50 heartbeats, votes and pieces in two seconds"
