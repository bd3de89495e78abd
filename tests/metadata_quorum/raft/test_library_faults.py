"""Each fault of the library, shown on the library as shipped, and the same situation on ours."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pysyncobj.syncobj as library
import pytest
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.journal import FileJournal, MetaStorer
from pysyncobj.node import Node
from pysyncobj.poller import createPoller
from pysyncobj.tcp_connection import TcpConnection

from ottla.metadata_quorum.raft import entries, messages, snapshots, vote
from ottla.metadata_quorum.raft.compaction import align
from ottla.metadata_quorum.raft.disk import CorruptFile, Directory
from ottla.metadata_quorum.raft.effects import NotLeader
from ottla.metadata_quorum.raft.journal import open_journal
from ottla.metadata_quorum.raft.messages import Append, AppendReply, SnapshotChunk
from ottla.metadata_quorum.raft.safety import Accepted, reconcile
from ottla.metadata_quorum.raft.snapshots import Snapshot
from ottla.metadata_quorum.raft.vote import Vote
from tests.metadata_quorum.raft.stock import StockWorld, stock_world
from tests.simulation.raft.world import SimulatedMachine, World, virtual_time

SALT = 7


def settled(world: World) -> Any:
    """Start every node; the leader, once there is one and everything is quiet."""
    for node in world.nodes.values():
        if not node.alive:
            node.start()
    assert world.run(world.now() + 10, lambda: bool(world.leaders))
    world.run(world.now() + 0.5)
    return world.leaders[0]


def propose_all(world: World, node: Any, count: int) -> None:
    proposals = [world.propose(node) for _ in range(count)]
    assert world.run(world.now() + 5, lambda: all(proposal.answered for proposal in proposals))
    assert all(proposal.error is None for proposal in proposals)


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


def test_hole_3_library_never_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    journal = FileJournal(str(tmp_path / "journal"))
    for index in range(1, 100):
        journal.add(b"x", index, 1)
        journal.onOneSecondTimer()
    assert synced == []


def test_hole_3_ours_survives_power_loss_everywhere() -> None:
    world = World(5, 3, ())
    with virtual_time(world):
        propose_all(world, settled(world), 50)
        acknowledged = [proposal.command for proposal in world.proposals]
        for node in world.nodes.values():
            node.crash(power_loss=True)
            world.network.node_died(node.node_id, noticed=False)
        leader = settled(world)
        assert [command for _, _, command in leader.machine.history][: len(acknowledged)] == acknowledged


def test_hole_4_library_reads_a_damaged_vote_as_none(tmp_path: Path) -> None:
    path = tmp_path / "meta"
    path.write_bytes(b"damaged")
    assert MetaStorer(str(path)).getMeta() == {}


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_hole_4_ours_refuses_a_damaged_vote(tmp_path: Path, damage: str) -> None:
    disk = Directory(tmp_path)
    vote.save(disk, Vote(7, 3))
    assert vote.load(disk) == Vote(7, 3)
    path = tmp_path / vote.FILE_NAME
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes({"flip": bytes(content), "cut": bytes(content[:-3]), "empty": b""}[damage])
    with pytest.raises(CorruptFile, match="vote is damaged"):
        vote.load(disk)


def _library_journal(path: Path) -> None:
    journal = FileJournal(str(path))
    for index in range(1, 20):
        journal.add(b"payload-%d" % index, index, 1)
    journal._destroy()


def test_hole_5_library_accepts_a_flipped_byte(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    _library_journal(path)
    content = bytearray(path.read_bytes())
    content[content.index(b"payload-9")] ^= 1
    path.write_bytes(content)
    assert any(entry[0] == b"qayload-9" for entry in FileJournal(str(path)))


def test_hole_5_library_does_not_start_after_a_torn_write(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    _library_journal(path)
    size = path.read_bytes().index(b"payload-9")
    os.truncate(path, size)
    with pytest.raises((struct.error, ValueError)):
        FileJournal(str(path))


def test_hole_6_library_loses_the_tail_when_compaction_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "journal")
    _library_journal(Path(path))
    journal = FileJournal(path)
    add, added = journal.add, []

    def crash_after_three(*entry: Any) -> None:
        if len(added) == 3:
            raise KeyboardInterrupt
        added.append(entry)
        add(*entry)

    monkeypatch.setattr(journal, "add", crash_after_three)
    with pytest.raises(KeyboardInterrupt):
        journal.deleteEntriesTo(5)
    assert len(FileJournal(path)) == 3


def test_hole_7_library_swallows_an_unreadable_dump(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(b"damaged")
    configuration = SyncObjConf(autoTick=False, fullDumpFile=str(dump), useFork=False)
    node = SyncObj(Node("A"), [], configuration, transport=_Silent())
    node.doTick(0)
    assert node._isLeader() or node.raftLastApplied == 1


@pytest.mark.parametrize("position", [3, 20, 40, -2])
def test_hole_7_ours_refuses_a_damaged_snapshot(tmp_path: Path, position: int) -> None:
    disk = Directory(tmp_path)
    snapshots.write(disk, snapshots.FOLDED_NAME, 9, 2, [b"a" * 30, b"b" * 30])
    snapshot = snapshots.SnapshotStore.publish(SimpleNamespace(_disk=disk), snapshots.FOLDED_NAME)  # type: ignore[arg-type]
    content = bytearray((tmp_path / snapshot.name).read_bytes())
    content[position] ^= 1
    (tmp_path / snapshot.name).write_bytes(content)
    with pytest.raises(CorruptFile, match="is damaged"):
        list(snapshots.read_chunks(disk, snapshots.SnapshotStore(disk).latest.name))  # type: ignore[union-attr]


def test_hole_8_library_commit_index_goes_beyond_the_journal(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    journal = FileJournal(path)
    journal.add(b"x", 1, 1)
    journal.setRaftCommitIndex(500)
    journal.onOneSecondTimer()
    assert FileJournal(path).getRaftCommitIndex() == 500


def test_hole_8_ours_starts_from_the_snapshot() -> None:
    world = World(8, 3, ())
    with virtual_time(world):
        propose_all(world, settled(world), 30)
        node = world.nodes[2]
        node.crash(power_loss=False)
        world.network.node_died(2, noticed=True)
        node.start()
        consensus = node.running.consensus
        assert consensus.commit_index == consensus.last_applied <= node.running.journal.last_index


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
    with pytest.raises(messages.MalformedMessage):
        messages.decode(pickle.dumps(_Dangerous("/nonexistent")))


def test_hole_10_library_applies_again_after_an_exception() -> None:
    class Raising(SyncObj):  # type: ignore[misc]
        calls = 0

        @replicated  # type: ignore[misc]
        def put(self) -> None:
            Raising.calls += 1
            raise ValueError("not total")

    node = Raising(Node("A"), [], SyncObjConf(autoTick=False), transport=_Silent())
    node._poller.poll = lambda timeout: time.sleep(0.01)
    deadline = time.monotonic() + 10
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
        assert new.running.consensus.active, "the returning node deposes nobody"
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


def test_hole_14_ours_takes_more_commands_than_a_pipe_holds() -> None:
    world = World(14, 3, ())
    with virtual_time(world):
        leader = settled(world)
        answers: list[object] = []
        for _ in range(70_000):
            leader.running.propose(b"", lambda outcome, error: answers.append(error))
        assert world.run(world.now() + 60, lambda: len(answers) == 70_000)
        assert set(answers) == {None}


def test_hole_14_library_raises_after_queueing() -> None:
    node = SyncObj(
        Node("A"), [], SyncObjConf(autoTick=False, appendEntriesUseBatch=False), transport=_Silent()
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
            leader.running.propose(b"x" * size, lambda outcome, error: answers.append(error))
        assert world.run(world.now() + 5, lambda: len(answers) == 7)
        assert set(answers) == {None}


def test_hole_17_library_renumbers_methods() -> None:
    class Before(SyncObj):  # type: ignore[misc]
        @replicated  # type: ignore[misc]
        def put(self) -> None: ...

    class After(SyncObj):  # type: ignore[misc]
        @replicated  # type: ignore[misc]
        def add(self) -> None: ...

        @replicated  # type: ignore[misc]
        def put(self) -> None: ...

    before, after = (
        made(Node("A"), [], SyncObjConf(autoTick=False), transport=_Silent()) for made in (Before, After)
    )
    assert before._methodToID["put_v0"] != after._methodToID["put_v0"]


def test_hole_17_our_entries_carry_a_version() -> None:
    payload = entries.pack_group([b"one", b""])
    assert entries.unpack_group(payload) == [b"one", b""]
    with pytest.raises(entries.MalformedEntry, match="version"):
        entries.unpack_group(b"\x00\x09")


def test_hole_r1_ours_keeps_the_tail_behind_a_snapshot(tmp_path: Path) -> None:
    disk = Directory(tmp_path)
    journal = open_journal(disk, SALT)
    for index in range(2, 60):
        journal.append(b"x%d" % index, index, 1)
    journal.close()
    journal = open_journal(disk, SALT)
    assert align(journal, Snapshot("snapshot", 30, 1, 0)) == 30
    assert journal.last_index == 59
    assert align(journal, Snapshot("snapshot", 80, 2, 0)) == 80
    assert (journal.last_index, journal.last_term) == (80, 2)
    journal.close()


def _cut_off_leader_with_tail(world: StockWorld) -> tuple[str, str, list[int]]:
    """An old leader with thirty uncommitted entries, a new leader that has compacted its log."""
    old = world.leader()
    rest = tuple(name for name in world.nodes if name != old)
    for name in rest:
        world.drop(old, name)
    told: list[int] = []
    for number in range(30):
        world.nodes[old].put(f"uncommitted {number}", callback=lambda _, error: told.append(error))
    world.tick(old, seconds=0.01)
    world.step(300, rest)
    new = world.leader(rest)
    for number in range(50):
        world.nodes[new].put(f"good {number}")
    world.step(200, rest)
    world.nodes[new].forceLogCompaction()
    world.step(5, rest)
    return old, new, told


def test_hole_r2_library_commits_an_uncommitted_tail_on_a_snapshot_piece() -> None:
    with stock_world(appendEntriesUseBatch=True, logCompactionBatchSize=64) as world:
        old, new, told = _cut_off_leader_with_tail(world)
        world.connect(old, new)
        world.tick(new)
        for _ in range(200):
            world.deliver(new, old, 1)
            world.nodes[old].doTick(0)
            if 0 in told:
                break
        assert 0 in told, "a caller is told that an uncommitted command succeeded"


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


def test_hole_r5_ours_sends_an_entry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(6, 3, ())
    with virtual_time(world):
        leader = settled(world)
        for one in world.nodes:
            for other in world.nodes:
                if one != other:
                    world.network.slow_down(one, other, (0.003, 0.003))
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
        world.network.send = lambda *arguments: (sent.append(arguments[1]), send(*arguments))[1]  # type: ignore[method-assign, assignment, func-returns-value]
        world.run(world.now() + 2.0)
        assert sent.count(lagging.node_id) < 250, "about 50 heartbeats, votes and pieces in two seconds"


class _Silent(library.Transport):  # type: ignore[misc]
    """Nobody else is there."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def send(self, node: Any, message: Any) -> bool:
        return False

    def destroy(self) -> None:
        """Nothing to release."""
