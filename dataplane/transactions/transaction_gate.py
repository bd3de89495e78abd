"""The admission of transactional writes that this broker makes itself, in the turn of their append (rules T2, T3)."""

from __future__ import annotations

from functools import partial

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster.internal_topics import SHARE_STATE_TOPIC
from ..coordinated_log.log import COORDINATOR_ERRORS
from ..coordinated_log.transactional_producer import TransactionalProducer
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..share.state.coordinator import Released
from .pending_writes import Adding, PendingTransactionWrites


class TransactionGate:
    """The check whether a write is part of an open transaction, in the turn of its append. Like a batch of Produce 12,
    the write adds its partition to the transaction."""

    def __init__(self, replicas: Replicas, pending_writes: PendingTransactionWrites) -> None:
        self._replicas, self._pending_writes = replicas, pending_writes

    def admit(self, replica: Partition, writer: TransactionalProducer, released: Released) -> None:
        """Call `released` in a turn of the event loop in which the transaction is open in the partition, or with the
        error."""
        name, producer_id, epoch = writer
        try:
            self._pending_writes.check_owner(producer_id, name)
            is_admitted = self._pending_writes.admits(replica, producer_id, epoch)
        except KafkaError as error:
            released(error)
            return
        if is_admitted:
            released(None)
            return
        waited = partial(self._waited, replica, writer, released)
        self._pending_writes.wait(replica, producer_id, epoch, Adding(name), waited)

    def _waited(
        self, replica: Partition, writer: TransactionalProducer, released: Released, error: KafkaError | None
    ) -> None:
        try:
            if error is not None:
                raise error
            self._pending_writes.check_owner(writer.producer_id, writer.transactional_id)
            if self._replicas.get(replica.topic, replica.index) is not replica:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica!r} was replaced")
        except KafkaError as refused:
            released(refused)
            return
        released(None)


class ShareStateGate:
    """The admission of changes of share states to the partitions of `__share_group_state`."""

    def __init__(self, replicas: Replicas, gate: TransactionGate) -> None:
        self._replicas, self._gate = replicas, gate

    def admit(self, partition: int, writer: TransactionalProducer, released: Released) -> None:
        """Call `released` in a turn of the event loop in which the transaction is open in the partition, or with the
        error, as clients of a coordinator get it."""

        def told(error: KafkaError | None) -> None:
            released(None if error is None else _of_coordinator(error))

        try:
            replica = self._replicas.get(SHARE_STATE_TOPIC, partition)
        except KafkaError as error:
            told(error)
            return
        self._gate.admit(replica, writer, told)


def _of_coordinator(error: KafkaError) -> KafkaError:
    return KafkaError(COORDINATOR_ERRORS.get(error.code, error.code), error.message)
