"""Mutants of transactions: decisions, accepted batches, markers, and the last stable offset."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from ottla.dataplane.log.compaction.transactions import TransactionFilter
from ottla.dataplane.log.transactions import LogTransactions
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.transactions import markers, pending_writes
from ottla.dataplane.transactions.batch_check import BatchCheck, judge
from ottla.dataplane.transactions.completion_waits import CompletionWaits
from ottla.dataplane.transactions.markers import Markers
from ottla.metadata_quorum.state import transaction_decisions, transaction_markers
from ottla.protocol.cluster.transaction_table import TransactionMetadata
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.simulation.cluster.planting import mutant


@mutant(
    "new-leader-presumes-abort",
    "a new leader ends with ABORT whatever lacks its marker",
    history="a coordinator that forgets what was decided; an outcome that flips; scenarios 33 and 34",
    needs="A transaction over several partitions; the leader of one killed between the decision and its marker.",
)
def new_leader_presumes_abort() -> Iterator[None]:
    """T has written to P and Q and is committed. Q's leader writes COMMIT, P's dies before. The next one finds T open
    and writes ABORT: readers see only T's records in Q."""
    elected, append = Markers.elected, Partition.append_marker

    def aborts(self: Partition, *who: Any, **what: Any) -> int:
        return append(self, *who, **(what | {"commit": False}))

    def presumes(self: Markers, partition: Partition) -> None:
        with patch.object(Partition, "append_marker", aborts):
            elected(self, partition)

    with patch.object(Markers, "elected", presumes):
        yield


@mutant(
    "new-leader-writes-markers-again",
    "a leader does not look whether its log has a marker already",
    history="KIP-98: markers sent again to the next leader; scenario 34",
    needs="A leader that dies when its marker is replicated and the quorum has not been told.",
)
def new_leader_writes_markers_again() -> Iterator[None]:
    """A writes the marker of T, all have it, A dies before it has reported that.

    B leads, T's marker is still missing for the quorum, and B writes it: T ends twice in this log.
    """

    def never(_number: int, _entry: object) -> bool:
        return False

    with patch.object(markers, "is_behind", never):
        yield


@mutant(
    "marker-reported-at-append",
    "a marker is reported to the quorum as soon as it is in its leader's log",
    history="KIP-98 has markers appended with acks=all for this; scenario 33",
    needs="A leader that is killed or loses its power right after it wrote a marker that its followers have not.",
)
def marker_reported_at_append() -> Iterator[None]:
    """A writes the marker of T and reports it; T is complete for the quorum.

    A dies before any follower has copied it. B leads: in its log T is open, and no node will ever end it. Readers of
    committed records get no further.
    """

    def at_once(self: Markers, marker: Any) -> None:
        self._replicated(marker, ErrorCode.NONE)

    with patch.object(Markers, "_when_replicated", at_once):
        yield


@mutant(
    "markers-in-any-order",
    "markers are written in another order than that in which the quorum decided",
    history="snapshots of a cluster at a point of its history, which Kafka does not have (docs/TRANSACTIONS.md)",
    needs="Transactions of two producers over one partition, decided while that has no leader, or together.",
)
def markers_in_any_order() -> Iterator[None]:
    """T is committed, then U, both have written to P and Q. P's markers stand as T, U, Q's as U, T: no offsets of P
    and Q belong to one state of the cluster between them."""

    def backwards(known: Iterable[Any], key: Callable[[Any], Any] | None = None) -> list[Any]:
        return builtins.sorted(known, key=key, reverse=True)

    with patch.object(markers, "sorted", backwards, create=True):
        yield


@mutant(
    "ended-before-it-is-seen",
    "EndTxn is answered as soon as the outcome is decided",
    history="what Kafka does: a reader that begins after a commit may not see it",
    needs="A reader that asks for the end of a partition right after a commit, while its marker waits for a follower.",
)
def ended_before_it_is_seen() -> Iterator[None]:
    """T's producer is answered that T is committed, and asks another client to read it.

    That reader gets to the last stable offset, which is below T, and finds no record.
    """

    async def at_once(_self: CompletionWaits, _name: str, _number: int, _timeout_s: float) -> None:
        return

    with patch.object(CompletionWaits, "over", at_once):
        yield


@mutant(
    "any-batch-accepted",
    "a leader appends transactional batches of the producer's epoch, whether or not a transaction is open there",
    history="KIP-890: hanging transactions; scenario 32",
    needs="A producer that keeps its epoch, and a batch of it that arrives when its transaction is over.",
)
def any_batch_accepted() -> Iterator[None]:
    """A batch of T is held up.

    T times out and is aborted, or its client aborts it. The batch arrives and opens an unknown transaction. Readers of
    committed records never get beyond it, unless the next transaction ends it: then the batch is committed with that
    one.
    """

    def anything(table: Any, place: Any, producer_id: int, epoch: int, entry: Any) -> BatchCheck:
        try:
            judge(table, place, producer_id, epoch, entry)
        except KafkaError:
            if entry is not None and epoch < entry.producer_epoch:
                raise
        return BatchCheck.ACCEPT

    with patch.object(pending_writes, "judge", anything):
        yield


