"""The faults of the library on disk, beside the same situation on ours."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import FileJournal, MetaStorer
from pysyncobj.node import Node

from ottla.metadata_quorum.raft import snapshots, vote
from ottla.metadata_quorum.raft.compaction import align
from ottla.metadata_quorum.raft.disk import CorruptFile, Directory
from ottla.metadata_quorum.raft.journal import open_journal
from ottla.metadata_quorum.raft.snapshots import Snapshot
from ottla.metadata_quorum.raft.vote import Vote
from tests.metadata_quorum.raft.ours import propose_all, settled
from tests.metadata_quorum.raft.stock import Silent, StockNode, stock_world
from tests.simulation.raft.world import World, virtual_time

SALT = 7


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
    add: Callable[..., None] = journal.add
    added: list[Any] = []

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
    node = SyncObj(Node("A"), [], configuration, transport=Silent())
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


def _alone(folder: Path) -> StockNode:
    """Return a cluster of one node, restored from its files."""
    configuration = SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=True,
        journalFile=str(folder / "journal"),
        fullDumpFile=str(folder / "dump"),
        useFork=False,
        logCompactionMinEntries=10**6,
        logCompactionMinTime=10**6,
    )
    node = StockNode(Node("A"), [], configuration, transport=Silent())
    node._poller.poll = lambda timeout: None
    return node


@pytest.mark.parametrize("crashes_in_between", [False, True])
def test_hole_r1_library_loses_the_journal_between_dump_and_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashes_in_between: bool
) -> None:
    def crash(position: int) -> None:
        raise KeyboardInterrupt

    acknowledged: list[int] = []
    with stock_world() as clock:

        def ticks(node: StockNode, condition: Callable[[], bool]) -> None:
            for _ in range(200):
                if condition():
                    return
                clock.now += 0.1
                node.doTick(0)
            raise AssertionError("nothing happens")

        def put(number: int) -> None:
            node.put(number, callback=lambda _, error: acknowledged.append(number) if error == 0 else None)

        node = _alone(tmp_path)
        ticks(node, node._isLeader)
        for number in range(60):
            put(number)
        ticks(node, lambda: len(acknowledged) == 60)
        for number in range(60, 100):
            put(number)
        node.forceLogCompaction()
        ticks(node, (tmp_path / "dump").exists)
        assert node._getRaftLogSize() > 100, "the journal is whole"
        if crashes_in_between:
            monkeypatch.setattr(node.private("raftLog"), "deleteEntriesTo", crash)
            with pytest.raises(KeyboardInterrupt):
                node.doTick(0)
        else:
            node.doTick(0)
        assert acknowledged == list(range(100))

        again = _alone(tmp_path)
        ticks(again, again._isLeader)
        for _ in range(5):
            again.doTick(0)
        assert again.items == list(range(60 if crashes_in_between else 100))


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
