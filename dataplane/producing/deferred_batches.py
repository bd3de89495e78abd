"""Produce requests with batches that cannot be appended at once.

Such a batch takes long to validate, or its topic stores it with another compression, or this broker does not know its
transaction yet.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from ...protocol.records.record_batch import parse_header
from ..log import RefusedRecords, TakesLong
from ..replication.replica.partition import Partition
from ..server.handler import ClientRequest
from ..transactions.batch_check import TransactionGone
from ..transactions.pending_writes import Adding, PendingTransactionWrites
from .validation_queue import Outcome, ValidatedBatch, ValidationQueue

HELD_BYTES_MAX = 128 << 20
"""Maximum bytes of batches that wait for their transactions. More are refused, and the producer retries."""
_MUTED_BYTES = HELD_BYTES_MAX // 4
_MUTED_MS = 100
"""Waiting bytes, and the milliseconds for which a connection that brings more batches is not read."""
_FIRST_WITH_ABORTABLE = 11
_FIRST_THAT_ADDS = 12
ALL = -1
"""Value of acks=all."""
BATCH_START = struct.Struct(">8xi4xb4xh")
"""Batch length, magic and attributes at the beginning of a record batch."""

Uncommitted = tuple[Partition, int, PartitionProduceResponse]
"""An appended batch: its partition, the offset after the batch, and its answer."""


def failure(index: int, error: KafkaError, partition: Partition | None = None) -> PartitionProduceResponse:
    """Return the answer for a refused batch.

    The answer contains the log start offset. Without it, some producers repeat a batch for ever upon
    UNKNOWN_PRODUCER_ID.
    """
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1 if partition is None else partition.log.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=reason)
            for number, reason in (error.records if isinstance(error, RefusedRecords) else ())
        ],
        error_message=error.message,
    )


def in_version(error: KafkaError, version: int) -> KafkaError:
    """Return the error in the form for clients of this version of Produce.

    Below version 12, clients such as librdkafka treat INVALID_PRODUCER_EPOCH as fatal. Upon UNKNOWN_PRODUCER_ID they
    abort and ask for the next epoch (KIP-360).
    """
    if isinstance(error, TransactionGone) and version < _FIRST_THAT_ADDS:
        return KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, error.message)
    return error


def unknown_outcome(answer: PartitionProduceResponse, error: ErrorCode) -> None:
    """Set the error in the answer of an appended batch whose outcome is unknown."""
    answer.error_code = error
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


class PlaceInAnswer(NamedTuple):
    """The partition of a batch, and the position of its result in the answer."""

    partition: Partition
    answers: list[PartitionProduceResponse]
    position: int

    @property
    def partition_index(self) -> int:
        """Partition index in the request."""
        return self.answers[self.position].index


class DeferredBatch(NamedTuple):
    """A batch that is not appended at once."""

    place: PlaceInAnswer
    records: memoryview
    takes_long: bool = False
    """True if the event loop has found that the batch takes long to validate."""


class BatchAppender(Protocol):
    """The part of the Produce handler that deferred batches use."""

    def append(
        self,
        partition: Partition,
        index: int,
        records: memoryview,
        acks: int,
        max_timestamp: int | None = None,
    ) -> tuple[PartitionProduceResponse, int]:
        """Append a batch. Returns its answer for acks=1, and the offset after the batch.

        Raises KafkaError or TakesLong, and nothing else: no caller would answer the request after another error, and
        the following batches must still be appended.
        """

    def finish(
        self,
        request: ClientRequest,
        message: ProduceRequest,
        response: ProduceResponse,
        waiting: list[Uncommitted],
        failed: bool,
    ) -> ProduceResponse | None:
        """Return the answer after all batches were appended or refused; None if there is none, or not yet."""


class TransactionalBatches:
    """The check of transactional batches by the transaction gate, and the limit on the bytes that wait there. Owned by
    the event loop."""

    def __init__(self, gate: PendingTransactionWrites) -> None:
        self.gate = gate
        self._held_bytes = 0

    def admits(self, partition: Partition, records: memoryview, transactional_id: str) -> bool:
        """Return whether a transactional batch may be appended now, or will be refused by the append. Raises
        KafkaError."""
        if partition.leader is None:
            return True
        header = parse_header(records)
        self.gate.check_owner(header.producer_id, transactional_id)
        if partition.log.producers.is_duplicate(header):
            return False  # The gate finds out whether the original belongs to this transaction.
        return self.gate.admits(partition, header.producer_id, header.producer_epoch)

    def hold(self, request: ClientRequest, size: int) -> None:
        """Reserve memory for a batch that waits. Raises KafkaError: REQUEST_TIMED_OUT if too many bytes wait
        already."""
        if self._held_bytes + size > HELD_BYTES_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{self._held_bytes} bytes wait for their transactions already"
            )
        self._held_bytes += size
        if self._held_bytes > _MUTED_BYTES:
            request.connection.mute(_MUTED_MS)

    def let_go(self, size: int) -> None:
        """Release the memory of a batch that no longer waits."""
        self._held_bytes -= size


class Deferred:
    """One request, answered when the last of its batches is appended or refused."""

    __slots__ = (
        "_adding",
        "_appender",
        "_failed",
        "_left",
        "_message",
        "_request",
        "_response",
        "_transactional",
        "_waiting",
    )

    def __init__(
        self,
        appender: BatchAppender,
        transactional: TransactionalBatches,
        request: ClientRequest,
        message: ProduceRequest,
        response: ProduceResponse,
        waiting: list[Uncommitted],
        failed: bool,
    ) -> None:
        self._appender = appender
        self._transactional = transactional
        self._request = request
        self._message = message
        self._response = response
        self._waiting = waiting
        self._failed = failed
        self._left = 0
        adds = request.api_version >= _FIRST_THAT_ADDS and message.transactional_id is not None
        self._adding = Adding(message.transactional_id or "") if adds else None

    def run(self, batches: Sequence[DeferredBatch], queue: ValidationQueue) -> None:
        """Pass each batch to the queue. The request is answered once every batch is appended or refused."""
        self._left = len(batches)
        for place, records, takes_long in batches:
            arrived = partial(self._arrived, place)
            try:
                queue.submit(
                    place.partition,
                    records,
                    self._request.connection,
                    arrived,
                    takes_long,
                    self._request.spend,
                )
            except KafkaError as error:
                place.partition.log.produced.refused_for_now(records)
                arrived(error)

    def _arrived(self, place: PlaceInAnswer, outcome: Outcome) -> None:
        """Append a batch that is validated and has the topic's form. If its transaction is not known yet, the batch
        waits for it."""
        if isinstance(outcome, KafkaError):
            self._settle(place, outcome)
            return
        records = outcome.records
        try:
            header = parse_header(records)
            name = self._message.transactional_id or ""
            if header.is_transactional and not self._transactional.admits(place.partition, records, name):
                self._transactional.hold(self._request, len(records))
                released = partial(self._released, place, outcome)
                self._transactional.gate.wait(
                    place.partition,
                    header.producer_id,
                    header.producer_epoch,
                    self._adding,
                    released,
                    is_duplicate=place.partition.log.producers.is_duplicate(header),
                )
                return
        except KafkaError as error:
            self._settle(place, error)
            return
        self._settle(place, outcome)

    def _released(self, place: PlaceInAnswer, batch: ValidatedBatch, error: KafkaError | None) -> None:
        self._transactional.let_go(len(batch.records))
        if error is None:
            error = self._not_the_owner(batch)
        if error is not None and error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            place.partition.log.produced.refused_for_now(batch.records)
        if (
            error is not None
            and error.code is ErrorCode.INVALID_TXN_STATE
            and self._request.api_version >= _FIRST_WITH_ABORTABLE
        ):
            error = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, error.message)
        self._settle(place, batch if error is None else error)

    def _not_the_owner(self, batch: ValidatedBatch) -> KafkaError | None:
        """Check the owner of the producer id again. This broker may not have known the owner when the batch arrived,
        but does by now."""
        try:
            producer_id = parse_header(batch.records).producer_id
            self._transactional.gate.check_owner(producer_id, self._message.transactional_id or "")
        except KafkaError as error:
            return error
        return None

    def _settle(self, place: PlaceInAnswer, outcome: Outcome) -> None:
        """Append a batch or note its refusal. After the last batch the request is answered."""
        partition, answers, position = place
        try:
            answers[position] = self._append(partition, place.partition_index, outcome)
        except KafkaError as error:
            self._failed = True
            answered = in_version(error, self._request.api_version)
            answers[position] = failure(place.partition_index, answered, partition)
        except TakesLong:
            # The batch was recognised as a duplicate, and no longer is; the producer may send it again.
            self._failed = True
            answers[position] = failure(place.partition_index, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _append(self, partition: Partition, index: int, outcome: Outcome) -> PartitionProduceResponse:
        if isinstance(outcome, KafkaError):
            raise outcome
        acks = self._message.acks
        answer, end = self._appender.append(partition, index, outcome.records, acks, outcome.max_timestamp)
        if acks == ALL and partition.high_watermark < end:
            self._waiting.append((partition, end, answer))
        return answer

    def _finish(self) -> None:
        response = self._appender.finish(
            self._request, self._message, self._response, self._waiting, self._failed
        )
        if response is not None:
            self._request.reply(response)
