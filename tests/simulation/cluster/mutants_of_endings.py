"""Mutants of the ends of transactions, of cuts and writers, and of the data that retention spares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from unittest.mock import patch

from ottla.dataplane.handlers.cuts import CutHandlers
from ottla.dataplane.log.old_segments import OldSegments
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.transactions.markers import Markers
from ottla.metadata_quorum import transaction_questions
from ottla.metadata_quorum.marker_reports import ReportedMarkers
from ottla.metadata_quorum.state import transaction_decisions
from ottla.protocol.cluster.transaction_table import Place, TransactionMetadata, TransactionTable, Writer
from tests.simulation.cluster.planting import mutant


@mutant(
    "end-told-before-all-markers",
    "the quorum's leader says that a transaction is over once the first of its partitions has reported",
    history="ours: EndTxn is answered before reports of markers are in the Raft log, by counting them",
    needs="A transaction over several partitions, one of whose followers lags, and a reader that asks for that one's "
    "end right after the commit.",
)
def end_told_before_all_markers() -> Iterator[None]:
    """T has written to P and Q. P's leader reports its marker, and T's producer is answered that T is committed.

    A reader that reads Q now gets to the last stable offset, which is below T, and finds no record.
    """

    def at_first(_self: ReportedMarkers, _transaction: TransactionMetadata) -> bool:
        return True

    with patch.object(ReportedMarkers, "_is_settled", at_first):
        yield


@mutant(
    "cut-of-an-old-image",
    "a leader says where its partition is cut, however old its image of the metadata is",
    history="KIP-320, for cuts: ListOffsets of a leader that was deposed and does not know",
    needs="A reader of whole transactions, and a leader that is cut off from the quorum while another is elected.",
)
def cut_of_an_old_image() -> Iterator[None]:
    """A leads P, is cut off, B leads P. T writes to P and Q and is committed; both markers are reported. A reader that
    has not heard of B asks A, which knows of no marker and names its high watermark: it gets only T's records in Q."""

    async def as_it_is(_self: CutHandlers) -> None:
        return

    with patch.object(CutHandlers, "_catch_up", as_it_is):
        yield


@mutant(
    "cut-counts-what-is-not-marked",
    "the newest cut is the newest decision, whether or not its markers are written",
    history="KIP-98 has a reader wait for markers, not for the decision",
    needs="A reader of whole transactions that asks for a cut between a decision and the last marker.",
)
def cut_counts_what_is_not_marked() -> Iterator[None]:
    """T has written to P and Q and is committed.

    P has its marker, Q does not yet. A reader is answered that the cut is at T: P is cut after T's marker, Q at its
    high watermark, and T's records in Q have no marker below. T passes for complete without them.
    """

    def decided(table: TransactionTable, _places: Iterable[Place]) -> int:
        return table.next_commit_index - 1

    with patch.object(transaction_questions, "largest_cut", decided):
        yield


@mutant(
    "writer-epoch-not-raised",
    "the producer id of a former writer is given to the next one under the same epoch",
    history="KIP-98: who takes an identity over gets the next epoch; KIP-890, for late batches",
    needs="Transactions that several processes write in, one after the other, to the same partition.",
)
def writer_epoch_not_raised() -> Iterator[None]:
    """A writer of T has sent a batch that is held up, and T is aborted. U begins, its writer is given the same
    identity. The batch arrives, passes for one of U's, and is committed with it. And what U's writer sends first has
    the number of T's first batch: it is answered that this batch is a duplicate."""
    free = transaction_decisions._free_in_pool

    def as_it_was(transaction: TransactionMetadata) -> tuple[int, int] | None:
        found = free(transaction)
        return None if found is None else (found[0], found[1] - 1)

    with patch.object(transaction_decisions, "_free_in_pool", as_it_was):
        yield


@mutant(
    "own-commit-torn-by-unclean-election",
    "who was elected uncleanly aborts what is open in its log before it writes a commit",
    history="ours, found by seeds 1911 and 2608",
    needs="An unclean election between the decision to commit and its marker, of a replica that has the records.",
)
def own_commit_torn_by_unclean_election() -> Iterator[None]:
    """T has written to P and Q and is committed. Q has its marker, P's leader dies before it has written one. A
    replica that has all of T is elected uncleanly, takes T for an older open transaction, and aborts it: readers see
    only T's records in Q.
    """
    abort = Markers._abort_what_is_older

    def of_no_epoch(
        self: Markers, partition: Partition, transaction: TransactionMetadata, writer: Writer
    ) -> bool:
        return abort(self, partition, transaction, replace(writer, producer_epoch=-1))

    with patch.object(Markers, "_abort_what_is_older", of_no_epoch):
        yield


@mutant(
    "retention-takes-open-transactions",
    "retention takes all that is replicated, also of transactions that are open",
    history="what Kafka does: its bound is the high watermark",
    needs="A topic that keeps less than what is written in it during one transaction.",
)
def retention_takes_open_transactions() -> Iterator[None]:
    """T writes to P and Q, and goes on for longer than P keeps its records. T is committed: readers see T's records
    in Q, and only the last ones in P.
    """

    def up_to_the_high_watermark(self: OldSegments, high_watermark: int, now_ms: int) -> int:
        return self._retain_from(high_watermark, now_ms)

    with patch.object(OldSegments, "retain", up_to_the_high_watermark):
        yield


ALL = (
    end_told_before_all_markers,
    cut_of_an_old_image,
    cut_counts_what_is_not_marked,
    writer_epoch_not_raised,
    own_commit_torn_by_unclean_election,
    retention_takes_open_transactions,
)
