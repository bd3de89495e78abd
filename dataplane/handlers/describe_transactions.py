"""DescribeTransactions (0) and ListTransactions (0-2): transactions as operators see them (KIP-664).

The quorum's leader knows all transactions, so this broker asks it. Kafka's clients ask the broker that FindCoordinator
names for a transactional id. For a list they ask every broker, and join the answers. So each broker answers only for
the ids that FindCoordinator assigns to it.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.transaction_table import Phase, places_of
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_descriptions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ...protocol.messages.transaction_questions import FOREVER_MS, TransactionTold
from ..patterns import compile_pattern
from ..quorum.access import Quorum
from ..quorum.transaction_questions import TransactionQuestions
from ..runtime.matching import matching
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access
from ..security.authorization.needs import handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles
from ..transactions.coordinator import coordinator_of

ANSWER_TIMEOUT_S = 5.0
"""Timeout for the leader's answer; an election takes a small part of it."""
STATES = {
    Phase.EMPTY: "Empty",
    Phase.ONGOING: "Ongoing",
    Phase.PREPARE_COMMIT: "PrepareCommit",
    Phase.PREPARE_ABORT: "PrepareAbort",
    Phase.COMPLETE_COMMIT: "CompleteCommit",
    Phase.COMPLETE_ABORT: "CompleteAbort",
}
"""Kafka's names of the states."""
_NEVER_OURS = frozenset(("Dead", "PrepareEpochFence"))
"""States that Kafka knows, but no transaction of Ottla has."""
_PHASES = {name: phase for phase, name in STATES.items()}


class DescribeTransactionsHandlers:
    """Shows the transactions that the quorum's leader knows."""

    def __init__(
        self,
        broker_id: int,
        quorum: Quorum,
        questions: TransactionQuestions,
        wall_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._quorum = quorum
        self._questions = questions
        self._wall_ms = wall_ms

    @handles(
        DescribeTransactionsRequest,
        0,
        0,
        errors=ErrorAnswers(arrays={"transactional_ids": "transaction_states"}),
        needs=handler_asks("DESCRIBE TransactionalId; DESCRIBE Topic for each that is shown"),
    )
    async def describe(
        self, request: ClientRequest, message: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        """Describe each id separately.

        The errors are NOT_COORDINATOR if another broker answers for the id, TRANSACTIONAL_ID_NOT_FOUND, and
        COORDINATOR_LOAD_IN_PROGRESS, which clients retry, while the quorum does not answer.
        """
        refused: dict[str, ErrorCode] = {}
        async for name in in_time_slices(dict.fromkeys(message.transactional_ids)):
            if not request.access.allows(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, name):
                refused[name] = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            elif not name:
                refused[name] = ErrorCode.INVALID_REQUEST
            elif not self._answers_for(name):
                refused[name] = ErrorCode.NOT_COORDINATOR
        ours = [name for name in message.transactional_ids if name not in refused]
        found = await self._questions.describe(ours, ANSWER_TIMEOUT_S) if ours else {}
        states: list[DescribedTransaction] = []
        for name in message.transactional_ids:
            if name in refused:
                code = refused[name]
            elif found is None:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            elif (transaction := found.get(name)) is not None:
                states.append(await self._described(request.access, transaction))
                continue
            else:
                code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            states.append(DescribedTransaction(transactional_id=name, error_code=code))
        return DescribeTransactionsResponse(transaction_states=states)

    async def _described(self, access: Access, transaction: TransactionTold) -> DescribedTransaction:
        topics: dict[str, set[int]] = {}
        places = (place for writer in transaction.writers for place in places_of(writer.topics))
        async for topic_id, index in in_time_slices(places):
            topic = self._quorum.image.topics_by_id.get(topic_id)
            if topic is not None and access.allows(
                AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.name, quiet=True
            ):
                topics.setdefault(topic.name, set()).add(index)
        return DescribedTransaction(
            transactional_id=transaction.transactional_id,
            transaction_state=STATES[Phase(transaction.phase)],
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.started_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                DescribedTransactionTopic(topic=name, partitions=sorted(topics[name]))
                for name in sorted(topics)
            ],
            app_version=transaction.app_version,
        )

    @handles(
        ListTransactionsRequest, 0, 2, needs=handler_asks("DESCRIBE TransactionalId for each that is listed")
    )
    async def list_ids(
        self, request: ClientRequest, message: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        """Return the transactional ids that pass all filters, among the ids that this broker answers for.

        As in Kafka, an id that never began a transaction passes any duration. The producer id of a writer that joined a
        transaction finds the transaction, too, and is the producer id in the answer. So Kafka's search for hanging
        transactions knows the owner of each. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS while the quorum does not
        answer.
        """
        regex = message.transactional_id_pattern
        pattern = compile_pattern(regex, "Transaction ID pattern") if regex else None
        states = frozenset(message.state_filters)
        response = ListTransactionsResponse(
            unknown_state_filters=sorted(states - _PHASES.keys() - _NEVER_OURS)
        )
        phases = [_PHASES[name] for name in states if name in _PHASES]
        if states and not phases:
            return response
        if not request.access.may_describe_some(AclResourceType.TRANSACTIONAL_ID):
            return response
        duration_ms = message.duration_filter
        found = await self._questions.ids(
            ANSWER_TIMEOUT_S,
            phases=phases,
            producer_ids=frozenset(message.producer_id_filters),
            started_before_ms=FOREVER_MS if duration_ms < 0 else self._wall_ms() - duration_ms,
        )
        if found is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        visible = [
            transaction
            async for transaction in in_time_slices(found)
            if self._answers_for(transaction.transactional_id)
            and request.access.allows(
                AclOperation.DESCRIBE,
                AclResourceType.TRANSACTIONAL_ID,
                transaction.transactional_id,
                quiet=True,
            )
        ]
        if pattern is not None:
            matched = set(await matching(pattern, [transaction.transactional_id for transaction in visible]))
            visible = [transaction for transaction in visible if transaction.transactional_id in matched]
        response.transaction_states = [
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=STATES[Phase(transaction.phase)],
            )
            for transaction in visible
        ]
        return response

    def _answers_for(self, name: str) -> bool:
        return coordinator_of(name, self._quorum.image) == self._broker_id