@mutant(
    "delayed-end-taken",
    "the quorum does not look on which connection a request came",
    history="KAFKA-17754: a delayed EndTxn ends the next transaction; scenario 31",
    needs="A producer that keeps its epoch; its EndTxn held up while it asks again over another connection, and "
    "delivered when its next transaction is open.",
)
def delayed_end_taken() -> Iterator[None]:
    """The EndTxn that commits T is held up; the client asks again over a new connection and is answered.

    The client begins U and writes half of it. The delayed EndTxn arrives: half of U is committed.
    """

    def any_connection(_transaction: TransactionMetadata, _origin: object) -> None:
        return

    with (
        patch.object(transaction_decisions, "check_session", any_connection),
        patch.object(transaction_decisions, "check_session_of_epoch", any_connection),
    ):
        yield


@mutant(
    "timeout-keeps-epoch",
    "a transaction that times out is aborted under the epoch that its producer has",
    history="KIP-890 and KAFKA-19367: the epoch is raised, once, when a transaction times out; scenario 32",
    needs="A producer that pauses for longer than its transaction's timeout, and then goes on where it was.",
)
def timeout_keeps_epoch() -> Iterator[None]:
    """T's producer is paused, T is aborted. It wakes and adds another partition, which begins the next transaction, as
    far as the quorum knows. It commits: it is answered that T is committed, and half of T is."""

    def keeps(work: Any, transaction: TransactionMetadata) -> None:
        transaction_decisions._decide(work, replace(transaction, last_producer_epoch=-1), False, set())

    with (
        patch.object(transaction_decisions, "abort_and_fence", keeps),
        patch.object(transaction_decisions, "abort_by_itself", keeps),
        patch.object(transaction_markers, "abort_by_itself", keeps),
    ):
        yield


@mutant(
    "leader-forgets-open-transactions",
    "of the transactions that are open in its log a leader counts those that began since it leads",
    history="KIP-98: the last stable offset of a new leader; scenario 12",
    needs="A transaction that is open while another leader is elected, or its leader restarts, and a reader of what is "
    "committed.",
)
def leader_forgets_open_transactions() -> Iterator[None]:
    """T has written to P, whose leader dies. The next leader knows of no open transaction: readers of committed
    records get T's records, and T is aborted.
    """

    def only_ours(self: LogTransactions, high_watermark: int) -> int:
        log = self._log
        _, began = log.leader_epochs.entries[-1] if log.leader_epochs.entries else (0, 0)
        transactions_here = log.producers.transactions
        firsts = [
            *transactions_here.open.values(),
            *(ending.first_offset for ending in transactions_here.ended),
        ]
        return min([high_watermark, *(first for first in firsts if first >= began)])

    with patch.object(LogTransactions, "last_stable_offset", only_ours):
        yield


@mutant(
    "every-writer-committed",
    "a commit counts whatever was written in the transaction, by writers who were not chosen, too",
    history="Spark's speculative tasks, of whose outputs one is committed; many writers in one transaction",
    needs="A driver that gives the same work to another worker, as the first one straggles or has died.",
)
def every_writer_committed() -> Iterator[None]:
    """A worker writes half of its part and is killed.

    Another one writes all of it, and the driver commits with the second worker's receipt: half of the part is there
    twice.
    """

    def everyone(transaction: TransactionMetadata, _writers: object) -> set[int]:
        return set(transaction.writers)

    with patch.object(transaction_decisions, "_chosen", everyone):
        yield


@mutant(
    "version-committed-again",
    "a commit is not asked whether its application version was committed before",
    history="the batch id of a streaming job's sink, which a batch that is replayed carries again",
    needs="A driver that does its last batch again.",
)
def version_committed_again() -> Iterator[None]:
    """A driver commits batch 7 and dies before it has recorded the commit. Its successor does batch 7 again and
    commits it: all its records are there twice.
    """

    def never(_transaction: TransactionMetadata, _command: object) -> bool:
        return False

    with patch.object(transaction_decisions, "_was_committed", never):
        yield


@mutant(
    "compaction-counts-aborted",
    "compaction takes what was aborted for the last value of its key",
    history="KAFKA-4545 and what came after it: compaction and transactions; scenario 35",
    needs="A topic that is compacted, and a key whose last value was aborted.",
)
def compaction_counts_aborted() -> Iterator[None]:
    """K is 1, committed. A transaction writes 2 and is aborted. Compaction drops 1, as 2 came later: readers of
    committed records find no value of K.
    """

    def nothing(_self: TransactionFilter, _producer_id: int, _last_offset: int) -> bool:
        return False

    with patch.object(TransactionFilter, "discards_data", nothing):
        yield


ALL = (
    new_leader_presumes_abort,
    new_leader_writes_markers_again,
    marker_reported_at_append,
    markers_in_any_order,
    ended_before_it_is_seen,
    any_batch_accepted,
    delayed_end_taken,
    timeout_keeps_epoch,
    leader_forgets_open_transactions,
    every_writer_committed,
    version_committed_again,
    compaction_counts_aborted,
)
