"""The admission of share states that change in a transaction, to the partitions of `__share_group_state`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster.internal_topics import SHARE_STATE_TOPIC
from ..coordinated_log.log import COORDINATOR_ERRORS
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..share.state.coordinator import Released
from ..share.state.stored_state import StateWriter
from .pending_writes import Adding, PendingTransactionWrites


class ShareStateGate:
    """The check whether a change of a share state is part of an open transaction, in the turn of its append (rules T2,
    T3). Like a batch of Produce 12, the change adds its partition to the transaction."""

    def __init__(self, replicas: Replicas, pending_writes: PendingTransactionWrites) -> None:
        self._replicas, self._pending_writes = replicas, pending_writes

    def admit(self, partition: int, writer: StateWriter, released: Released) -> None:
        """Call `released` in a turn of the event loop in which the transaction is open in the partition, or with the
        error."""
        try:
            replica = self._replicas.get(SHARE_STATE_TOPIC, partition)
            self._pending_writes.check_owner(writer.producer_id, writer.transactional_id)
            if self._pending_writes.admits(replica, writer.producer_id, writer.producer_epoch):
                released(None)
                return
        except KafkaError as error:
            released(_of_coordinator(error))
            return
        self._pending_writes.wait(
            replica,
            writer.producer_id,
            writer.producer_epoch,
            Adding(writer.transactional_id),
            partial(self._waited, replica, writer, released),
        )

    def _waited(
        self,
        replica: Partition,
        writer: StateWriter,
        released: Callable[[KafkaError | None], None],
        error: KafkaError | None,
    ) -> None:
        try:
            if error is not None:
                raise error
            self._pending_writes.check_owner(writer.producer_id, writer.transactional_id)
            if self._replicas.get(SHARE_STATE_TOPIC, replica.index) is not replica:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{replica!r} was replaced")
        except KafkaError as refused:
            released(_of_coordinator(refused))
            return
        released(None)


def _of_coordinator(error: KafkaError) -> KafkaError:
    return KafkaError(COORDINATOR_ERRORS.get(error.code, error.code), error.message)
