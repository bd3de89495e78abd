"""The fast path of Produce requests: a few uncompressed batches for partitions that this broker leads, without
obstacles. Almost all requests are of this form. They are read, appended and answered without message objects, at half
the cost.

Requests of any other form are left untouched to the handler of messages. So quotas, permissions, compression and acks=0
do not occur here. A transactional batch is plain if the gate admits it at once; then it is appended in the same loop
iteration (rule T2). From the first append on the request is answered here, with the answers that the handler would
give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from ...protocol.direct_codecs.produce_frames import Appended, read_produce, write_produced
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ...protocol.records.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
)
from ..log import AppendResult
from ..replication.replica.partition import Partition
from ..server.handler import ClientRequest, as_kafka_error
from .commit_wait import CommitWait
from .deferred_batches import (
    ALL,
    BATCH_START,
    TransactionalBatches,
    Uncommitted,
    failure,
    in_version,
    unknown_outcome,
)
from .validation_queue import UNCOMPRESSED_ON_LOOP_MAX, ValidationQueue

if TYPE_CHECKING:
    from ...protocol.direct_codecs.produce_frames_in_python import SentBatch
    from ..quotas import ClientQuotas
    from ..replication.replicas.replicas import Replicas
    from ..server.purgatory import Purgatory

_FIRST_WITH_TOPIC_IDS: Final = 13
_OF_INTERNAL: Final = "_"
"""Beginning of the names of topics that brokers write themselves; few other topics begin with it."""


class PlainAppender(Protocol):
    """The part of the Produce handler that plain requests use."""

    def append_records(
        self, partition: Partition, records: memoryview, acks: int, max_timestamp: int | None = None
    ) -> AppendResult:
        """Append a batch. Raises KafkaError with the reason if it is not appended; REQUEST_TIMED_OUT if that is
        uncertain."""
        ...

    def add_leaders(self, request: ClientRequest, response: ProduceResponse) -> None:
        """Add the current leaders to the answer, for a client that asked the wrong broker."""

    def finish(
        self,
        request: ClientRequest,
        message: ProduceRequest,
        response: ProduceResponse,
        waiting: list[Uncommitted],
        failed: bool,
    ) -> ProduceResponse | None:
        """Return the answer after all batches were appended or refused; None if there is none, or not yet."""


class FastPath:
    """The path of plain requests. Owned by the event loop."""

    def __init__(
        self,
        appender: PlainAppender,
        replicas: Replicas,
        purgatory: Purgatory,
        quotas: ClientQuotas,
        validation: ValidationQueue,
        transactional: TransactionalBatches,
    ) -> None:
        self._transactional = transactional
        self._appender = appender
        self._replicas = replicas
        self._purgatory = purgatory
        self._quotas = quotas
        self._validation = validation

    def take(self, request: ClientRequest, frame: memoryview, offset: int) -> bool:
        """Append the batches of a request, whose body begins at `offset`, and answer it now or later.

        Returns False, and has no effect, if the request is not plain.
        """
        version = request.api_version
        read = read_produce(frame, offset, version)
        if read is None:
            return False
        transactional_id, acks, timeout_ms, batches = read
        if (acks != ALL and acks != 1) or self._validation.waiting or self._quotas.producer is not None:
            return False
        find = self._replicas.find_by_id if version >= _FIRST_WITH_TOPIC_IDS else self._replicas.find
        partitions = []
        for topic, index, records in batches:
            partition = find(topic, index)  # type: ignore[arg-type] # as the version says
            if partition is None or not _is_plain(partition, records, transactional_id):
                return False
            partitions.append(partition)
        if transactional_id is not None and not self._admits(transactional_id, acks, partitions, batches):
            return False
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
            return True
        written = write_produced(version, request.correlation_id, appended)
        if waiting:
            deadline = request.received_at + max(0, timeout_ms) / 1000
            CommitWait(
                waiting, self._purgatory, deadline, partial(self._committed, request, written, appended)
            )
        else:
            request.connection.answer(request, (written,))
        return True

    def _committed(
        self,
        request: ClientRequest,
        written: bytes,
        appended: Sequence[Appended],
        unknown: Sequence[tuple[int, ErrorCode]],
    ) -> None:
        """Send the answer `written`, or an answer with the batches, by position, whose outcome is `unknown`."""
        if not unknown:
            request.connection.answer(request, (written,))
            return
        response, answers = _as_message(appended)
        for position, error in unknown:
            unknown_outcome(answers[position], error)
        self._appender.add_leaders(request, response)
        request.reply(response)

    def _admits(
        self,
        transactional_id: str,
        acks: int,
        partitions: Sequence[Partition],
        batches: Sequence[SentBatch],
    ) -> bool:
        """Return whether all transactional batches may be appended now.

        If not, the handler of messages finds the reason again and reports it. It also handles two batches for one
        partition, the second after the first.
        """
        if not transactional_id or acks != ALL or len(set(partitions)) < len(partitions):
            return False
        try:
            return all(
                not partition.copy_of and self._transactional.admits(partition, records, transactional_id)
                for partition, (_, _, records) in zip(partitions, batches, strict=True)
                if _is_transactional(records)
            )
        except KafkaError:
            return False

    def _refuse(
        self,
        request: ClientRequest,
        message: ProduceRequest,
        partitions: Sequence[Partition],
        appended: Sequence[Appended],
        waiting: Sequence[tuple[Partition, int, int]],
        errors: Mapping[int, KafkaError],
    ) -> None:
        """Answer a request of which some batches were refused."""
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


def _is_transactional(records: memoryview) -> bool:
    return bool(BATCH_START.unpack_from(records)[2] & TRANSACTIONAL_FLAG)


def _is_plain(partition: Partition, records: memoryview, transactional_id: str | None) -> bool:
    """Return whether only the append itself and the gate can still refuse the batch."""
    size = len(records)
    if not HEADER_SIZE <= size <= UNCOMPRESSED_ON_LOOP_MAX:
        return False
    batch_length, magic, attributes = BATCH_START.unpack_from(records)
    return (
        batch_length == size - LOG_OVERHEAD
        and magic == MAGIC
        and not attributes & COMPRESSION_MASK
        and (transactional_id is not None or not attributes & TRANSACTIONAL_FLAG)
        and partition.leader is not None
        and partition.settings.stored is None
        and partition.topic[0] != _OF_INTERNAL
    )


def _as_message(
    appended: Sequence[Appended], refused: Mapping[int, PartitionProduceResponse] = MappingProxyType({})
) -> tuple[ProduceResponse, list[PartitionProduceResponse]]:
    """Return the answer as a message, and the answer for each batch in it. `refused` has the answers of refused batches
    by position."""
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
