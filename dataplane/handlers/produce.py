"""Produce (3-13): producers append record batches.

The API is advertised from version 0 on: old versions of librdkafka turn features on only if they see version 0, and
never send it.

With acks=0 there is no answer. An error closes the connection, so that the producer looks for the leaders again. With
acks=all the answer waits until the high watermark has passed the batch. A transactional batch is appended only while
this broker knows that its partition is in the open transaction of its producer (rule T2). A batch that cannot be
appended in the turn in which it came is `Deferred`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from time import perf_counter

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ...protocol.records.compression import Compression
from ...protocol.records.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
)
from ..cluster.endpoints import LEADERSHIP_ERRORS, endpoints_of, leader_of
from ..cluster.internal_topics import is_internal
from ..log import AppendResult, TakesLong
from ..producing.commit_wait import CommitWait
from ..producing.deferred_batches import (
    ALL,
    BATCH_START,
    Deferred,
    DeferredBatch,
    PlaceInAnswer,
    TransactionalBatches,
    Uncommitted,
    failure,
    in_version,
    unknown_outcome,
)
from ..producing.fast_path import FastPath
from ..producing.validation_queue import UNCOMPRESSED_ON_LOOP_MAX, ValidationQueue
from ..quotas import ClientQuotas
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..security.authorization.access import Access, denial
from ..security.authorization.needs import handler_asks
from ..server.handler import ClientRequest, as_kafka_error, handles
from ..server.purgatory import Purgatory
from ..transactions.pending_writes import PendingTransactionWrites

logger = logging.getLogger(__name__)

_ZSTD = Compression.ZSTD.value

_ON_LOOP_S = 0.01
"""Maximum time for which the event loop decompresses the batches of one request, which may have many; threads do the
rest."""
_FIRST_WITH_ZSTD = 7
_FIRST_WITH_ENDPOINTS = 10
_FIRST_WITH_TOPIC_IDS = 13


def refused(message: ProduceRequest, error: KafkaError) -> ProduceResponse:
    """Return a response with the same error for every partition of the request."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[failure(data.index, error) for data in topic.partition_data],
            )
            for topic in message.topic_data
        ]
    )


