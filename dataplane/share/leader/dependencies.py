"""The interface of the durable states of share partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.record import NewRecord
from ...coordinated_log.transactional_producer import TransactionalProducer
from ..states import StateBatch

NO_START_OFFSET = -1
"""Start offset of a share partition that has no durable state yet. In a write: the start offset stays."""


class ShareKey(NamedTuple):
    """The identity of a share partition: a group, and a partition of a topic by the topic's id."""

    group_id: str
    topic_id: bytes
    partition: int


FENCED: Final = frozenset({ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH})
"""Errors of a durable state that is newer than the state in memory."""


def fenced(error: KafkaError) -> KafkaError:
    """Return the error for clients of a share partition whose durable state is newer: they ask for the leader."""
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)


class StoredPending(Protocol):
    """Durable states that count once a producer's transaction commits."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def batches(self) -> Sequence[StateBatch]: ...


class StoredState(Protocol):
    """The durable state of a share partition."""

    @property
    def state_epoch(self) -> int:
        """Epoch that rises with each reset of the group's offsets."""

    @property
    def start_offset(self) -> int:
        """First offset that is not finished; -1 if the group has no start offset yet."""

    @property
    def batches(self) -> Sequence[StateBatch]:
        """States of the offsets from the start offset on. Offsets without a batch are as before their first
        delivery."""

    @property
    def pending(self) -> Sequence[StoredPending]:
        """Changes in transactions that have not ended."""


class TransactionalPersister(Protocol):
    """The way to change durable states of share partitions in transactions."""

    async def write_in_transaction(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        batches: Sequence[StateBatch],
        writer: TransactionalProducer,
    ) -> None:
        """Store states that change once the writer's transaction commits. Raises KafkaError."""
        ...


class Persister(TransactionalPersister, Protocol):
    """The way to the durable states of share partitions, at their state coordinators."""

    async def read(self, group_id: str, topic_id: bytes, partition: int, leader_epoch: int) -> StoredState:
        """Return the durable state. Writes of older leader epochs are refused from now on. Raises KafkaError."""
        ...

    async def write(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Change the durable state. A start offset of -1 leaves it unchanged.

        Raises KafkaError. Only FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH say that nothing was written.
        """
        ...


class LetterTopic(NamedTuple):
    """The partition of a topic for dead letters to which the letters of a share partition go."""

    name: str
    topic_id: bytes
    partition: int
    bytes_max: int
    """Maximum size of a batch."""


class StateChange(NamedTuple):
    """The change of a durable state that is made together with its dead letters, or not at all."""

    state_epoch: int
    leader_epoch: int
    batches: Sequence[StateBatch]


class CommitUnknown(Exception):
    """The error of a transaction that may have been committed or aborted. Only the durable state tells."""


class LetterTransactions(Protocol):
    """The transactions of one share partition, in which dead letters and the durable state change together."""

    async def settle(self) -> None:
        """Abort the transaction of a former leader that has not ended. Raises KafkaError if that takes longer."""
        ...

    async def commit(self, topic: LetterTopic, letters: Sequence[NewRecord], change: StateChange) -> None:
        """Write letters, and change the durable state, in one transaction.

        Raises KafkaError, if the transaction is not committed and never will be, or CommitUnknown.
        """
        ...


class LetterOffice(Protocol):
    """The way to the topics for dead letters."""

    async def topic(self, name: str, partition: int) -> LetterTopic:
        """Return the place for letters of a partition. The topic is created if brokers may create it.

        Raises KafkaError with the reason if the topic may not have letters.
        """
        ...

    def transactions(self, key: ShareKey) -> LetterTransactions:
        """Return the transactions of a share partition."""
        ...
