"""Effects of partitions on transactions: written markers, new replicas, unclean elections and deleted topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...protocol.cluster.cluster_image import NO_LEADER, ClusterImage, PartitionState
from ...protocol.cluster.transaction_table import Phase, Place, TransactionMetadata
from ...protocol.messages.command import PlainResult
from ...protocol.messages.transaction_commands import ReportMarkers
from . import brokers
from .transaction_audience import Telling, introduce
from .transaction_decisions import abort_by_itself
from .workspace import Workspace


def report(work: Workspace, command: ReportMarkers) -> PlainResult:
    """Mark partitions of decided transactions as settled, whose transaction markers a leader reports as written below
    its high watermark.

    Markers that were settled before, or belong to another transaction or leadership, are ignored.
    """
    brokers.current(work, command.broker_id, command.broker_epoch)
    settled: dict[int, set[Place]] = {}
    for _, producer_id, place in reported(work.image, command):
        settled.setdefault(producer_id, set()).add(place)
    for producer_id, places in settled.items():
        _settle(work, producer_id, places)
    return PlainResult()


def reported(image: ClusterImage, command: ReportMarkers) -> Iterator[tuple[TransactionMetadata, int, Place]]:
    """Yield the outstanding markers of a report by the current leader: the decided transaction, the writer's producer
    id, and the partition."""
    for written in command.partitions:
        place = (written.topic_id, written.partition)
        state = _state(image, place)
        if state is None or (state.leader, state.leader_epoch) != (command.broker_id, written.leader_epoch):
            continue
        here = image.transactions.at(place)
        for writer in written.writers:
            transaction = here.get(writer.producer_id)
            if (
                transaction is not None
                and transaction.phase.is_decided
                and transaction.number == writer.number
            ):
                yield transaction, writer.producer_id, place


def leader_epoch(image: ClusterImage, place: Place) -> int:
    """Return the leader epoch of a partition; -1 if it does not exist."""
    state = _state(image, place)
    return -1 if state is None else state.leader_epoch


def leaders_of(image: ClusterImage, places: Iterable[Place]) -> set[int]:
    """Return the leaders of these partitions; leaderless ones are left out."""
    states = (_state(image, place) for place in places)
    return {state.leader for state in states if state is not None and state.leader != NO_LEADER}


def topic_goes(work: Workspace, topic_id: bytes, indexes: Iterable[int]) -> None:
    """Mark the partitions of a removed topic as settled in all transactions, since none of its records remain
    readable."""
    gone: dict[int, set[Place]] = {}
    for index in indexes:
        place = (topic_id, index)
        for producer_id in work.image.transactions.at(place):
            gone.setdefault(producer_id, set()).add(place)
    for producer_id, places in gone.items():
        _settle(work, producer_id, places)


def partition_changed(
    work: Workspace, place: Place, before: PartitionState | None, after: PartitionState
) -> None:
    """Send the transactions of a changed partition to its new replicas. After an unclean election the new leader may be
    missing records or markers, and must write the markers again."""
    if before is None:
        return
    if after.replicas != before.replicas and (
        newcomers := frozenset(after.replicas).difference(before.replicas)
    ):
        for transaction in _distinct(work, place):
            introduce(work, transaction, newcomers)
    if after.unclean and after.leader not in (NO_LEADER, before.leader):
        _elected_uncleanly(work, place)


def _elected_uncleanly(work: Workspace, place: Place) -> None:
    """Abort open transactions of an uncleanly elected partition, which may have lost records; decided ones get their
    markers again."""
    for transaction in _distinct(work, place):
        if transaction.phase is Phase.ONGOING:
            abort_by_itself(work, transaction)
    for name in sorted(work.image.transactions.decided):
        transaction = work.image.transactions.by_id[name]
        for writer in list(transaction.writers.values()):
            if place in writer.places and place not in writer.outstanding:
                with Telling(work, name, new_places=(place,)) as telling:
                    telling.writes(writer.producer_id, writer.producer_epoch, (place,))


def _settle(work: Workspace, producer_id: int, places: set[Place]) -> None:
    found = work.image.transactions.writer(producer_id)
    assert found is not None
    transaction, writer = found
    with Telling(work, transaction.transactional_id) as telling:
        telling.settled(writer, places)


def _distinct(work: Workspace, place: Place) -> list[TransactionMetadata]:
    """Return the transactions that are outstanding in this partition, each only once even with several writers."""
    here = work.image.transactions.at(place).values()
    return list({transaction.transactional_id: transaction for transaction in here}.values())


def _state(image: ClusterImage, place: Place) -> PartitionState | None:
    topic = image.topics_by_id.get(place[0])
    return topic.partitions.get(place[1]) if topic is not None else None
