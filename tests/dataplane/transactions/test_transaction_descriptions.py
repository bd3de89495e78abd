"""The answers of DescribeTransactions, ListTransactions, AbortTransaction and DeleteTransactionalId, from the
controller's real state machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from ottla.dataplane.handlers.abort_transaction import AbortTransactionHandlers
from ottla.dataplane.handlers.delete_transactional_id import DeleteTransactionalIdHandlers
from ottla.dataplane.handlers.describe_transactions import DescribeTransactionsHandlers
from ottla.dataplane.quorum.transaction_questions import TransactionQuestions
from ottla.dataplane.security.authorization.access import EVERYTHING, Access
from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.transactions.coordinator import coordinator_of
from ottla.metadata_quorum.transaction_questions import TransactionAnswers
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.aborts import AbortTransactionRequest
from ottla.protocol.messages.command import Command, ResultT, accepted
from ottla.protocol.messages.transaction_descriptions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.protocol.messages.transaction_questions import TransactionAnswer, TransactionQuestion
from ottla.protocol.messages.transactional_ids import (
    DeleteTransactionalIdRequest,
    DeleteTransactionalIdResponse,
)
from ottla.protocol.wire.schema import Message
from ottla.protocol.wire.schema import Request as RequestMessage
from tests.metadata_quorum.state.transactional import Identity, Transactions

NOW_MS = 10_000
M = TypeVar("M", bound=Message)


class Asked:
    """Three brokers with a common controller."""

    def __init__(self) -> None:
        self.quorum = Transactions()
        self.answers = True
        self._told = TransactionAnswers()
        self._questions = 0
        self._brokers = {
            broker_id: HandlerTable(
                DescribeTransactionsHandlers(
                    broker_id,
                    self,
                    TransactionQuestions(self.ask),
                    lambda: NOW_MS,
                ),
                AbortTransactionHandlers(self),
                DeleteTransactionalIdHandlers(self),
            )
            for broker_id in (1, 2, 3)
        }

    @property
    def image(self) -> ClusterImage:
        return self.quorum.machine.image

    @property
    def broker_epoch(self) -> int:
        return self.quorum.epoch(1)

    async def submit(self, command: Command[ResultT], timeout_ms: int | None = None) -> ResultT:
        return accepted(q.decode_result(command, self.quorum.apply(command).result))

    async def ask(
        self, make: Callable[[int], TransactionQuestion], timeout_s: float
    ) -> TransactionAnswer | None:
        self._questions += 1
        table = self.quorum.machine.image.transactions
        return self._told.answer(1, make(self._questions), table, 0) if self.answers else None

    def speaker(self, name: str) -> int:
        return coordinator_of(name, self.quorum.machine.image)

    def handle(self, message: RequestMessage[M], broker_id: int, version: int = 0) -> M:
        handler = self._brokers[broker_id].get(message.schema.api_key)
        assert handler is not None
        request: Any = SimpleNamespace(access=EVERYTHING, api_version=version)
        answer: M = asyncio.run(handler.function(request, message))
        assert type(answer) is message.response
        return answer

    def describe(self, *names: str, at: int | None = None) -> list[DescribedTransaction]:
        message = DescribeTransactionsRequest(transactional_ids=list(names))
        return self.handle(message, self.speaker(names[0]) if at is None else at).transaction_states

    def list(self, broker_id: int, **filters: Any) -> ListTransactionsResponse:
        return self.handle(ListTransactionsRequest(**filters), broker_id, 2)

    def everywhere(self, **filters: Any) -> dict[str, str]:
        """Return the state by id, combined as a client does."""
        states: dict[str, str] = {}
        for broker_id in (1, 2, 3):
            for listed in self.list(broker_id, **filters).transaction_states:
                assert listed.transactional_id not in states
                states[listed.transactional_id] = listed.transaction_state
        return states

    def opened(self, name: str, *indexes: int) -> Identity:
        who = self.quorum.begin(name)
        self.quorum.add(who, self.quorum.places(*indexes), name=name)
        return who


def code_of(transaction: DescribedTransaction) -> ErrorCode:
    return ErrorCode(transaction.error_code)


def test_a_transaction_is_described_from_its_beginning_to_its_end() -> None:
    asked = Asked()
    quorum = asked.quorum
    who = quorum.begin("x")
    (empty,) = asked.describe("x")
    assert (empty.transaction_state, empty.transaction_start_time_ms, empty.topics) == ("Empty", -1, [])
    assert (empty.producer_id, empty.producer_epoch, empty.transaction_timeout_ms) == (*who, 1000)
    quorum.add(who, quorum.places(2, 0))
    (begun,) = asked.describe("x")
    assert begun.transaction_state == "Ongoing"
    assert begun.transaction_start_time_ms == quorum.state().started_ms > 0
    assert begun.topics == [DescribedTransactionTopic(topic="t", partitions=[0, 2])]
    assert begun.app_version == -1
    joined = quorum.join(who)
    writer = joined.producer_id, joined.producer_epoch
    quorum.add(writer, quorum.places(0, 3))
    quorum.end(who, writers=[writer], version=12)
    quorum.write_markers(quorum.places(2))
    (decided,) = asked.describe("x")
    assert decided.transaction_state == "PrepareCommit"
    assert decided.topics == [DescribedTransactionTopic(topic="t", partitions=[0, 3])]
    assert decided.app_version == 12
    quorum.write_markers()
    (over,) = asked.describe("x")
    assert (over.transaction_state, over.topics, over.app_version) == ("CompleteCommit", [], 12)


def test_each_id_that_is_asked_for_has_an_answer() -> None:
    asked = Asked()
    names = [f"id-{number}" for number in range(12)]
    for name in names[:10]:
        asked.quorum.begin(name)
    for broker_id in (1, 2, 3):
        states = asked.describe(*names, "", names[0], at=broker_id)
        assert [described.transactional_id for described in states] == [*names, "", names[0]]
        for described in states:
            name = described.transactional_id
            if not name:
                assert code_of(described) is ErrorCode.INVALID_REQUEST
            elif asked.speaker(name) != broker_id:
                assert code_of(described) is ErrorCode.NOT_COORDINATOR
            elif name in names[:10]:
                assert code_of(described) is ErrorCode.NONE
            else:
                assert code_of(described) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_clients_try_again_while_the_quorum_does_not_answer() -> None:
    asked = Asked()
    asked.quorum.begin("x")
    asked.answers = False
    assert code_of(asked.describe("x")[0]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(KafkaError) as refused:
        asked.list(1)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def some_of_each() -> Asked:
    """Return brokers with three ids: empty never began; open began at 5 s or later; over is complete."""
    asked = Asked()
    asked.quorum.begin("empty")
    over = asked.opened("over", 0)
    asked.quorum.end(over, name="over")
    asked.quorum.write_markers()
    asked.opened("open-1", 0)
    asked.opened("open-2", 1)
    decided = asked.opened("aborted", 1)
    asked.quorum.end(decided, commits=False, name="aborted")
    for transaction in asked.quorum.machine.image.transactions.by_id.values():
        if transaction.started_ms >= 0:
            transaction.started_ms = 1_000 if transaction.transactional_id == "over" else 9_000
    return asked


EVERY = {
    "empty": "Empty",
    "over": "CompleteCommit",
    "open-1": "Ongoing",
    "open-2": "Ongoing",
    "aborted": "PrepareAbort",
}


@pytest.mark.parametrize(
    ("filters", "passing"),
    [
        ({}, EVERY.keys()),
        ({"state_filters": ["Ongoing", "Empty"]}, {"empty", "open-1", "open-2"}),
        ({"state_filters": ["PrepareAbort", "Dead", "nonsense"]}, {"aborted"}),
        ({"state_filters": ["Dead"]}, set()),
        ({"state_filters": ["ongoing"]}, set()),
        ({"duration_filter": 999}, EVERY.keys()),
        ({"duration_filter": 1_000}, {"empty", "over"}),
        ({"duration_filter": 0, "state_filters": ["Ongoing"]}, {"open-1", "open-2"}),
        ({"duration_filter": -5}, EVERY.keys()),
        ({"transactional_id_pattern": ""}, EVERY.keys()),
        ({"transactional_id_pattern": "open-[0-9]"}, {"open-1", "open-2"}),
        ({"transactional_id_pattern": "open"}, set()),
        ({"transactional_id_pattern": "o.*", "duration_filter": 5_000}, {"over"}),
        ({"producer_id_filters": [10**12]}, set()),
    ],
)
def test_filters_are_those_of_kafka(filters: dict[str, Any], passing: set[str]) -> None:
    assert some_of_each().everywhere(**filters) == {name: EVERY[name] for name in passing}


@pytest.mark.parametrize("others", [0, 5_000])
def test_producer_ids_are_picked_however_many_there_are(others: int) -> None:
    asked = some_of_each()
    wanted = [asked.quorum.state("over").producer_id, *range(10**9, 10**9 + others)]
    assert asked.everywhere(producer_id_filters=wanted) == {"over": "CompleteCommit"}


def test_unknown_states_are_told() -> None:
    asked = some_of_each()
    assert asked.list(1, state_filters=["Ongoing", "b", "Dead", "a"]).unknown_state_filters == ["a", "b"]
    only = asked.list(1, state_filters=["a"])
    assert (only.unknown_state_filters, only.transaction_states) == (["a"], [])


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        Asked().list(1, transactional_id_pattern="a(")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "Transaction ID pattern `a(`" in refused.value.message


def test_an_open_transaction_is_aborted_and_its_producer_cannot_commit_it() -> None:
    asked = Asked()
    who = asked.opened("x", 0)
    for _ in range(2):
        answer = asked.handle(AbortTransactionRequest(transactional_id="x"), 2)
        assert answer.error_code == ErrorCode.NONE
        assert asked.quorum.state().phase is Phase.PREPARE_ABORT
    assert asked.quorum.end(who).error_code == ErrorCode.TRANSACTION_ABORTABLE
    with pytest.raises(KafkaError) as refused:
        asked.handle(AbortTransactionRequest(transactional_id="y"), 2)
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_id_is_deleted_once_nothing_of_it_is_open() -> None:
    asked = Asked()

    def delete(name: str = "x") -> DeleteTransactionalIdResponse:
        return asked.handle(DeleteTransactionalIdRequest(transactional_id=name), 2)

    def refused(name: str = "x") -> KafkaError:
        with pytest.raises(KafkaError) as raised:
            delete(name)
        return raised.value

    who = asked.opened("x", 0)
    assert refused().code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert "`ottla txn abort`" in refused().message
    asked.quorum.end(who, version=4)
    assert refused().code is ErrorCode.CONCURRENT_TRANSACTIONS
    asked.quorum.write_markers()
    assert delete().error_code == ErrorCode.NONE
    assert code_of(asked.describe("x")[0]) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert asked.everywhere() == {}
    for name in ("x", "y", ""):
        assert refused(name).code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("operation", [AclOperation.DESCRIBE, AclOperation.WRITE, None])
async def test_the_quorum_is_asked_only_for_whoever_may_be_told_something(
    operation: AclOperation | None,
) -> None:
    quorum = Transactions()
    asked = 0

    async def ask(question: TransactionQuestion, timeout_s: float) -> TransactionAnswer | None:
        nonlocal asked
        asked += 1
        return None

    authorizer = Authorizer()
    if operation is not None:
        acl = Acl(
            AclResourceType.TRANSACTIONAL_ID, "id", PatternType.LITERAL, "User:ann", "*", operation, AclPermission.ALLOW
        )  # fmt: skip
        authorizer.change([(acl, True)])
    request: Any = SimpleNamespace(access=Access(authorizer.grants("User:ann", "10.0.0.1"), None, None))
    follower: Any = SimpleNamespace(image=quorum.machine.image)
    handlers = DescribeTransactionsHandlers(1, follower, TransactionQuestions(ask), lambda: NOW_MS)
    if operation is None:
        answer = await handlers.list_ids(request, ListTransactionsRequest())
        assert (answer.error_code, answer.transaction_states) == (ErrorCode.NONE, [])
    else:
        with pytest.raises(KafkaError):
            await handlers.list_ids(request, ListTransactionsRequest())
    assert asked == (operation is not None)
