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
from typing import cast

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.direct_codecs.produce_frames import (
    SentBatch,
    SentProduce,
    read_produce,
    sent_produce,
    write_produced,
)
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import FIRST_WITH_TOPIC_IDS, NodeEndpoint, ProduceRequest, ProduceResponse
from ...protocol.records.record_batch import is_transactional
from ..cluster.endpoints import LEADERSHIP_ERRORS, endpoints_of, leader_of
from ..log import AppendResult, TakesLong
from ..producing.admission import APPEND, DEFER_TO_THREAD, Admission, TransactionalBatches
from ..producing.answers import ALL, ProduceAnswer, answer_message, failure
from ..producing.commit_wait import CommitWait
from ..producing.deferred_batches import Deferred, DeferredBatch
from ..producing.validation_queue import ValidationQueue
from ..quotas import ClientQuotas
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..security.authorization.access import Access, denial
from ..security.authorization.needs import handler_asks
from ..server.handler import ClientRequest, as_kafka_error, handles
from ..server.purgatory import Purgatory
from ..transactions.pending_writes import PendingTransactionWrites

logger = logging.getLogger(__name__)

_FIRST_WITH_ENDPOINTS = 10


def refused(message: ProduceRequest | SentProduce, error: KafkaError) -> ProduceResponse:
    """Return the answer that refuses every batch of a request with the same error."""
    if not isinstance(message, tuple):
        message = sent_produce(message, by_id=not any(topic.name for topic in message.topic_data))
    _, _, _, batches = message
    return answer_message(
        [(topic, index, -1, -1, -1) for topic, index, _ in batches],
        {position: failure(index, error) for position, (_, index, _) in enumerate(batches)},
    )


