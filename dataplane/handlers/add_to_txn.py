"""AddPartitionsToTxn (0-5) and AddOffsetsToTxn (0-4): partitions become part of a producer's transaction.

This broker decides nothing: it turns requests into commands of the quorum. So a client may connect to any broker, and
there is no coordinator that could fail over.

If the transaction was aborted, and no other producer has replaced this one, the answer is INVALID_PRODUCER_ID_MAPPING.
Clients answer that code with an abort, and ask for the next epoch (KIP-360).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.transaction_table import Phase, Place, by_topic
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import AddToTransaction
from ...protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ..cluster.internal_topics import OFFSETS_TOPIC, is_internal
from ..coordinated_log.key_hash import partition_for
from ..coordinated_log.transactional_producer import TransactionalProducer
from ..quorum.access import Quorum
from ..runtime.time_slices import in_time_slices
from ..security.authorization.needs import group, handler_asks, transactional_id
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles
from ..transactions.announced_offsets import AnnouncedOffsets
from ..transactions.argument_checks import check_transactional_id
from ..transactions.client_commands import ClientOrigins, errors_for_client

_FIRST_WITH_PRODUCER_FENCED = 2
_FIRST_WITH_MANY = 4


class AddToTxnHandlers:
    """The handlers of AddPartitionsToTxn and AddOffsetsToTxn, which have the quorum add partitions to a producer's
    transaction."""

    def __init__(
        self,
        quorum: Quorum,
        origins: ClientOrigins,
        make_offsets_topic: Callable[[], Awaitable[object]],
        announced_offsets: AnnouncedOffsets,
    ) -> None:
        """Create the handlers. `make_offsets_topic` is called if the offsets topic does not exist yet."""
        self._quorum = quorum
        self._origins = origins
        self._make_offsets_topic = make_offsets_topic
        self._announced_offsets = announced_offsets

    @handles(
        AddPartitionsToTxnRequest,
        0,
        5,
        errors=ErrorAnswers(
            arrays={
                "transactions": "results_by_transaction",
                "topics": "topic_results",
                "v3_and_below_topics": "results_by_topic_v3_and_below",
                "partitions": "results_by_partition",
            },
            in_elements_too=True,
        ),
        needs=handler_asks(
            "up to version 3: WRITE TransactionalId, WRITE Topic; from 4 on: CLUSTER_ACTION Cluster"
        ),
    )
    async def add_partitions(
        self, request: ClientRequest, message: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        """Add all partitions to the transaction, or none if one of them does not exist."""
        if request.api_version < _FIRST_WITH_MANY:
            who = TransactionalProducer(
                message.v3_and_below_transactional_id,
                message.v3_and_below_producer_id,
                message.v3_and_below_producer_epoch,
            )
            request.access.check(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, who.transactional_id)
            check_transactional_id(who.transactional_id)
            results = await self._added(request, who, message.v3_and_below_topics)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        request.access.check_cluster(AclOperation.CLUSTER_ACTION)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                await self._one_of_many(request, transaction)
                async for transaction in in_time_slices(message.transactions)
            ]
        )

    async def _one_of_many(
        self, request: ClientRequest, transaction: AddPartitionsToTxnTransaction
    ) -> AddPartitionsToTxnResult:
        who = TransactionalProducer(
            transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
        )
        if not who.transactional_id:
            return AddPartitionsToTxnResult(
                topic_results=_results(transaction.topics, lambda _: ErrorCode.INVALID_REQUEST)
            )
        found = (
            self._verified(who, transaction)
            if transaction.verify_only
            else await self._added(request, who, transaction.topics)
        )
        return AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=found)

    async def _added(
        self, request: ClientRequest, who: TransactionalProducer, topics: list[AddPartitionsToTxnTopic]
    ) -> list[AddPartitionsToTxnTopicResult]:
        refused = {
            place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for place in _named(topics)
            if self._place(*place) is None
        }
        refused |= {
            place: ErrorCode.TOPIC_AUTHORIZATION_FAILED for place in _named(topics) if is_internal(place[0])
        }
        if request.api_version < _FIRST_WITH_MANY:
            denied = request.access.denied_topics(AclOperation.WRITE, (topic.name for topic in topics))
            refused |= {
                place: ErrorCode.TOPIC_AUTHORIZATION_FAILED for place in _named(topics) if place[0] in denied
            }
        if refused:
            return _results(topics, lambda place: refused.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED))
        places = [found for place in _named(topics) if (found := self._place(*place)) is not None]
        try:
            await self._add(request, who, places)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.NETWORK_EXCEPTION:
                raise
            return _results(topics, lambda _: code)
        return _results(topics, lambda _: ErrorCode.NONE)

    def _verified(
        self, who: TransactionalProducer, asked: AddPartitionsToTxnTransaction
    ) -> list[AddPartitionsToTxnTopicResult]:
        """Return for each partition that a producer asks about whether it is in the producer's open transaction, as far
        as this broker knows.

        Kafka's brokers ask each other this.
        """
        found = self._quorum.image.transactions.writer(who.producer_id)

        def code(place: tuple[str, int]) -> ErrorCode:
            if found is None:
                return ErrorCode.INVALID_PRODUCER_ID_MAPPING
            transaction, writer = found
            if transaction.transactional_id != who.transactional_id:
                return ErrorCode.INVALID_PRODUCER_ID_MAPPING
            if writer.producer_epoch != who.producer_epoch:
                return ErrorCode.PRODUCER_FENCED
            is_open = transaction.phase is Phase.ONGOING and self._place(*place) in writer.outstanding
            return ErrorCode.NONE if is_open else ErrorCode.TRANSACTION_ABORTABLE

        return _results(asked.topics, code)

    @handles(
        AddOffsetsToTxnRequest, 0, 4, needs=transactional_id(AclOperation.WRITE) & group(AclOperation.READ)
    )
    async def add_offsets(
        self, request: ClientRequest, message: AddOffsetsToTxnRequest
    ) -> AddOffsetsToTxnResponse:
        """Add the partition that holds the group's offsets to the transaction."""
        check_transactional_id(message.transactional_id)
        if OFFSETS_TOPIC not in self._quorum.image.topics:
            await self._make_offsets_topic()
        topic = self._quorum.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} cannot be created yet")
        place = (topic.id, partition_for(message.group_id, len(topic.partitions)))
        who = TransactionalProducer(message.transactional_id, message.producer_id, message.producer_epoch)
        await self._add(request, who, [place])
        self._announced_offsets.added(request.connection)
        return AddOffsetsToTxnResponse()

    async def _add(self, request: ClientRequest, who: TransactionalProducer, places: Iterable[Place]) -> None:
        command = AddToTransaction(
            transactional_id=who.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            topics=by_topic(places),
            origin=self._origins.of(request),
        )
        with errors_for_client(request, knows_fenced=_knows_fenced(request), knows_abortable=False):
            await self._quorum.submit(command)

    def _place(self, topic: str, index: int) -> Place | None:
        found = self._quorum.image.topics.get(topic)
        return (found.id, index) if found is not None and index in found.partitions else None


def _knows_fenced(request: ClientRequest) -> bool:
    return request.api_version >= _FIRST_WITH_PRODUCER_FENCED


def _named(topics: Iterable[AddPartitionsToTxnTopic]) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], code: Callable[[tuple[str, int]], Any]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code((topic.name, index))
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
