"""Produce requests as almost all are: a few uncompressed batches for partitions that this broker leads, with nothing in
the way. They are read, appended and answered without a message, at half the cost.

Whatever is not plain is left untouched to the handler of messages. So there is nothing here about quotas, rights,
transactions, compression and acks=0. From the first append on the request is answered here, with the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ...protocol.produce_frames import Appended, read_produce, write_produced
from ...protocol.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
)
from ..log import AppendResult
from ..replication.replica.partition import Partition
from ..server.handler import ClientRequest, as_kafka_error
from .deferred_batches import ALL, BATCH_START, Uncommitted, failure, in_version, unknown_outcome
from .validation_queue import UNCOMPRESSED_ON_LOOP_MAX, ValidationQueue

if TYPE_CHECKING:
    from ..quotas import ClientQuotas
    from ..replication.replicas.replicas import Replicas
    from ..server.purgatory import Parked, Purgatory

_NOT_PLAIN: Final = COMPRESSION_MASK | TRANSACTIONAL_FLAG
_FIRST_WITH_TOPIC_IDS: Final = 13
_OF_INTERNAL: Final = "_"
"""The names of topics that brokers write themselves begin with it, those of few others do."""


class PlainAppender(Protocol):
    """The handler of Produce, as far as plain requests need it."""

    def append_records(
        self, partition: Partition, records: memoryview, acks: int, max_timestamp: int | None = None
    ) -> AppendResult:
        """Append a batch. Raises KafkaError that tells why it is not appended, with REQUEST_TIMED_OUT where that is not
        certain."""
        ...

    def add_leaders(self, request: ClientRequest, response: ProduceResponse) -> None:
        """Tell a client that asked the wrong broker who leads now."""

    def finish(
        self,
        request: ClientRequest,
        message: ProduceRequest,
        response: ProduceResponse,
        waiting: list[Uncommitted],
        failed: bool,
    ) -> ProduceResponse | None:
        """Everything is appended or refused: the answer, None if there is none or not yet."""


class PlainRequests:
    """Takes those that are plain. Owned by the event loop."""

    def __init__(
        self,
        appender: PlainAppender,
        replicas: Replicas,
        purgatory: Purgatory,
        quotas: ClientQuotas,
        validation: ValidationQueue,
    ) -> None:
        self._appender = appender
        self._replicas = replicas
        self._purgatory = purgatory
        self._quotas = quotas
        self._validation = validation

    def take(self, request: ClientRequest, frame: memoryview, offset: int) -> bool:
        """Append what the request brings, whose body begins at `offset`, and answer it, perhaps later. False if it is
        not plain: nothing has happened then.
        """
        version = request.api_version
        read = read_produce(frame, offset, version)
        if read is None:
            return False
        _, acks, timeout_ms, batches = read
        if (acks != ALL and acks != 1) or self._validation.waiting or self._quotas.producer is not None:
            return False
        find = self._replicas.find_by_id if version >= _FIRST_WITH_TOPIC_IDS else self._replicas.find
        partitions = []
        for topic, index, records in batches:
            partition = find(topic, index)  # type: ignore[arg-type] # as the version says
            if partition is None or not _is_plain(partition, records):
                return False
            partitions.append(partition)
        request.connection.expect(request)
        append = self._appender.append_records
        appended: list[Appended] = []
        waiting: list[tuple[Partition, int, int]] = []
        errors: dict[int, KafkaError] | None = None
        for partition, (topic, index, records) in zip(partitions, batches, strict=True):
            try:
                first, last, append_time_ms, _, _, _ = append(partition, records, acks)
            except Exception as error:
                errors = {} if errors is None else errors
                errors[len(appended)] = as_kafka_error(error, f"a batch for {partition!r}")
                appended.append((topic, index, -1, -1, -1))
                continue
            if acks == ALL and partition.high_watermark <= last:
                waiting.append((partition, last + 1, len(appended)))
            appended.append((topic, index, first, append_time_ms, partition.log.log_start_offset))
        if errors is not None:
            self._refuse(
                request,
                ProduceRequest(acks=acks, timeout_ms=timeout_ms),
                partitions,
                appended,
                waiting,
                errors,
            )
        elif waiting:
            deadline = request.received_at + max(0, timeout_ms) / 1000
            _Committing(self._appender, self._purgatory, request, appended, waiting, deadline)
        else:
            request.connection.answer(request, (write_produced(version, request.correlation_id, appended),))
        return True

    def _refuse(
        self,
        request: ClientRequest,
        message: ProduceRequest,
        partitions: Sequence[Partition],
        appended: Sequence[Appended],
        waiting: Sequence[tuple[Partition, int, int]],
        errors: Mapping[int, KafkaError],
    ) -> None:
        """Answer as for any request of which some batches were refused."""
        refused = {
            position: failure(
                appended[position][1], in_version(error, request.api_version), partitions[position]
            )
            for position, error in errors.items()
        }
        response, answers = _as_message(appended, refused)
        uncommitted = [(partition, end, answers[position]) for partition, end, position in waiting]
        answer = self._appender.finish(request, message, response, uncommitted, failed=True)
        if answer is not None:
            request.reply(answer)


def _is_plain(partition: Partition, records: memoryview) -> bool:
    """Whether nothing stands in the way of the append but what the append itself looks at."""
    size = len(records)
    if not HEADER_SIZE <= size <= UNCOMPRESSED_ON_LOOP_MAX:
        return False
    batch_length, magic, attributes = BATCH_START.unpack_from(records)
    return (
        batch_length == size - LOG_OVERHEAD
        and magic == MAGIC
        and not attributes & _NOT_PLAIN
        and partition.leader is not None
        and partition.settings.stored is None
        and partition.topic[0] != _OF_INTERNAL
    )


def _as_message(
    appended: Sequence[Appended], refused: Mapping[int, PartitionProduceResponse] = MappingProxyType({})
) -> tuple[ProduceResponse, list[PartitionProduceResponse]]:
    """The answer as a message, and in it the answer for each batch; `refused` has some of these by their position."""
    response = ProduceResponse()
    answers: list[PartitionProduceResponse] = []
    before: str | bytes | None = None
    for position, (topic, index, base_offset, append_time_ms, log_start_offset) in enumerate(appended):
        if topic != before:
            before = topic
            data = TopicProduceResponse()
            if isinstance(topic, bytes):
                data.topic_id = topic
            else:
                data.name = topic
            response.responses.append(data)
        answer = refused.get(position) or PartitionProduceResponse(
            index=index,
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=log_start_offset,
        )
        answers.append(answer)
        response.responses[-1].partition_responses.append(answer)
    return response, answers


class _Committing:
    """A request with acks=all whose batches are all appended, and not all committed yet."""

    __slots__ = ("_appended", "_appender", "_frame", "_open", "_parked", "_request", "_unknown")

    def __init__(
        self,
        appender: PlainAppender,
        purgatory: Purgatory,
        request: ClientRequest,
        appended: Sequence[Appended],
        waiting: Sequence[tuple[Partition, int, int]],
        deadline: float,
    ) -> None:
        self._appender = appender
        self._request = request
        self._appended = appended
        self._frame = write_produced(request.api_version, request.correlation_id, appended)
        # The positions of batches that are not settled, as bits; 0 once it is answered.
        self._open = 0
        for _, _, position in waiting:
            self._open |= 1 << position
        self._unknown: dict[int, ErrorCode] | None = None
        self._parked: Parked | None = purgatory.park(deadline, self._expired)
        for partition, end, position in waiting:
            partition.on_high_watermark(end, partial(self._settled, 1 << position))

    def _settled(self, bit: int, error: ErrorCode) -> None:
        if not self._open & bit:
            return
        self._open -= bit
        if error is not ErrorCode.NONE:
            self._fail(bit, error)
        if not self._open:
            self._reply()

    def _fail(self, bits: int, error: ErrorCode) -> None:
        if self._unknown is None:
            self._unknown = {}
        for position in range(len(self._appended)):
            if bits >> position & 1:
                self._unknown[position] = error

    def _expired(self) -> None:
        """The request's time is over: what is not settled has an unknown outcome."""
        self._parked = None
        self._fail(self._open, ErrorCode.REQUEST_TIMED_OUT)
        self._open = 0
        self._reply()

    def _reply(self) -> None:
        if self._parked is not None:
            self._parked.cancel()
        request = self._request
        if self._unknown is None:
            request.connection.answer(request, (self._frame,))
            return
        response, answers = _as_message(self._appended)
        for position, error in self._unknown.items():
            unknown_outcome(answers[position], error)
        self._appender.add_leaders(request, response)
        request.reply(response)
