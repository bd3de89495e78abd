"""WriteTxnMarkers (1-2): an operator with `ottla txn abort-hanging` ends a transaction that seems to hang.

Only a connection that has proved to hold the cluster secret may ask. Any other connection gets
CLUSTER_AUTHORIZATION_FAILED, as in Kafka without authorization for CLUSTER_ACTION. So `kafka-transactions.sh abort` is
refused.

In Kafka coordinators have markers written by this request, and an operator's marker ends a transaction in one partition
only, whatever its coordinator believes. Here the quorum alone decides, so that no marker contradicts it:

- If the transaction is open for the quorum, the quorum aborts it in all its partitions, and its producer is fenced.
- If the quorum has decided to abort it, the handler waits for the marker.
- If the quorum has decided to commit it, the request is refused: INVALID_TXN_STATE.
- If the quorum knows of no such transaction, but the log has an open transaction, this leader writes the marker. That
  state should not occur (rule T2); the tool is made for it.
- If no transaction is open, the handler does nothing.

The producer epoch must be that of the transaction, else INVALID_PRODUCER_EPOCH. The coordinator epoch must be the
number of the producer's last marker in the partition, as DescribeProducers reports it. Another number means that the
operator has looked at a former transaction: TRANSACTION_COORDINATOR_FENCED. Commits are refused: INVALID_REQUEST.
"""

from __future__ import annotations

import asyncio
import logging

from ...protocol.cluster.transaction_table import Phase, Place, TransactionMetadata
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import AbortTransaction
from ...protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..log.producers.producer_state import NO_NUMBER, ProducerEntry
from ..quorum.access import Quorum
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..runtime.time_slices import in_time_slices
from ..security.authorization.needs import handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles
from ..transactions.client_commands import END_TIMEOUT_S
from ..transactions.completion_waits import CompletionWaits
from ..transactions.markers import Markers

logger = logging.getLogger(__name__)


def _answer(message: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """Return a response with the same error for every partition."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
    )


class WriteTxnMarkersHandlers:
    """The handler of WriteTxnMarkers, which ends transactions that seem to hang in a partition."""

    def __init__(
        self,
        replicas: Replicas,
        quorum: Quorum,
        markers: Markers,
        completion_waits: CompletionWaits,
    ) -> None:
        self._replicas = replicas
        self._quorum = quorum
        self._markers = markers
        self._completion_waits = completion_waits

    @handles(
        WriteTxnMarkersRequest,
        1,
        2,
        errors=ErrorAnswers(arrays={"partition_indexes": "partitions"}),
        needs=handler_asks("a node of the cluster, or an operator with its secret"),
    )
    async def write(self, request: ClientRequest, message: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Abort a producer's transaction in each named partition, one after the other. Each partition has a separate
        result.

        Raises KafkaError CLUSTER_AUTHORIZATION_FAILED unless the connection has proved to come from a node.
        """
        if request.session.node is None:
            logger.info(
                "refusing WriteTxnMarkers of %s, which has not proved to be a node of this cluster: "
                "`ottla txn abort` ends transactions",
                request.connection,
            )
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only nodes of the cluster write transaction markers"
            )
        response = _answer(message, ErrorCode.NONE)
        rows = (
            (marker, topic.name, row)
            for marker, result in zip(message.markers, response.markers, strict=True)
            for topic in result.topics
            for row in topic.partitions
        )
        async for marker, topic, row in in_time_slices(rows):
            try:
                await self._end(marker, self._replicas.get(topic, row.partition_index))
            except KafkaError as error:
                logger.info("no marker for %s-%d: %s", topic, row.partition_index, error)
                row.error_code = error.code
        return response

    async def _end(self, marker: WritableTxnMarker, partition: Partition) -> None:
        if marker.transaction_result:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "what is committed is decided by the quorum")
        partition.leading()
        entry = partition.log.producers.get(marker.producer_id)
        place = (partition.topic_id, partition.index)
        known = self._quorum.image.transactions.at(place).get(marker.producer_id)
        if known is not None:
            await self._abort_known(marker, known, place, entry)
        elif entry is None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"producer {marker.producer_id} has written nothing to {partition!r}",
            )
        else:
            await self._abort_unknown(marker, partition, entry)

    async def _abort_known(
        self,
        marker: WritableTxnMarker,
        transaction: TransactionMetadata,
        place: Place,
        entry: ProducerEntry | None,
    ) -> None:
        writer = transaction.writers[marker.producer_id]
        name, number = transaction.transactional_id, transaction.number
        if marker.producer_epoch not in (writer.producer_epoch, transaction.marker_epoch(writer)):
            raise _other_epoch(marker, writer.producer_epoch)
        if transaction.phase is Phase.ONGOING:
            _check_number(marker, entry)
            await self._quorum.submit(AbortTransaction(transactional_id=name, number=number))
        elif writer.committed:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"transaction {number} of {name!r} is being committed"
            )
        try:
            await self._completion_waits.over(name, number, END_TIMEOUT_S, at=place)
        except KafkaError as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, error.message) from error

    async def _abort_unknown(
        self, marker: WritableTxnMarker, partition: Partition, entry: ProducerEntry
    ) -> None:
        """Append an abort marker for a transaction that is open in the partition's log, in the turn in which the quorum
        is known not to know it."""
        if marker.producer_epoch != entry.producer_epoch:
            raise _other_epoch(marker, entry.producer_epoch)
        if marker.producer_id not in partition.log.transactions.open:
            return
        _check_number(marker, entry)
        logger.warning("aborting a transaction of producer %d in %r by hand", marker.producer_id, partition)
        end = self._markers.abort_unknown(partition, marker.producer_id)
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                outcome = await partition.high_watermark_at(end)
        except TimeoutError:
            outcome = ErrorCode.REQUEST_TIMED_OUT
        if outcome is not ErrorCode.NONE:
            raise KafkaError(outcome, f"the marker in {partition!r} is not replicated yet")


def _check_number(marker: WritableTxnMarker, entry: ProducerEntry | None) -> None:
    if entry is not None and entry.marker_number not in (NO_NUMBER, marker.coordinator_epoch):
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"the last marker of producer {marker.producer_id} has coordinator epoch {entry.marker_number}, the "
            f"request has {marker.coordinator_epoch}",
        )


def _other_epoch(marker: WritableTxnMarker, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {marker.producer_id} has epoch {epoch}, the request has {marker.producer_epoch}",
    )
