"""Mutants of the quorum's log: an own one, and those that the Raft simulation has to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest.mock import patch

from ottla.metadata_quorum.raft import startup
from ottla.metadata_quorum.raft.disk import CorruptFile, Disk
from ottla.metadata_quorum.raft.journal import Journal, open_journal
from tests.simulation.cluster.planting import Mutant, mutant
from tests.simulation.raft import mutants as raft


@mutant(
    "snapshot-hides-torn-journal",
    "a quorum node whose journal is damaged goes on from its snapshot, with an empty journal",
    history="pysyncobj: a dump is loaded whatever has become of the journal behind it",
    needs="A quorum of 3, snapshots small enough to be made; bit rot in the journal of one node behind its newest "
    "snapshot, while it is down; the node that shares the last entries with it down or cut off when it returns.",
)
def snapshot_hides_torn_journal() -> Iterator[None]:
    """Nodes 1 and 2 commit the creation of a topic, 3 lags. 2 is stopped, a byte of its journal rots, and it starts
    from its snapshot without complaint. 1 dies. 2 and 3 elect 3: the topic, its records' epochs, and an ISR change that
    was reported to a leader never happened. Later actions of brokers contradict their earlier ones.
    """

    def swallow(disk: Disk, salt: int, segment_bytes: int) -> Journal:
        try:
            return open_journal(disk, salt, segment_bytes)
        except CorruptFile:
            if not any(name.startswith("snapshot-") for name in disk.names()):
                raise
            for name in disk.names():
                if name.startswith("journal-"):
                    disk.remove(name)
            return open_journal(disk, salt, segment_bytes)

    with patch.object(startup, "open_journal", swallow):
        yield


def _of_raft(
    name: str, breaks: str, history: str, needs: str, planted: Callable[[], AbstractContextManager[None]]
) -> Mutant:
    return Mutant(name, breaks, history, needs, planted, "raft")


ALL = (
    snapshot_hides_torn_journal,
    _of_raft(
        "lost-commit",
        "an append that overlaps the log cuts it, whatever stands there",
        "pysyncobj, hole 1: the lost commit",
        "Delayed and repeated appends on a slow link, then an election.",
        raft.overlap_truncates,
    ),
    _of_raft(
        "stale-acknowledgement",
        "a confirmation counts whatever term it was given in",
        "pysyncobj, hole 2; Raft section 5.2",
        "A confirmation that travels for two elections and meets the same leader: test_stale_replies plays it.",
        raft.replies_of_any_term,
    ),
    _of_raft(
        "journal-never-synced",
        "the journal is written and never synced",
        "pysyncobj, hole 3",
        "Power loss of a majority.",
        raft.nothing_is_synced,
    ),
    _of_raft(
        "quorum-acknowledges-before-synced",
        "a quorum node acknowledges what it has only been handed",
        "pysyncobj, hole 3, the other half",
        "Power loss of the nodes that acknowledged while their disks are slow.",
        raft.acknowledged_before_synced,
    ),
    _of_raft(
        "vote-before-durable",
        "a vote leaves the node before it is on disk",
        "pysyncobj, hole 4; Raft section 5.2",
        "Power loss between a vote and its sync, and two candidates in one term.",
        raft.votes_before_durable,
    ),
    _of_raft(
        "snapshot-wipes-journal",
        "a journal that does not begin at the snapshot is thrown away at start",
        "pysyncobj, hole r1",
        "Restarts of a majority after snapshots, with entries behind them.",
        raft.snapshot_wipes_journal,
    ),
    _of_raft(
        "snapshot-moves-commit",
        "a piece of a snapshot moves the commit index over whatever the follower holds",
        "pysyncobj, hole r2",
        "A deposed leader with a tail of its own that comes back so late that it gets a snapshot.",
        raft.snapshot_moves_commit,
    ),
)
