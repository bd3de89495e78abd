"""The faults of the library in its log, elections, commands and members, besides the same test of Ottla's version.

`docs/TESTING.md` lists all faults, with the tests of both.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node

from ottla.metadata_quorum.raft import entries, messages
from ottla.metadata_quorum.raft.disk import Directory
from ottla.metadata_quorum.raft.effects import NotLeader
from ottla.metadata_quorum.raft.journal import open_journal
from ottla.metadata_quorum.raft.messages import Append, AppendReply
from ottla.metadata_quorum.raft.safety import Accepted, reconcile
from ottla.metadata_quorum.raft.settings import Settings
from tests.metadata_quorum.raft.ours import propose_all, settled
from tests.metadata_quorum.raft.stock import Silent, stock_world
from tests.simulation.raft import world as simulated
from tests.simulation.raft.world import SETTINGS, SimulatedMachine, World, virtual_time

SALT = 7


def test_hole_1_library_loses_acknowledged_entries_on_overlap() -> None:
    with stock_world(appendEntriesUseBatch=True, appendEntriesBatchSizeBytes=600) as world:
        leader = world.leader()
        follower, down = (name for name in world.nodes if name != leader)
        world.drop(leader, down)
        world.drop(follower, down)
        successes: list[int] = []
        for number in range(40):
            done = lambda _, error, n=number: successes.append(n) if error == 0 else None  # noqa: E731
            world.nodes[leader].put(f"{number}:" + "x" * 100, callback=done)
        world.tick(leader)
        world.tick(leader)
        world.drop(leader, follower)
        world.connect(leader, follower)
        world.tick(leader)
        world.tick(leader)
        world.deliver(leader, follower)
        for _ in range(2):
            world.deliver(follower, leader, 1)
            world.tick(leader)
        world.deliver(leader, follower, 8)
        world.deliver(follower, leader)
        world.nodes[leader].doTick(0)
        assert len(successes) == 40
        world.deliver(leader, follower, 1)
        assert world.nodes[follower].last_index < 40, "acknowledged entries are cut off"


def test_hole_1_ours_keeps_what_matches(tmp_path: Path) -> None:
    journal = open_journal(Directory(tmp_path), SALT)
    for index in range(2, 42):
        journal.append(b"x", index, 1)
    overlapping = Append(1, 1, 41, 3, 1, tuple((b"x", index, 1) for index in range(4, 10)))
    outcome = reconcile(journal, 2, overlapping)
    assert outcome == Accepted(41, 1, (), 9), "nothing is cut, and only what was compared is confirmed"
    journal.close()


def test_hole_2_library_believes_a_reply_of_another_term() -> None:
    with stock_world() as world:
        leader = world.leader()
        other = next(name for name in world.nodes if name != leader)
        reply = {"type": "next_node_idx", "next_node_idx": 500, "reset": False, "success": True}
        world.links[leader]._onMessageReceived(Node(other), reply)
        assert world.nodes[leader].private("raftMatchIndex")[Node(other)] == 499


def test_hole_2_ours_drops_it() -> None:
    world = World(3, 3, ())
    with virtual_time(world):
        leader = settled(world)
        other = next(node for node in world.nodes if node != leader.node_id)
        term = leader.running.consensus.term
        stale = AppendReply(term - 1, 1, True, 500)
        leader.running.receive(other, bytes(16), b"".join(messages.encode(stale)))
        match = leader.running.consensus._SyncObj__raftMatchIndex
        assert max(match.values()) <= leader.running.journal.last_index


def test_hole_10_library_applies_again_after_an_exception() -> None:
    class Raising(SyncObj):  # type: ignore[misc]
        calls = 0

        @replicated  # type: ignore[untyped-decorator]
        def put(self) -> None:
            Raising.calls += 1
            raise ValueError("not total")

    node = Raising(Node("A"), [], SyncObjConf(autoTick=False), transport=Silent())
    node._poller.poll = lambda timeout: time.sleep(0.01)
    deadline = time.monotonic() + 60
    while not node._isLeader() and time.monotonic() < deadline:
        node.doTick(0)
    node.put()
    for _ in range(5):
        try:
            node.doTick(0)
        except ValueError:
            continue
    assert Raising.calls > 1


def test_hole_10_ours_gives_up_at_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: SimulatedMachine, index: int, term: int, command: bytes) -> object:
        raise ValueError("not total")

    world = World(1, 3, ())
    with virtual_time(world):
        leader = settled(world)
        monkeypatch.setattr(SimulatedMachine, "apply", refuse)
        world.propose(leader)
        with pytest.raises(ValueError, match="not total"):
            world.run(world.now() + 5)


def test_hole_11_library_forwards_commands() -> None:
    with stock_world() as world:
        leader = world.leader()
        follower = next(name for name in world.nodes if name != leader)
        world.nodes[follower].put("x", callback=lambda _, error: None)
        world.tick(follower)
        assert any(message["type"] == "apply_command" for message in world.queues[follower, leader])


def test_hole_11_ours_refuses_them_on_a_follower() -> None:
    world = World(1, 3, ())
    with virtual_time(world):
        leader = settled(world)
        follower = next(node for node in world.nodes.values() if node is not leader)
        proposal = world.propose(follower)
        assert isinstance(proposal.error, NotLeader)
        assert proposal.error.leader_id == leader.node_id


def test_hole_12_library_leader_stays_leader_when_cut_off() -> None:
    with stock_world() as world:
        leader = world.leader()
        world.cut |= {(name, leader) for name in world.nodes} | {(leader, name) for name in world.nodes}
        world.step(1000)
        assert world.nodes[leader]._isLeader(), "ten seconds later"


def test_hole_12_ours_steps_down_and_a_lonely_node_keeps_its_term() -> None:
    world = World(12, 3, ())
    with virtual_time(world):
        leader = settled(world)
        others = [node for node in world.nodes.values() if node is not leader]
        for node in others:
            world.network.cut(leader.node_id, node.node_id)
            world.network.cut(node.node_id, leader.node_id)
        term = leader.running.consensus.term
        world.run(world.now() + 5)
        assert not leader.running.consensus.leads
        assert leader.running.consensus.term == term
        new = next(node for node in others if node.running.consensus.active)
        term = new.running.consensus.term
        world.network.heal_all()
        world.run(world.now() + 3)
        assert new.running.consensus.active, "the returning node deposes no leader"
        assert {node.running.consensus.term for node in world.nodes.values()} == {term}


def test_hole_13_library_stands_for_election_though_heartbeats_wait() -> None:
    with stock_world() as world:
        leader = world.leader()
        follower = next(name for name in world.nodes if name != leader)
        for _ in range(20):
            world.tick(leader)
        assert len(world.queues[leader, follower]) > 5
        term = world.nodes[follower].raftCurrentTerm
        world.nodes[follower].doTick(0)
        assert world.nodes[follower].raftCurrentTerm == term + 1


def test_hole_13_ours_hears_them_first() -> None:
    world = World(13, 3, ())
    with virtual_time(world):
        leader = settled(world)
        follower = next(node for node in world.nodes.values() if node is not leader)
        term = leader.running.consensus.term
        for _ in range(5):
            follower.stalled_until = world.now() + 1.0
            world.run(world.now() + 1.5)
        assert {node.running.consensus.term for node in world.nodes.values()} == {term}
        assert leader.running.consensus.active


def test_hole_14_ours_takes_more_commands_than_a_pipe_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    # Snapshots are as rare as in production, unlike in the other tests.
    monkeypatch.setattr(
        simulated, "SETTINGS", replace(SETTINGS, snapshot_entries=Settings().snapshot_entries)
    )
    world = World(14, 3, ())
    with virtual_time(world):
        leader = settled(world)
        answers: list[object] = []
        for _ in range(70_000):
            leader.propose(b"", lambda outcome, error: answers.append(error))
        assert world.run(world.now() + 60, lambda: len(answers) == 70_000)
        assert set(answers) == {None}


def test_hole_14_library_raises_after_queueing() -> None:
    node = SyncObj(
        Node("A"), [], SyncObjConf(autoTick=False, appendEntriesUseBatch=False), transport=Silent()
    )
    queued: list[int] = []

    def fill() -> None:
        for number in range(70_000):
            queued.append(number)
            node._applyCommand(b"x", None, 0)

    with pytest.raises(BlockingIOError):
        fill()
    assert len(queued) > 60_000


def test_hole_15_library_ends_a_large_command_twice() -> None:
    with stock_world(appendEntriesUseBatch=True, appendEntriesBatchSizeBytes=1000) as world:
        leader = world.leader()
        node = world.nodes[leader]
        node._applyCommand(b"x" * 1998, None, 0)
        world.tick(leader)
        world.tick(leader)
        other = next(name for name in world.nodes if name != leader)
        parts = [
            message["transmission"] for message in world.queues[leader, other] if "transmission" in message
        ]
        assert parts.count("finish") == 2


def test_hole_15_ours_takes_commands_larger_than_a_message() -> None:
    world = World(15, 3, ())
    with virtual_time(world):
        leader = settled(world)
        answers: list[object] = []
        for size in (199, 200, 201, 299, 300, 301, 5000):
            leader.propose(b"x" * size, lambda outcome, error: answers.append(error))
        assert world.run(world.now() + 5, lambda: len(answers) == 7)
        assert set(answers) == {None}


def test_hole_17_library_renumbers_methods() -> None:
    class Before(SyncObj):  # type: ignore[misc]
        @replicated  # type: ignore[untyped-decorator]
        def put(self) -> None: ...

    class After(SyncObj):  # type: ignore[misc]
        @replicated  # type: ignore[untyped-decorator]
        def add(self) -> None: ...

        @replicated  # type: ignore[untyped-decorator]
        def put(self) -> None: ...

    before, after = (
        made(Node("A"), [], SyncObjConf(autoTick=False), transport=Silent()) for made in (Before, After)
    )
    assert before._methodToID["put_v0"] != after._methodToID["put_v0"]


def test_hole_17_our_entries_carry_a_version() -> None:
    payload = entries.pack_group([b"one", b""])
    assert entries.unpack_group(payload) == [b"one", b""]
    with pytest.raises(entries.MalformedEntry, match="version"):
        entries.unpack_group(b"\x00\x09")


def test_hole_18_library_counts_a_member_that_has_nothing_yet() -> None:
    with stock_world(dynamicMembershipChange=True) as world:
        leader = world.leader()
        node = world.nodes[leader]
        other, down = (name for name in world.nodes if name != leader)
        world.drop(leader, down)
        world.drop(other, down)
        answers: list[int] = []
        node.put("two of three", callback=lambda _, error: answers.append(error))
        world.step(50, (leader, other))
        assert answers == [0]
        node.addNodeToCluster(Node("D"))
        world.tick(leader)
        assert node.raftCommitIndex < node.last_index
        assert Node("D") in node.otherNodes, "before it is committed"
        node.put("two of four", callback=lambda _, error: answers.append(error))
        world.step(500, (leader, other))
        assert answers == [0], "an empty node is needed for every command"


def test_hole_18_library_takes_its_members_from_a_dump(tmp_path: Path) -> None:
    def started(*others: str) -> SyncObj:
        configuration = SyncObjConf(
            autoTick=False,
            dynamicMembershipChange=True,
            fullDumpFile=str(tmp_path / "dump"),
            useFork=False,
            logCompactionMinTime=10**6,
        )
        node = SyncObj(Node("A"), [Node(other) for other in others], configuration, transport=Silent())
        node._poller.poll = lambda timeout: None
        return node

    with stock_world() as world:
        node = started()
        for _ in range(100):
            world.now += 0.1
            node.doTick(0)
        node.forceLogCompaction()
        node.doTick(0)
        assert (tmp_path / "dump").exists()
        again = started("B", "C")
        assert again.otherNodes == {Node("B"), Node("C")}
        again.doTick(0)
        assert again.otherNodes == set(), "the configuration is forgotten: it leads alone"


def test_hole_18_ours_takes_its_members_from_its_configuration_alone() -> None:
    world = World(18, 3, ())
    with virtual_time(world):
        leader = settled(world)
        for _ in range(2 * SETTINGS.snapshot_entries):
            propose_all(world, leader, 1)
        node = next(node for node in world.nodes.values() if node is not leader)
        assert world.run(world.now() + 5, lambda: node.running.journal.base_index > 1), "a snapshot is made"
        node.crash(power_loss=False)
        world.network.node_died(node.node_id, noticed=True)
        node._peers |= {4, 5}
        node.start()
        assert {member.id for member in node.running.consensus.otherNodes} == node._peers
        add_member = pickle.dumps(["add", 6, Node(6)])
        for command in (add_member, b"\x02" + add_member):
            answers: list[Exception | None] = []
            leader.propose(command, lambda _, error, to=answers: to.append(error))
            assert world.run(world.now() + 5, lambda to=answers: bool(to))  # type: ignore[misc]
        assert {member.id for member in leader.running.consensus.otherNodes} == leader._peers
