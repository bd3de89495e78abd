"""The durable state of one share-partition, with Kafka's checks of reads and changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.share_state_records import UNCHANGED_START, UNKNOWN_COUNT
from ...coordinated_log.transactional_producer import TransactionalProducer
from ..states import StateBatch
from .state_batches import StateBatches

UNKNOWN_START: Final = -1
"""Start offset of a state whose first offset the partition's leader has to choose."""
DELIVERIES_MAX: Final = 2**15 - 1


class PendingState(NamedTuple):
    """States of offsets that count once a producer's transaction commits."""

    producer_id: int
    producer_epoch: int
    batches: tuple[StateBatch, ...]


class StoredShareState(NamedTuple):
    """The durable state of a share-partition at one moment."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    """Number of offsets from the start offset on whose delivery is complete; -1 if unknown (KIP-1226)."""
    batches: tuple[StateBatch, ...] = ()
    pending: tuple[PendingState, ...] = ()
    """Changes in transactions that have not ended, in the answer to a leader's read. They are in no snapshot."""


NO_STATE: Final = StoredShareState(0, 0, UNKNOWN_START, UNKNOWN_COUNT)
"""Summary of a share-partition that has no state, as in Kafka."""


class Initialize(NamedTuple):
    """The creation of a state, or its replacement by a state of a later or equal state epoch."""

    state_epoch: int
    start_offset: int


class Read(NamedTuple):
    """The read by a new leader of the partition. Leaders of older epochs may not write afterwards."""

    leader_epoch: int


class Summarize(NamedTuple):
    """The read of the epochs and the start offset, which changes nothing."""

    leader_epoch: int = 0


