"""The answer to a Produce request: the result of each batch, in the order of the request, and its encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ...protocol.direct_codecs.produce_frames import Appended
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    FIRST_THAT_ADDS,
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ..log import RefusedRecords
from ..transactions.batch_check import TransactionGone

if TYPE_CHECKING:
    from ..log import AppendResult
    from ..replication.replica.partition import Partition
    from ..server.handler import ClientRequest

ALL: Final = -1
"""acks=all."""


class ProduceAnswer:
    """The results of all batches of a Produce request. Owned by the event loop.

    If every batch was appended, `write_produced` encodes `appended`. Otherwise `answer_message` builds a message, since
    a refused batch has an error code, and texts of any length.
    """

    __slots__ = ("acks", "appended", "refused", "request", "timeout_ms", "waiting")

    def __init__(self, request: ClientRequest, acks: int, timeout_ms: int) -> None:
        self.request = request
        self.acks = acks
        self.timeout_ms = timeout_ms
        # The result of each batch; a refused or deferred batch has -1 for its offset.
        self.appended: list[Appended] = []
        # The results of refused batches, by position. An unknown outcome counts as refused.
        self.refused: dict[int, PartitionProduceResponse] = {}
        # The appended batches of acks=all that are not committed: partition, offset after the batch, position.
        self.waiting: list[tuple[Partition, int, int]] = []

    def append(self, position: int, partition: Partition, result: AppendResult) -> None:
        """Set the result of the deferred batch at `position` of the request: it was appended."""
        topic, index, _, _, _ = self.appended[position]
        start = partition.log.log_start_offset
        self.appended[position] = (topic, index, result.first_offset, result.append_time_ms, start)
        if self.acks == ALL and partition.high_watermark <= result.last_offset:
            self.waiting.append((partition, result.last_offset + 1, position))

    def refuse(self, position: int, error: KafkaError, partition: Partition | None = None) -> None:
        """Set the result of the batch at `position` of the request to an error, in the form for the request's
        version."""
        index = self.appended[position][1]
        self.refused[position] = failure(index, in_version(error, self.request.api_version), partition)

    def leave_unknown(self, position: int, error: ErrorCode) -> None:
        """Set the result of the batch at `position` of the request to an error: it was appended, and may or may not be
        committed."""
        self.refused[position] = PartitionProduceResponse(
            index=self.appended[position][1],
            error_code=error,
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=-1,
        )


def answer_message(
    appended: Sequence[Appended], refused: Mapping[int, PartitionProduceResponse]
) -> ProduceResponse:
    """Return an answer as a message; `refused` has the results of refused batches by position. Adjacent batches of one
    topic share its entry."""
    response = ProduceResponse()
    before: str | bytes | None = None
    for position, (topic, index, base_offset, append_time_ms, log_start_offset) in enumerate(appended):
        if topic != before:
            before = topic
            response.responses.append(
                TopicProduceResponse(topic_id=topic)
                if isinstance(topic, bytes)
                else TopicProduceResponse(name=topic)
            )
        result = refused.get(position) or PartitionProduceResponse(
            index=index,
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=log_start_offset,
        )
        response.responses[-1].partition_responses.append(result)
    return response


def failure(index: int, error: KafkaError, partition: Partition | None = None) -> PartitionProduceResponse:
    """Return the result of a refused batch.

    It contains the log start offset. Without it, some producers send a batch again and again upon UNKNOWN_PRODUCER_ID.
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

    Below version 12, clients such as librdkafka take INVALID_PRODUCER_EPOCH as fatal. Upon UNKNOWN_PRODUCER_ID they
    abort and ask for the next epoch (KIP-360).
    """
    if isinstance(error, TransactionGone) and version < FIRST_THAT_ADDS:
        return KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, error.message)
    return error
