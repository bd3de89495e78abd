"""The journal after every kind of stop: synced entries survive, torn ones are cut, damage is reported."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata_quorum.raft import failstop
from ottla.metadata_quorum.raft.compaction import align
from ottla.metadata_quorum.raft.disk import CorruptFile, Directory
from ottla.metadata_quorum.raft.journal import Journal, open_journal
from ottla.metadata_quorum.raft.journal_recovery import read_entries
from ottla.metadata_quorum.raft.snapshots import Snapshot
from tests.simulation.raft.virtual_disk import VirtualDisk

SALT = 99


def filled(disk: Directory | VirtualDisk, count: int, segment_bytes: int = 1 << 20) -> Journal:
    journal = open_journal(disk, SALT, segment_bytes)
    for index in range(2, 2 + count):
        journal.append(b"payload %d" % index, index, 1)
    return journal


def reopened(disk: Directory | VirtualDisk) -> Journal:
    return open_journal(disk, SALT, 1 << 20)


def only_file(path: Path) -> Path:
    (file,) = path.glob("journal-*.log")
    return file


def test_a_new_journal_begins_behind_entry_one(tmp_path: Path) -> None:
    journal = reopened(Directory(tmp_path))
    assert (journal.base_index, journal.last_index, journal.last_term) == (1, 1, 0)
    journal.close()


def test_durable_index_moves_with_completed_tickets_only(tmp_path: Path) -> None:
    journal = filled(Directory(tmp_path), 5)
    assert journal.durable_index == 1
    ticket = journal.take_ticket()
    journal.append(b"later", 7, 1)
    ticket.run()
    assert journal.durable_index == 1
    journal.complete(ticket)
    assert journal.durable_index == 6
    journal.sync()
    assert journal.durable_index == 7
    journal.close()


def test_a_cut_while_syncing_is_not_undone_by_the_sync(tmp_path: Path) -> None:
    journal = filled(Directory(tmp_path), 9)
    ticket = journal.take_ticket()
    journal.cut_behind(4)
    journal.append(b"new", 5, 2)
    ticket.run()
    journal.complete(ticket)
    assert journal.durable_index == 4, "entry 5 of term 2 is not on disk yet"
    journal.sync()
    assert journal.durable_index == 5
    journal.close()
    assert [entry[1:] for entry in reopened(Directory(tmp_path)).entries][-2:] == [(4, 1), (5, 2)]


@pytest.mark.parametrize("lost", [1, 10, 45, 60])
def test_a_torn_tail_is_cut_off(tmp_path: Path, lost: int) -> None:
    journal = filled(Directory(tmp_path), 20)
    journal.sync()
    os.truncate(only_file(tmp_path), only_file(tmp_path).stat().st_size - lost)
    again = reopened(Directory(tmp_path))
    assert again.last_index in (19, 20)
    again.append(b"goes on", again.last_index + 1, 1)
    again.close()
    assert reopened(Directory(tmp_path)).entries[-1][0] == b"goes on"


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_in_a_closed_journal_is_fatal(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("journal")
    filled(Directory(path), 20).close()
    content = bytearray(only_file(path).read_bytes())
    last_record = content.rindex(b"OtJr")
    content[at % last_record] ^= 1 << bit
    only_file(path).write_bytes(content)
    with pytest.raises(CorruptFile, match="is damaged at byte"):
        reopened(Directory(path))


def test_a_flipped_bit_between_synced_records_is_fatal_even_after_a_kill(tmp_path: Path) -> None:
    journal = filled(Directory(tmp_path), 5)
    journal.sync()
    journal.append(b"witness", 7, 1)
    journal.sync()
    content = bytearray(only_file(tmp_path).read_bytes())
    content[content.index(b"payload 4")] ^= 1
    only_file(tmp_path).write_bytes(content)
    with pytest.raises(CorruptFile, match="record 4"):
        reopened(Directory(tmp_path))


def test_a_payload_cannot_pose_as_a_record(tmp_path: Path) -> None:
    forged = filled(Directory(tmp_path / "forged"), 5)
    forged.sync()
    forged.append(b"says that all was durable", 7, 1)
    forged.sync()
    payload = only_file(tmp_path / "forged").read_bytes()
    journal = open_journal(Directory(tmp_path / "real"), SALT + 1)
    journal.append(b"ordinary", 2, 1)
    journal.append(payload, 3, 1)
    journal.sync()
    file = only_file(tmp_path / "real")
    content = bytearray(file.read_bytes())
    content[content.index(b"ordinary")] ^= 1
    file.write_bytes(content)
    assert open_journal(Directory(tmp_path / "real"), SALT + 1).last_index == 1, "a torn tail, nothing more"


def test_prefixes_are_removed_as_whole_files(tmp_path: Path) -> None:
    disk = Directory(tmp_path)
    journal = filled(disk, 100, segment_bytes=300)
    journal.sync()
    files = len(list(tmp_path.glob("journal-*")))
    removal = journal.drop_prefix(60)
    assert removal is not None
    removal.run()
    assert len(list(tmp_path.glob("journal-*"))) < files / 2 + 1
    assert journal.base_index == 60
    journal.close()
    again = reopened(disk)
    assert again.base_index <= 60
    assert align(again, Snapshot("s", 60, 1, 0)) == 60
    assert again.last_index == 101


def test_a_snapshot_may_be_ahead_of_the_disk(tmp_path: Path) -> None:
    """A follower that was away for long gets entries and a snapshot that covers them, so these need not be synced."""
    journal = filled(Directory(tmp_path), 5)
    journal.sync()
    for index in range(7, 13):
        journal.append(b"later", index, 1)
    journal.drop_prefix(10)
    journal.check()
    assert (journal.base_index, journal.durable_index, journal.last_index) == (10, 6, 12)
    journal.sync()
    journal.check()
    assert journal.durable_index == 12


@pytest.mark.parametrize("interrupted_after", range(6))
def test_an_interrupted_removal_leaves_no_gap(tmp_path: Path, interrupted_after: int) -> None:
    disk = Directory(tmp_path)
    journal = filled(disk, 100, segment_bytes=300)
    journal.sync()
    removal = journal.drop_prefix(60)
    assert removal is not None
    removal.segments = removal.segments[:interrupted_after]
    removal.run()
    again = reopened(disk)
    assert again.last_index == 101
    assert again.term_at(60) == 1


def test_a_journal_without_its_snapshot_is_refused(tmp_path: Path) -> None:
    disk = Directory(tmp_path)
    journal = filled(disk, 100, segment_bytes=300)
    journal.sync()
    removal = journal.drop_prefix(60)
    assert removal is not None
    removal.run()
    journal.close()
    with pytest.raises(CorruptFile, match="no snapshot"):
        align(reopened(disk), None)
    with pytest.raises(CorruptFile, match="newest snapshot ends at 5"):
        align(reopened(disk), Snapshot("s", 5, 1, 0))


def test_reading_beside_the_writer_changes_nothing(tmp_path: Path) -> None:
    journal = filled(Directory(tmp_path), 5)
    journal.sync()
    with only_file(tmp_path).open("ab") as file:
        file.write(b"OtJr half a record")
    before = only_file(tmp_path).read_bytes()
    assert [entry[1] for entry in read_entries(Directory(tmp_path), SALT)] == [1, 2, 3, 4, 5, 6]
    assert only_file(tmp_path).read_bytes() == before


def test_a_failed_sync_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Exited(BaseException):
        pass

    def leave() -> None:
        raise Exited

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    journal = filled(Directory(tmp_path), 3)
    monkeypatch.setattr(failstop, "exit_process", leave)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(Exited):
        journal.sync()
    assert journal.durable_index == 1


@settings(max_examples=150)
@given(st.integers(0, 1 << 32))
def test_power_loss_keeps_what_was_synced(seed: int) -> None:
    """After random appends, cuts, resets and syncs, and a power loss, the journal matches a list."""
    random = Random(seed)
    disk = VirtualDisk()
    journal = open_journal(disk, SALT, random.choice([200, 1000, 1 << 20]))
    model: list[tuple[bytes, int, int]] = list(journal.entries)
    versions = [list(model)]
    synced_version = 0
    term = 1
    for _ in range(random.randint(1, 60)):
        action = random.random()
        if action < 0.7:
            entry = (random.randbytes(random.randint(0, 60)), model[-1][1] + 1, term)
            journal.append(*entry)
            model.append(entry)
        elif action < 0.85 and len(model) > 1:
            position = random.randrange(len(model))
            journal.cut_behind(model[position][1])
            del model[position + 1 :]
            term += 1
        elif action < 0.88:
            term += 1
            journal.reset(model[-1][1] + 5, term)
            model[:] = [(b"", model[-1][1] + 5, term)]
        else:
            journal.sync()
            synced_version = len(versions) - 1
            continue
        versions.append(list(model))
        assert journal.entries == model
    disk.crash(random, power_loss=True)
    recovered = open_journal(disk, SALT, 1 << 20)
    assert recovered.entries in versions[synced_version:]
    recovered.append(b"goes on", recovered.last_index + 1, recovered.last_term)
    recovered.sync()
    expected = list(recovered.entries)
    disk.crash(random, power_loss=True)
    assert open_journal(disk, SALT, 1 << 20).entries == expected