class ProduceHandlers:
    """Appends to the partitions that this broker leads.

    One loop decides about each batch. Almost all requests are read by `read_produce` without a message; the others are
    decoded to a message, from which `sent_produce` takes the same tuples.
    """

    def __init__(
        self,
        replicas: Replicas,
        purgatory: Purgatory,
        pending_writes: PendingTransactionWrites,
        quotas: ClientQuotas | None = None,
        validation: ValidationQueue | None = None,
    ) -> None:
        self._replicas = replicas
        self._purgatory = purgatory
        self._quotas = quotas or ClientQuotas()
        self._validation = validation or ValidationQueue()
        self._transactional = TransactionalBatches(pending_writes)
        self._admission = Admission(self._validation, self._transactional)

    def close(self) -> None:
        """Stop the threads that validate batches."""
        self._validation.close()

    @handles(
        ProduceRequest,
        3,
        13,
        advertise_from=0,
        reads_frames=read_produce,
        on_error=refused,
        needs=handler_asks("WRITE TransactionalId for transactional batches; WRITE Topic"),
    )
    def produce(
        self, request: ClientRequest, message: ProduceRequest | SentProduce
    ) -> ProduceResponse | None:
        """Append each batch. Answer once `acks` is satisfied, or after `timeout_ms` with the outcomes known then."""
        by_id = request.api_version >= FIRST_WITH_TOPIC_IDS
        sent = message if isinstance(message, tuple) else sent_produce(message, by_id=by_id)
        transactional_id, acks, timeout_ms, batches = sent
        if acks != ALL and acks != 1 and acks != 0:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
        find = self._replicas.find_by_id if by_id else self._replicas.find
        denied = (
            () if request.access.grants is None else self._denied(request.access, transactional_id, batches)
        )
        decide = self._admission.decide
        answer = ProduceAnswer(request, acks, timeout_ms)
        appended = answer.appended
        deferred: list[DeferredBatch] | None = None
        for topic, index, records in batches:
            partition = None
            decision = APPEND
            try:
                if topic in denied:
                    raise denial(AclResourceType.TOPIC)
                partition = find(topic, index)  # type: ignore[arg-type] # as the version says
                if partition is None:
                    partition = self._absent(topic, index)
                decision = decide(partition, records, request, transactional_id, acks)
                if decision is APPEND:
                    first, last, append_time_ms, _, _, _ = self.append_records(partition, records, acks)  # type: ignore[arg-type] # not None: it was decided
                    if acks == ALL and partition.high_watermark <= last:
                        answer.waiting.append((partition, last + 1, len(appended)))
                    appended.append((topic, index, first, append_time_ms, partition.log.log_start_offset))
                    continue
            except TakesLong:
                decision = DEFER_TO_THREAD
            except Exception as error:
                appended.append((topic, index, -1, -1, -1))
                refusal = as_kafka_error(error, f"a batch for {topic!r}, partition {index}")
                answer.refuse(len(appended) - 1, refusal, partition)
                continue
            if deferred is None:
                deferred = []
            takes_long = decision is DEFER_TO_THREAD
            deferred.append(
                DeferredBatch(
                    len(appended), cast(Partition, partition), cast(memoryview, records), takes_long
                )
            )
            appended.append((topic, index, -1, -1, -1))
        quota = self._quotas.producer
        if quota is not None and request.session.is_metered:
            size, now_ms = request.connection.frame_bytes, request.received_at * 1000
            request.throttle(quota.charge(request.session.user, request.client_id, size, now_ms))
        if deferred is not None:
            Deferred(self, self._transactional, answer, transactional_id).run(deferred, self._validation)
            return None
        return self.finish(answer)

    def _absent(self, topic: str | bytes, index: int) -> Partition:
        """Raise the KafkaError for a partition of which this broker has no replica."""
        if isinstance(topic, bytes):
            return self._replicas.get_by_id(topic, index)
        return self._replicas.get(topic, index)

    def _denied(
        self, access: Access, transactional_id: str | None, batches: Sequence[SentBatch]
    ) -> set[str | bytes]:
        """Return the topics that the sender may not write to. The absence of a topic with some id is no secret.

        Raises KafkaError if the sender may not use the transactional id of its transactional batches.
        """
        if transactional_id is not None and any(
            records is not None and is_transactional(records) for _, _, records in batches
        ):
            access.check(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
        denied = set()
        for topic in {topic for topic, _, _ in batches}:
            name: str | None
            if isinstance(topic, bytes):
                known = self._replicas.image.topics_by_id.get(topic)
                name = None if known is None else known.name
            else:
                name = topic
            if name is not None and not access.allows(AclOperation.WRITE, AclResourceType.TOPIC, name):
                denied.add(topic)
        return denied

    def finish(self, answer: ProduceAnswer) -> ProduceResponse | None:
        """Answer a request all of whose batches are appended or refused, once `acks` is satisfied.

        Returns the answer if it is a message and complete now. A fault of this function closes the connection: the
        batches are appended, so that no error may be answered.
        """
        request = answer.request
        try:
            if answer.acks == 0:
                self._finish_without_answer(answer)
                return None
            if answer.refused or request.throttle_ms or request.meter is not None or request.is_long:
                written = None  # it takes a message, or says that the client is throttled, or takes a thread
            else:
                written = write_produced(request.api_version, request.correlation_id, answer.appended)
            if answer.waiting:
                deadline = request.received_at + max(0, answer.timeout_ms) / 1000
                CommitWait(
                    answer.waiting, self._purgatory, deadline, partial(self._committed, answer, written)
                )
                return None
            if written is not None:
                request.connection.answer(request, (written,))
                return None
            return self._message(answer)
        except Exception:
            logger.exception("closing the connection of %s", request.connection)
            request.connection.close()
            return None

    def _finish_without_answer(self, answer: ProduceAnswer) -> None:
        request = answer.request
        if answer.refused:
            logger.info("closing the connection of %s: %s", request.connection, _first_failure(answer))
            request.close_connection()
        else:
            request.no_reply()

    def _committed(
        self, answer: ProduceAnswer, written: bytes | None, unknown: Sequence[tuple[int, ErrorCode]]
    ) -> None:
        """Answer a request whose batches are committed, but for the `unknown` outcomes, given by position."""
        if written is not None and not unknown:
            answer.request.connection.answer(answer.request, (written,))
            return
        for position, error in unknown:
            answer.leave_unknown(position, error)
        answer.request.reply(self._message(answer))

    def _message(self, answer: ProduceAnswer) -> ProduceResponse:
        response = answer_message(answer.appended, answer.refused)
        if answer.refused:
            self.add_leaders(answer.request, response)
        return response

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


def _first_failure(answer: ProduceAnswer) -> str:
    """Return the text for the log about the first refused batch; with acks=0 the client gets no other word."""
    position = min(answer.refused)
    topic, index, _, _, _ = answer.appended[position]
    name = topic.hex() if isinstance(topic, bytes) else topic
    code = ErrorCode.of(answer.refused[position].error_code)
    return f"produce with acks=0 to partition {index} of {name!r} failed: {code.name}"