class ProduceHandlers:
    """Appends to the partitions that this broker leads."""

    def __init__(
        self,
        replicas: Replicas,
        purgatory: Purgatory,
        gate: PendingTransactionWrites,
        quotas: ClientQuotas | None = None,
        validation: ValidationQueue | None = None,
    ) -> None:
        self._replicas = replicas
        self._purgatory = purgatory
        self._transactional = TransactionalBatches(gate)
        self._quotas = quotas or ClientQuotas()
        self._validation = validation or ValidationQueue()
        self._plain = FastPath(self, replicas, purgatory, self._quotas, self._validation, self._transactional)

    def close(self) -> None:
        """Stop validating batches in threads."""
        self._validation.close()

    def take_plain(self, request: ClientRequest, frame: memoryview, offset: int) -> bool:
        """Handle a plain request; return False if it is not plain."""
        return self._plain.take(request, frame, offset)

    @handles(
        ProduceRequest,
        3,
        13,
        advertise_from=0,
        takes_frames="take_plain",
        on_error=refused,
        needs=handler_asks("WRITE TransactionalId for transactional batches; WRITE Topic"),
    )
    def produce(self, request: ClientRequest, message: ProduceRequest) -> ProduceResponse | None:
        """Append each batch. Answer once `acks` is satisfied, or after `timeout_ms` with the results so far."""
        acks = message.acks
        if acks not in (ALL, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
        by_id = request.api_version >= _FIRST_WITH_TOPIC_IDS
        access = request.access
        if access.grants is not None and message.transactional_id is not None and _has_transactional(message):
            access.check(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, message.transactional_id)
        response = ProduceResponse()
        waiting: list[Uncommitted] = []
        deferred: list[DeferredBatch] = []
        validation = self._validation
        validating = validation.waiting
        failed = False
        for topic in message.topic_data:
            answers: list[PartitionProduceResponse] = []
            if access.grants is not None and not self._may_write(access, topic, by_id=by_id):
                failed = True
                answers = [
                    failure(data.index, denial(AclResourceType.TOPIC)) for data in topic.partition_data
                ]
                response.responses.append(
                    TopicProduceResponse(
                        name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                    )
                )
                continue
            for data in topic.partition_data:
                partition: Partition | None = None
                try:
                    partition = (
                        self._replicas.get_by_id(topic.topic_id, data.index)
                        if by_id
                        else self._replicas.get(topic.name, data.index)
                    )
                    attributes = _check(partition, data, request.api_version)
                    assert data.records is not None
                    records = memoryview(data.records)
                    if attributes & TRANSACTIONAL_FLAG:
                        _check_transactional(message)
                        partition.check_is_no_copy()
                    takes_long = bool(
                        attributes & COMPRESSION_MASK and perf_counter() - request.began_s > _ON_LOOP_S
                    )
                    if (
                        takes_long
                        or (
                            (
                                attributes & COMPRESSION_MASK
                                or len(records) > UNCOMPRESSED_ON_LOOP_MAX
                                or partition.settings.stored is not None
                                or validating
                            )
                            and validation.takes(partition, records)
                        )
                    ) or (
                        attributes & TRANSACTIONAL_FLAG
                        and not self._transactional.admits(partition, records, message.transactional_id or "")
                    ):
                        place = PlaceInAnswer(partition, answers, len(answers))
                        deferred.append(DeferredBatch(place, records, takes_long))
                        answers.append(PartitionProduceResponse(index=data.index))
                        continue
                    answer, end = self.append(partition, data.index, records, acks)
                    if acks == ALL and partition.high_watermark < end:
                        waiting.append((partition, end, answer))
                except TakesLong:
                    assert partition is not None
                    place = PlaceInAnswer(partition, answers, len(answers))
                    deferred.append(DeferredBatch(place, records, takes_long=True))
                    answer = PartitionProduceResponse(index=data.index)
                except Exception as error:
                    failed = True
                    refusal = as_kafka_error(error, f"a batch for {topic.name}-{data.index}")
                    answer = failure(data.index, in_version(refusal, request.api_version), partition)
                answers.append(answer)
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        quota = self._quotas.producer
        if quota is not None and request.session.is_metered:
            size, now_ms = request.connection.frame_bytes, request.received_at * 1000
            request.throttle(quota.charge(request.session.user, request.client_id, size, now_ms))
        if deferred:
            rest = Deferred(self, self._transactional, request, message, response, waiting, failed)
            rest.run(deferred, validation)
            return None
        return self.finish(request, message, response, waiting, failed)

    def _may_write(self, access: Access, topic: TopicProduceData, *, by_id: bool) -> bool:
        """Return whether the sender may write to a topic. The absence of a topic id is not secret."""
        name = topic.name
        if by_id:
            known = self._replicas.image.topics_by_id.get(topic.topic_id)
            if known is None:
                return True
            name = known.name
        return access.allows(AclOperation.WRITE, AclResourceType.TOPIC, name)

    def finish(
        self,
        request: ClientRequest,
        message: ProduceRequest,
        response: ProduceResponse,
        waiting: list[Uncommitted],
        failed: bool,
    ) -> ProduceResponse | None:
        """Answer a request whose batches are all appended or refused.

        Returns the answer; None if there is none, or it comes later.
        """
        if message.acks == 0:
            if failed:
                logger.info("closing the connection of %s: %s", request.connection, _failures(response))
                request.close_connection()
            else:
                request.no_reply()
            return None
        if waiting:
            deadline = request.received_at + max(0, message.timeout_ms) / 1000
            CommitWait(waiting, self._purgatory, deadline, partial(self._committed, request, response))
            return None
        if failed:
            self.add_leaders(request, response)
        return response

    def append(
        self,
        partition: Partition,
        index: int,
        records: memoryview,
        acks: int,
        max_timestamp: int | None = None,
    ) -> tuple[PartitionProduceResponse, int]:
        """Append a batch; return the answer for acks that the append satisfies, and the offset after the batch.

        The parameters and errors are those of `append_records`.
        """
        result = self.append_records(partition, records, acks, max_timestamp)
        return PartitionProduceResponse(
            index=index,
            base_offset=result.first_offset,
            log_append_time_ms=result.append_time_ms,
            log_start_offset=partition.log.log_start_offset,
        ), result.last_offset + 1

    def append_records(
        self, partition: Partition, records: memoryview, acks: int, max_timestamp: int | None = None
    ) -> AppendResult:
        """Append a batch, and count it. With `max_timestamp` its records have been validated already.

        Raises KafkaError with the reason why the batch is not appended; REQUEST_TIMED_OUT if that is uncertain. Raises
        TakesLong if its records have to be validated in a thread.
        """
        end = partition.log.log_end_offset
        try:
            result = partition.append(records, required_acks=acks, max_timestamp=max_timestamp)
        except (KafkaError, TakesLong):
            raise
        except Exception as error:
            refusal = as_kafka_error(error, f"a batch for {partition!r}")
            if partition.log.log_end_offset != end or partition.log.produced.has(records):
                refusal = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            raise refusal from error
        if not result.duplicate:
            traffic = partition.traffic
            traffic.bytes_in += result.size
            traffic.messages_in += result.last_offset + 1 - result.first_offset
        return result

    def _committed(
        self,
        request: ClientRequest,
        response: ProduceResponse,
        unknown: Sequence[tuple[PartitionProduceResponse, ErrorCode]],
    ) -> None:
        for answer, error in unknown:
            unknown_outcome(answer, error)
        self.add_leaders(request, response)
        request.reply(response)

    def add_leaders(self, request: ClientRequest, response: ProduceResponse) -> None:
        """Add the present leaders to the answer, for a client that asked the wrong broker (KIP-951)."""
        if request.api_version < _FIRST_WITH_ENDPOINTS:
            return
        image = self._replicas.image
        leaders: set[int] = set()
        for topic in response.responses:
            state = image.topics_by_id.get(topic.topic_id) or image.topics.get(topic.name)
            for answer in topic.partition_responses:
                if answer.error_code in LEADERSHIP_ERRORS:
                    leader_id, leader_epoch = leader_of(state, answer.index)
                    answer.current_leader.leader_id = leader_id
                    answer.current_leader.leader_epoch = leader_epoch
                    leaders.add(leader_id)
        response.node_endpoints = [
            NodeEndpoint(node_id=found.broker_id, host=found.host, port=found.port, rack=found.rack)
            for found in endpoints_of(image, leaders, request.listener)
        ]


def _check(partition: Partition, data: PartitionProduceData, version: int) -> int:
    """Return the attributes of the first batch. Raises KafkaError for errors that its header shows."""
    # This runs for each request. The first letter shows that most topics are clients' topics, without a call.
    if partition.topic[0] == "_" and is_internal(partition.topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by brokers only")
    records = data.records
    if not records:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "a produce request needs one record batch for each partition"
        )
    if len(records) < HEADER_SIZE:
        return 0
    batch_length, magic, attributes = BATCH_START.unpack_from(records)
    if magic != MAGIC:
        return 0
    if HEADER_SIZE - LOG_OVERHEAD <= batch_length < len(records) - LOG_OVERHEAD:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "a produce request may hold one record batch for each partition"
        )
    if attributes & COMPRESSION_MASK == _ZSTD and version < _FIRST_WITH_ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {_FIRST_WITH_ZSTD} or above, the request has {version}",
        )
    return int(attributes)


def _has_transactional(message: ProduceRequest) -> bool:
    """Return whether a batch belongs to a transaction, as far as its header shows."""
    return any(
        data.records is not None
        and len(data.records) >= HEADER_SIZE
        and BATCH_START.unpack_from(data.records)[2] & TRANSACTIONAL_FLAG
        for topic in message.topic_data
        for data in topic.partition_data
    )


def _check_transactional(message: ProduceRequest) -> None:
    if message.transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a request with transactional batches names the transactional id",
        )
    if not message.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    if message.acks != ALL:
        raise KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"transactional batches need acks=all, not {message.acks}"
        )


def _failures(response: ProduceResponse) -> str:
    """Return a text about the first failed partition, for the log; with acks=0 the client gets no answer."""
    return next(
        f"produce with acks=0 to partition {answer.index} of {topic.name or topic.topic_id.hex()!r} failed: "
        f"{ErrorCode.of(answer.error_code).name}"
        for topic in response.responses
        for answer in topic.partition_responses
        if answer.error_code
    )
