"""Produce requests with batches that cannot be appended at once.

Such a batch takes long to validate, or its topic stores it compressed otherwise, or this broker does not know its
transaction yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import FIRST_THAT_ADDS, ProduceResponse
from ...protocol.records.record_batch import parse_header
from ..log import AppendResult, TakesLong
from ..replication.replica.partition import Partition
from ..transactions.pending_writes import Adding
from .admission import TransactionalBatches
from .answers import ProduceAnswer
from .validation_queue import Outcome, ValidatedBatch, ValidationQueue

_FIRST_WITH_ABORTABLE = 11


class DeferredBatch(NamedTuple):
    """A produced batch that is not appended at once, and its position in the request."""

    position: int
    partition: Partition
    records: memoryview
    takes_long: bool = False
    """True if the event loop has found that the batch takes long to validate."""


class BatchAppender(Protocol):
    """The interface of the Produce handler that deferred batches use: it appends batches and answers requests."""

    def append_records(
        self, partition: Partition, records: memoryview, acks: int, max_timestamp: int | None = None
    ) -> AppendResult:
        """Append a batch.

        Raises KafkaError or TakesLong, and nothing else: no caller would answer the request after another error, and
        the following batches must still be appended.
        """

    def finish(self, answer: ProduceAnswer) -> ProduceResponse | None:
        """Return the answer to a Produce request after all of its batches were appended or refused.

        None if there is no answer, or if it comes later, or was sent in another form.
        """


class Deferred:
    """A Produce request with deferred batches. It is answered when the last of them is appended or refused."""

    __slots__ = ("_adding", "_answer", "_appender", "_left", "_name", "_transactional")

    def __init__(
        self,
        appender: BatchAppender,
        transactional: TransactionalBatches,
        answer: ProduceAnswer,
        transactional_id: str | None,
    ) -> None:
        self._appender = appender
        self._transactional = transactional
        self._answer = answer
        self._name = transactional_id or ""
        self._left = 0
        adds = answer.request.api_version >= FIRST_THAT_ADDS and transactional_id is not None
        self._adding = Adding(self._name) if adds else None

    def run(self, batches: Sequence[DeferredBatch], queue: ValidationQueue) -> None:
        """Pass each deferred batch to the queue for validation. The request is answered once every batch is appended or
        refused."""
        self._left = len(batches)
        request = self._answer.request
        for batch in batches:
            partition, records = batch.partition, batch.records
            arrived = partial(self._arrived, batch.position, partition)
            try:
                queue.submit(partition, records, request.connection, arrived, batch.takes_long, request.spend)
            except KafkaError as error:
                partition.log.produced.refused_for_now(records, error.code)
                arrived(error)

    def _arrived(self, position: int, partition: Partition, outcome: Outcome) -> None:
        """Append a batch that is validated and has the topic's form. If its transaction is not known yet, the batch
        waits for it."""
        if isinstance(outcome, KafkaError):
            self._settle(position, partition, outcome)
            return
        records = outcome.records
        try:
            header = parse_header(records)
            if header.is_transactional and not self._transactional.admits(partition, records, self._name):
                self._transactional.hold(self._answer.request, len(records))
                self._transactional.pending_writes.wait(
                    partition,
                    header.producer_id,
                    header.producer_epoch,
                    self._adding,
                    partial(self._released, position, partition, outcome),
                    is_duplicate=partition.log.producers.is_duplicate(header),
                )
                return
        except KafkaError as error:
            self._settle(position, partition, error)
            return
        self._settle(position, partition, outcome)

    def _released(
        self, position: int, partition: Partition, batch: ValidatedBatch, error: KafkaError | None
    ) -> None:
        self._transactional.let_go(len(batch.records))
        if error is None:
            error = self._not_the_owner(batch)
        if error is not None and error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            partition.log.produced.refused_for_now(batch.records, error.code)
        if (
            error is not None
            and error.code is ErrorCode.INVALID_TXN_STATE
            and self._answer.request.api_version >= _FIRST_WITH_ABORTABLE
        ):
            error = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, error.message)
        self._settle(position, partition, batch if error is None else error)

    def _not_the_owner(self, batch: ValidatedBatch) -> KafkaError | None:
        """Check the owner of the producer id again. This broker may not have known the owner when the batch arrived,
        but does by now."""
        try:
            self._transactional.pending_writes.check_owner(
                parse_header(batch.records).producer_id, self._name
            )
        except KafkaError as error:
            return error
        return None

    def _settle(self, position: int, partition: Partition, outcome: Outcome) -> None:
        """Append a validated batch, or note why it is refused. After the last batch the request is answered."""
        answer = self._answer
        try:
            if isinstance(outcome, KafkaError):
                raise outcome
            result = self._appender.append_records(
                partition, outcome.records, answer.acks, outcome.max_timestamp
            )
            answer.append(position, partition, result)
        except TakesLong:
            # The batch was recognised as a duplicate, and no longer is; the producer may send it again.
            answer.refuse(position, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        except KafkaError as error:
            answer.refuse(position, error, partition)
        self._left -= 1
        if self._left == 0:
            message = self._appender.finish(answer)
            if message is not None:
                answer.request.reply(message)
