"""Known faults of the library, planted one at a time, which the simulation has to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla.metadata_quorum.raft import core, follower, startup
from ottla.metadata_quorum.raft.journal import Journal, JournalTicket
from ottla.metadata_quorum.raft.membership import QuorumMembership
from ottla.metadata_quorum.raft.messages import Append, AppendReply, Promised
from ottla.metadata_quorum.raft.safety import Accepted, LogView, Mismatch
from ottla.metadata_quorum.raft.snapshots import Snapshot


def _truncate_on_overlap(log: LogView, applied: int, message: Append) -> Accepted | Mismatch:
    previous, entries = message.previous_index, message.entries
    if previous > log.last_index or previous < log.base_index:
        return Mismatch(log.last_index + 1)
    term = log.term_at(previous)
    if term != message.previous_term:
        return Mismatch(previous)
    assert term is not None
    return Accepted(previous, term, entries, previous + len(entries))


@contextmanager
def overlap_truncates() -> Iterator[None]:
    """Hole 1: an append that overlaps the log truncates it, even if the entries are equal."""
    with patch.object(follower, "reconcile", _truncate_on_overlap):
        yield


@contextmanager
def replies_of_any_term() -> Iterator[None]:
    """Hole 2: a confirmation counts, even if it was given in another term."""
    dispatch = core.Core._dispatch

    def believe(self: core.Core, peer: int, message: Any) -> None:
        if isinstance(message, AppendReply) and self.consensus.leads:
            self.replicator.on_reply(peer, message)
        else:
            dispatch(self, peer, message)

    with patch.object(core.Core, "_dispatch", believe):
        yield


def _write_only(self: JournalTicket) -> None:
    for segment, buffers in self.writes:
        if segment.file is None:
            segment.file = self.disk.create(segment.name)
        data = b"".join(buffers)
        segment.file.write(segment.written, data)
        segment.written += len(data)


@contextmanager
def nothing_is_synced() -> Iterator[None]:
    """Hole 3: the journal is written and never synced."""
    with patch.object(JournalTicket, "run", _write_only):
        yield


@contextmanager
def acknowledged_before_synced() -> Iterator[None]:
    """Hole 3, the other half: a follower acknowledges entries before they are synced."""
    append = Journal.append

    def durable_at_once(self: Journal, payload: bytes, index: int, term: int) -> None:
        append(self, payload, index, term)
        self.durable_index = index

    with patch.object(Journal, "append", durable_at_once):
        yield


@contextmanager
def votes_before_durable() -> Iterator[None]:
    """Hole 4: a vote leaves the node before it is on disk."""

    def send_now(self: core.Core, peer: int, message: Any) -> None:
        self._effects.send(peer, core.messages.encode(message))

    with patch.object(core.Core, "_send", send_now):
        yield


def _reset_unless_equal(log: Journal, snapshot: Snapshot | None) -> int:
    if snapshot is None:
        return 1
    if (log.base_index, log.entries[0][2]) != (snapshot.index, snapshot.term):
        log.reset(snapshot.index, snapshot.term)
        log.sync()
    return snapshot.index


@contextmanager
def snapshot_wipes_journal() -> Iterator[None]:
    """Hole r1: a journal that does not begin at the snapshot is discarded at start."""
    with patch.object(startup, "align", _reset_unless_equal):
        yield


@contextmanager
def snapshot_moves_commit() -> Iterator[None]:
    """Hole r2: a piece of a snapshot moves the commit index, whatever entries the follower holds."""
    dispatch = core.Core._dispatch

    def believe(self: core.Core, peer: int, message: Any) -> None:
        dispatch(self, peer, message)
        if isinstance(message, core.SnapshotChunk) and message.term == self.consensus.term:
            commit = min(message.index, self.journal.last_index)
            if commit > self.consensus.commit_index:
                self.consensus._SyncObj__raftCommitIndex = commit

    with patch.object(core.Core, "_dispatch", believe):
        yield


@contextmanager
def restored_nodes_vote() -> Iterator[None]:
    """A node that comes back with an old copy of its disk votes, even if its peers remember newer promises."""

    def ignore(self: QuorumMembership, peer: int, message: Promised) -> None:
        self.unheard.discard(peer)

    with patch.object(QuorumMembership, "on_promised", ignore):
        yield


MUTANTS: dict[str, Callable[[], Any]] = {
    "1": overlap_truncates,
    "3": nothing_is_synced,
    "3b": acknowledged_before_synced,
    "4": votes_before_durable,
    "r1": snapshot_wipes_journal,
    "r2": snapshot_moves_commit,
    "restored": restored_nodes_vote,
}
"""Mutants that random faults find soon; hole 2 needs two elections at the right moment and has a separate test."""

FAULTS: dict[str, frozenset[str]] = {
    "4": frozenset({"power", "disk", "isolate", "heal"}),
    "restored": frozenset({"kill", "restore"}),
}
"""Narrower choices of faults that find a mutant sooner."""
