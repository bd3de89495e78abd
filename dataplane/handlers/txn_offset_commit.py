"""TxnOffsetCommit (0-6): offsets of a group that count once a producer's transaction commits (rule T14).

They are written to the group's partition of `__consumer_offsets` as batches are to other partitions: in a turn of the
loop in which this broker knows that the transaction is open there. From version 5 on the request itself adds the
partition to the transaction (KIP-890). In earlier versions the client has sent AddOffsetsToTxn before.

Up to version 4 a delayed request may arrive in the next transaction of a client that keeps its epoch. It then counts as
part of that transaction, as in Kafka, since the request has no field that distinguishes the two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..coordinated_log.batches import BatchWriter
from ..coordinated_log.key_hash import partition_for
from ..groups.commit_checks import Committer
from ..groups.committable_offsets import SortedCommit, sort_commit
from ..groups.coordinator import GroupCoordinator
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..security.authorization.needs import group, handler_asks, transactional_id
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles
from ..transactions.batch_check import TransactionGone
from ..transactions.pending_writes import Adding, PendingTransactionWrites

_FIRST_WITH_LOADING = 1
_FIRST_WITH_ABORTABLE = 4
_FIRST_THAT_ADDS = 5
_FIRST_WITH_TOPIC_IDS = 6

_COORDINATOR_ERRORS = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Errors of writes that the log does not take for now, and the errors that clients of a group's coordinator understand.

The first error makes them ask this broker again, the others make them look for another coordinator.
"""


class TxnOffsetCommitHandlers:
    """Commits offsets to the coordinator's shards, after `PendingTransactionWrites` has admitted them."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        replicas: Replicas,
        pending_writes: PendingTransactionWrites,
        image: Callable[[], ClusterImage],
        now_ms: Callable[[], int],
        metadata_bytes_max: int,
    ) -> None:
        """Create the handlers. `now_ms` is the same clock as for OffsetCommit."""
        self._coordinator, self._replicas, self._pending_writes = coordinator, replicas, pending_writes
        self._image, self._now_ms = image, now_ms
        self._metadata_bytes_max = metadata_bytes_max

    @handles(
        TxnOffsetCommitRequest,
        0,
        6,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=transactional_id(AclOperation.WRITE) & group(AclOperation.READ) & handler_asks("READ Topic"),
    )
    def commit(self, request: ClientRequest, message: TxnOffsetCommitRequest) -> None:
        """Commit a group's offsets in a producer's transaction. Answer once they are below the high watermark of the
        group's partition, or with the reason why they are not."""
        by_id = request.api_version >= _FIRST_WITH_TOPIC_IDS
        offsets = sort_commit(
            message.topics,
            self._image(),
            self._now_ms(),
            self._metadata_bytes_max,
            request.access,
            by_id=by_id,
        )
        if not offsets.accepted:
            request.reply(_answer(message, offsets, ErrorCode.NONE))
            return
        write = partial(self._write, request, message, offsets)
        producer_id, epoch = message.producer_id, message.producer_epoch
        try:
            self._coordinator.shard_for(message.group_id)
            partition = self._partition(message.group_id)
            self._pending_writes.check_owner(message.producer_id, message.transactional_id)
            if self._pending_writes.admits(partition, producer_id, epoch):
                write(partition, None)
                return
        except KafkaError as error:
            self._refuse(request, message, offsets, error)
            return
        adds = request.api_version >= _FIRST_THAT_ADDS
        adding = Adding(message.transactional_id) if adds else None
        self._pending_writes.wait(partition, producer_id, epoch, adding, partial(write, partition))

    def _write(
        self,
        request: ClientRequest,
        message: TxnOffsetCommitRequest,
        offsets: SortedCommit,
        partition: Partition,
        error: KafkaError | None,
    ) -> None:
        """Append the offsets to the group's partition, or refuse them with `error`, in the turn in which the
        transaction was checked."""
        try:
            if error is not None:
                raise error
            self._pending_writes.check_owner(message.producer_id, message.transactional_id)
            shard = self._coordinator.shard_for(message.group_id)
            if self._partition(message.group_id) is not partition:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{partition!r} was replaced")
        except KafkaError as refused:
            self._refuse(request, message, offsets, refused)
            return

        def done(outcome: ErrorCode) -> None:
            request.reply(_answer(message, offsets, _in_version(request, outcome)))

        shard.commit_in_transaction(
            message.group_id,
            Committer(message.member_id, message.group_instance_id, message.generation_id_or_member_epoch),
            BatchWriter(message.producer_id, message.producer_epoch),
            offsets.accepted,
            done,
            knows_epochs=request.api_version >= _FIRST_WITH_TOPIC_IDS,
            holders=request.holders,
        )

    def _partition(self, group_id: str) -> Partition:
        topic = self._image().topics.get(OFFSETS_TOPIC)
        count = 0 if topic is None else len(topic.partitions)
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        return self._replicas.get(OFFSETS_TOPIC, partition_for(group_id, count))

    def _refuse(
        self,
        request: ClientRequest,
        message: TxnOffsetCommitRequest,
        offsets: SortedCommit,
        error: KafkaError,
    ) -> None:
        code = _COORDINATOR_ERRORS.get(error.code, error.code)
        if isinstance(error, TransactionGone):
            # Clients give up at an INVALID_PRODUCER_EPOCH of a group's coordinator; with these errors they abort.
            abortable = request.api_version >= _FIRST_WITH_ABORTABLE
            code = ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.UNKNOWN_PRODUCER_ID
        if code is ErrorCode.INVALID_TXN_STATE and request.api_version >= _FIRST_WITH_ABORTABLE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        request.reply(_answer(message, offsets, _in_version(request, code)))


def _in_version(request: ClientRequest, code: ErrorCode) -> ErrorCode:
    """Return an error that the client's version knows. Version 0 does not know that a coordinator may be loading."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and request.api_version < _FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _answer(
    message: TxnOffsetCommitRequest, offsets: SortedCommit, outcome: ErrorCode
) -> TxnOffsetCommitResponse:
    """Return a response with `outcome` for every partition without a separate error."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=offsets.errors.get(
                            (topic.name or topic.topic_id, p.partition_index), outcome
                        ),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