class Write(NamedTuple):
    """The change of a state by the partition's leader. A start offset of -1 means that it is unchanged."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()
    writer: TransactionalProducer | None = None
    """Writer of the transaction with whose commit the states of the batches change; None: they change at once."""


class Delete(NamedTuple):
    """The removal of a state."""


Change = Initialize | Read | Summarize | Write | Delete


class Update(NamedTuple):
    """The effect of a change on a stored state. It is the content of a ShareUpdate record."""

    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


class ShareState:
    """The durable state of a share-partition, to which the coordinator applies changes that are in its log."""

    __slots__ = ("_batches", "delivery_complete_count", "leader_epoch", "start_offset", "state_epoch")

    def __init__(self, stored: StoredShareState) -> None:
        self.state_epoch, self.leader_epoch = stored.state_epoch, stored.leader_epoch
        self.start_offset = stored.start_offset
        self.delivery_complete_count = stored.delivery_complete_count
        self._batches = StateBatches(stored.batches)

    @property
    def stored(self) -> StoredShareState:
        """The current state of the share partition, as a record stores it."""
        return StoredShareState(
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            self._batches.as_tuple(),
        )

    # ------------------------------------------------------------ checks

    def check_read(self, read: Read) -> None:
        """Raise KafkaError FENCED_LEADER_EPOCH if a later leader has read the state."""
        self._check_leader(read.leader_epoch)

    def check_write(self, write: Write) -> None:
        """Raise KafkaError: FENCED_LEADER_EPOCH if a later leader has read the state, FENCED_STATE_EPOCH if the state
        was initialized anew since the leader read it."""
        self._check_leader(write.leader_epoch)
        if write.state_epoch < self.state_epoch:
            raise KafkaError(
                ErrorCode.FENCED_STATE_EPOCH,
                f"the write has state epoch {write.state_epoch}, the state has {self.state_epoch}",
            )

    def _check_leader(self, leader_epoch: int) -> None:
        if leader_epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"the request has leader epoch {leader_epoch}, the state has {self.leader_epoch}",
            )

    # ------------------------------------------------------------ effects

    def read_by(self, read: Read) -> Update | None:
        """Return the effect of a read; None if the leader is known already."""
        if read.leader_epoch == self.leader_epoch:
            return None
        return Update(read.leader_epoch, self.start_offset, self.delivery_complete_count)

    def written(self, write: Write) -> Update:
        """Return the effect of a write. The start offset never falls. As in Kafka, the leader epoch rises only by a
        read."""
        start, count = max(write.start_offset, self.start_offset), write.delivery_complete_count
        if write.start_offset < self.start_offset:
            count = self.delivery_complete_count
        elif write.start_offset == self.start_offset:
            count = max(count, self.delivery_complete_count)
        batches = StateBatches(write.batches)
        batches.drop_below(start)
        return Update(self.leader_epoch, start, count, batches.as_tuple())

    def apply(self, update: Update) -> None:
        """Apply an update that is in the log."""
        if update.leader_epoch >= 0:
            self.leader_epoch = update.leader_epoch
        if update.start_offset != UNCHANGED_START:
            self.start_offset = update.start_offset
        self.delivery_complete_count = update.delivery_complete_count
        self.apply_committed(update.batches)

    def apply_committed(self, batches: Iterable[StateBatch]) -> None:
        """Apply the states of some offsets, whose transaction has committed. A later state of an offset stays."""
        self._batches.add_all(batches)
        self._batches.drop_below(self.start_offset)


def initialized(before: ShareState | None, change: Initialize) -> StoredShareState:
    """Return the state after an initialization.

    A former state keeps its leader epoch, so that older leaders stay fenced. Raises KafkaError FENCED_STATE_EPOCH if
    the former state has a later state epoch.
    """
    if before is not None and change.state_epoch < before.state_epoch:
        raise KafkaError(
            ErrorCode.FENCED_STATE_EPOCH,
            f"the initialization has state epoch {change.state_epoch}, the state has {before.state_epoch}",
        )
    is_known = change.start_offset != UNKNOWN_START
    return StoredShareState(
        change.state_epoch,
        0 if before is None else before.leader_epoch,
        change.start_offset,
        0 if is_known else UNKNOWN_COUNT,
    )


def check_change(partition: int, change: Change) -> None:
    """Raise KafkaError INVALID_REQUEST if a change has a value that no state allows."""
    if partition < 0:
        raise _invalid(f"partition {partition} is negative")
    match change:
        case Initialize(state_epoch, start_offset):
            _check_not_negative("state epoch", state_epoch)
            _check_start(start_offset)
        case Read(leader_epoch):
            _check_not_negative("leader epoch", leader_epoch)
        case Write(state_epoch, leader_epoch, start_offset, _, batches, writer):
            _check_not_negative("leader epoch", leader_epoch)
            _check_not_negative("state epoch", state_epoch)
            _check_start(start_offset)
            _check_batches(batches)
            if writer is not None:
                _check_writer(writer, start_offset)


def _check_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise _invalid(f"the {name} {value} is negative")


def _check_start(offset: int) -> None:
    if offset < UNKNOWN_START:
        raise _invalid(f"start offset {offset}: it has to be at least {UNKNOWN_START}")


def _check_writer(writer: TransactionalProducer, start_offset: int) -> None:
    if start_offset != UNKNOWN_START:
        raise _invalid(f"start offset {start_offset}: it has to be {UNKNOWN_START} in a transaction")
    if not writer.transactional_id:
        raise _invalid("the transactional id is empty")
    _check_not_negative("producer id", writer.producer_id)
    _check_not_negative("producer epoch", writer.producer_epoch)


def _check_batches(batches: Iterable[StateBatch]) -> None:
    for batch in batches:
        if not 0 <= batch.first <= batch.last:
            raise _invalid(
                f"state batch {batch.first}-{batch.last}: the first offset has to be 0 to the last offset"
            )
        if not 0 <= batch.delivery_count <= DELIVERIES_MAX:
            raise _invalid(
                f"state batch {batch.first}-{batch.last}: the delivery count {batch.delivery_count} has to be 0 to "
                f"{DELIVERIES_MAX}"
            )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
