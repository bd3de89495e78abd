"""Mutants of answers about batches that are already in the log, or that wait there."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

from ottla.dataplane.log.produced import ProducedBatches
from ottla.dataplane.log.producers.producer_state import ProducedBatch, ProducerEntry, ProducerStates
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.roles.leader import LeaderState
from ottla.dataplane.transactions.pending_writes import PendingTransactionWrites
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record_batch import BatchHeader
from tests.simulation.cluster.planting import mutant


@mutant(
    "appended-batch-refused",
    "a batch that is sent again is judged by the number of replicas before anybody looks whether the log has it",
    history="Kafka answers NOT_ENOUGH_REPLICAS there, which its clients take for a proof that nothing was appended",
    needs="An idempotent producer, and an ISR below min.insync.replicas when a batch comes again.",
)
def appended_batch_refused() -> Iterator[None]:
    """A appends a batch, its ISR shrinks, the answer is lost.

    The producer sends the batch again and is answered that it is not in the log. The user sends the record again, since
    that cannot cause a duplicate: it causes one.
    """

    def nothing(_self: ProducedBatches, _batches: memoryview) -> None:
        return None

    with patch.object(ProducedBatches, "original_of", nothing):
        yield


@mutant(
    "waiting-given-up-below-min-isr",
    "whoever waits for an acknowledgement is sent away once the ISR is below min.insync.replicas",
    history="Kafka before KIP-966; the producer tries again at once, and may abort what would have been committed soon",
    needs="A producer that waits while the ISR becomes too small.",
)
def waiting_given_up_below_min_isr() -> Iterator[None]:
    """A has appended a batch, and its follower falls asleep for a moment.

    The producer is answered that the outcome is unknown, aborts, and then differs from the leader.
    """
    goes_on = Partition._membership_changed

    def gives_up(self: Partition, leader: LeaderState, now_ms: int) -> None:
        goes_on(self, leader, now_ms)
        if leader.under_min_in_sync:
            self._acknowledgements.failed(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    with patch.object(Partition, "_membership_changed", gives_up):
        yield


@mutant(
    "duplicate-of-an-ended-transaction",
    "a batch is a duplicate of one in the window, whether or not a marker lies behind that",
    history="Kafka and librdkafka: a committed record that is nowhere",
    needs="A producer that aborts with a batch in doubt, purges it, and keeps its epoch.",
)
def duplicate_of_an_ended_transaction() -> Iterator[None]:
    """A batch with sequence 3 is appended and not acknowledged in time. Its producer aborts, purges it, and gives
    sequence 3 to the first record of its next transaction. The leader answers with the offset of the purged one. The
    transaction is committed, and the record is nowhere."""

    def never(_self: ProducerEntry, _batch: object) -> bool:
        return False

    with patch.object(ProducerEntry, "has_ended", never):
        yield


@mutant(
    "duplicate-of-a-deposed-leader",
    "a transactional batch that the log has is acknowledged by what this broker knows",
    history="ours: a leader that was replaced lacks the marker behind a batch",
    needs="The mutant before, at a leader that was asleep while another one wrote the marker.",
)
def duplicate_of_a_deposed_leader() -> Iterator[None]:
    """A leads, has a batch with sequence 3, and falls asleep. B leads, and writes the marker of the abort. A wakes up,
    and answers the next record with sequence 3 from its window: that is committed, and nowhere."""

    async def as_it_is(_self: PendingTransactionWrites, _queue: object) -> None:
        return

    with patch.object(PendingTransactionWrites, "_catch_up", as_it_is):
        yield


@mutant(
    "duplicate-of-a-former-epoch",
    "a batch is a duplicate of one with its sequences, whichever epoch of their producer that is of",
    history="KIP-360: a producer that raises its epoch by itself counts from 0 again",
    needs="An idempotent producer that raises its epoch soon: Java's, after a batch that is refused for good.",
)
def duplicate_of_a_former_epoch() -> Iterator[None]:
    """A batch with sequence 0 is acknowledged, and the next one refused for its timestamp. Its producer raises its
    epoch, and numbers its unsent records from 0. The leader answers with the offset of the first batch, and the
    record is nowhere."""
    original_of = ProducerStates.original_of

    def of_any_epoch(self: ProducerStates, header: BatchHeader) -> ProducedBatch | None:
        entry = self.get(header.producer_id)
        if entry is not None and header.producer_epoch > entry.producer_epoch:
            original = entry.original_of(header)
            if original is not None:
                return original
        return original_of(self, header)

    with patch.object(ProducerStates, "original_of", of_any_epoch):
        yield


ALL = (
    appended_batch_refused,
    waiting_given_up_below_min_isr,
    duplicate_of_an_ended_transaction,
    duplicate_of_a_deposed_leader,
    duplicate_of_a_former_epoch,
)
