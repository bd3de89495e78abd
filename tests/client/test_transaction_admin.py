"""The admin client's conclusions from brokers' answers about transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time

import pytest

from ottla.client.admin import Admin, HangingTransaction, TransactionDescription
from ottla.client.failures import VersionUnsupported
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.aborts import AbortTransactionRequest, AbortTransactionResponse
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.transaction_descriptions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.protocol.messages.transactional_ids import (
    DeleteTransactionalIdRequest,
    DeleteTransactionalIdResponse,
)
from ottla.protocol.wire.schema import Message, Request
from tests.client.fake_cluster import FakeCluster, Fault

LONG_AGO_MS = 1_700_000_000_000


@dataclass
class Known:
    """A transactional id, described by one broker."""

    producer_ids: tuple[int, ...]
    state: str = "Ongoing"
    partitions: tuple[int, ...] = ()
    broker: int = 0


class Transactional(FakeCluster):
    """Three brokers of topic `t`."""

    def __init__(self) -> None:
        super().__init__("t", 3, lambda: Fault.NONE)
        self.ids: dict[str, Known] = {}
        self.producers: dict[int, list[ProducerState]] = {}
        self.aborted: list[str] = []
        self.deletions: list[str] = []
        # : errors of the next requests, before they are answered
        self.refusals: list[ErrorCode] = []
        self.loading: set[int] = set()
        """Brokers whose coordinators cannot list their ids yet."""
        self.listed: Callable[[], None] = lambda: None
        self.served += [
            FindCoordinatorRequest,
            DescribeTransactionsRequest,
            ListTransactionsRequest,
            DescribeProducersRequest,
            AbortTransactionRequest,
            DeleteTransactionalIdRequest,
        ]

    def answer_other(self, broker: int, request: Request[Message], version: int) -> Message | None:
        match request:
            case FindCoordinatorRequest():
                assert request.key_type == 1
                return FindCoordinatorResponse(
                    coordinators=[self._coordinator(name) for name in request.coordinator_keys]
                )
            case ListTransactionsRequest():
                return self._list(broker, request)
            case DescribeTransactionsRequest():
                refusal = self.refusals.pop() if self.refusals else ErrorCode.NONE
                return DescribeTransactionsResponse(
                    transaction_states=[
                        self._describe(broker, name, refusal) for name in request.transactional_ids
                    ]
                )
            case DescribeProducersRequest():
                return DescribeProducersResponse(
                    topics=[
                        TopicResponse(
                            name="t",
                            partitions=[
                                PartitionResponse(
                                    partition_index=index, active_producers=self.producers.get(index, [])
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in request.topics
                    ]
                )
            case AbortTransactionRequest():
                self.aborted.append(request.transactional_id)
                known = request.transactional_id in self.ids
                code = ErrorCode.NONE if known else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                return AbortTransactionResponse(error_code=code)
            case DeleteTransactionalIdRequest():
                return self._delete(request.transactional_id)
        return super().answer_other(broker, request, version)

    def _delete(self, name: str) -> DeleteTransactionalIdResponse:
        self.deletions.append(name)
        if name not in self.ids:
            return DeleteTransactionalIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        if self.ids[name].state == "Ongoing":
            return DeleteTransactionalIdResponse(
                error_code=ErrorCode.CONCURRENT_TRANSACTIONS, error_message="abort it first"
            )
        del self.ids[name]
        return DeleteTransactionalIdResponse()

    def _coordinator(self, name: str) -> Coordinator:
        node = self.ids[name].broker if name in self.ids else 0
        return Coordinator(key=name, node_id=node, host="127.0.0.1", port=self.ports[node])

    def _list(self, broker: int, request: ListTransactionsRequest) -> ListTransactionsResponse:
        if broker in self.loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.refusals:
            return ListTransactionsResponse(error_code=self.refusals.pop())
        wanted = request.producer_id_filters
        answer = ListTransactionsResponse(
            transaction_states=[
                ListedTransaction(
                    transactional_id=name, producer_id=producer_id, transaction_state=known.state
                )
                for name, known in self.ids.items()
                for producer_id in known.producer_ids[: None if wanted else 1]
                if known.broker == broker
                and (not request.state_filters or known.state in request.state_filters)
                and (not wanted or producer_id in wanted)
            ],
            unknown_state_filters=[name for name in request.state_filters if name == "Odd"],
        )
        self.listed()
        return answer

    def _describe(self, broker: int, name: str, refusal: ErrorCode) -> DescribedTransaction:
        known = self.ids.get(name)
        if refusal:
            return DescribedTransaction(transactional_id=name, error_code=refusal)
        if known is None:
            return DescribedTransaction(
                transactional_id=name, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            )
        if known.broker != broker:
            return DescribedTransaction(transactional_id=name, error_code=ErrorCode.NOT_COORDINATOR)
        return DescribedTransaction(
            transactional_id=name,
            transaction_state=known.state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=LONG_AGO_MS,
            producer_id=known.producer_ids[0],
            producer_epoch=3,
            topics=[DescribedTransactionTopic(topic="t", partitions=list(known.partitions))],
            app_version=8,
        )


@asynccontextmanager
async def transactional() -> AsyncIterator[tuple[Transactional, Admin]]:
    cluster = Transactional()
    await cluster.start(3)
    try:
        async with Admin(bootstrap_servers=cluster.bootstrap, request_timeout_ms=10_000) as admin:
            yield cluster, admin
    finally:
        await cluster.stop()


def opened(producer_id: int, first: int = 5, last_ms: int = LONG_AGO_MS) -> ProducerState:
    return ProducerState(
        producer_id=producer_id, producer_epoch=2, last_timestamp=last_ms, current_txn_start_offset=first
    )


async def test_all_brokers_make_one_list() -> None:
    async with transactional() as (cluster, admin):
        cluster.ids = {
            "c": Known((3,), broker=0),
            "a": Known((1,), "Empty", broker=2),
            "b": Known((2,), broker=1),
        }
        cluster.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        listed = await admin.list_transactions()
        assert [
            (transaction.transactional_id, transaction.producer_id, transaction.coordinator)
            for transaction in listed
        ] == [
            ("a", 1, 2),
            ("b", 2, 1),
            ("c", 3, 0),
        ]
        some = await admin.list_transactions(states=["Ongoing"], producer_ids=[1, 3])
        assert [(transaction.transactional_id, transaction.state) for transaction in some] == [
            ("c", "Ongoing")
        ]
        with pytest.raises(ValueError, match="no transaction is ever Odd"):
            await admin.list_transactions(states=["Odd"])


async def test_a_coordinator_that_loads_hides_no_other() -> None:
    async with transactional() as (cluster, admin):
        cluster.ids = {"c": Known((3,), broker=0), "a": Known((1,), broker=2), "b": Known((2,), broker=1)}
        cluster.loading = {1}
        answers = await admin.list_transactions_by_broker()
        loading = answers.pop(1)
        assert isinstance(loading, KafkaError)
        assert loading.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert {
            broker: [transaction.transactional_id for transaction in answer]
            for broker, answer in answers.items()
            if not isinstance(answer, KafkaError)
        } == {0: ["c"], 2: ["a"]}
        asyncio.get_running_loop().call_later(0.2, cluster.loading.clear)
        patient = await admin.list_transactions_by_broker(patience_ms=60_000)
        assert [broker for broker, answer in patient.items() if isinstance(answer, KafkaError)] == []
        with pytest.raises(ValueError, match="no transaction is ever Odd"):
            await admin.list_transactions_by_broker(states=["Odd"])


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
async def test_each_is_described_by_its_coordinator(refusal: ErrorCode) -> None:
    async with transactional() as (cluster, admin):
        cluster.ids = {"a": Known((1,), partitions=(0, 2), broker=2), "b": Known((2,), broker=1)}
        cluster.refusals = [refusal, refusal]
        described = await admin.describe_transactions(["b", "nobody", "a", "b"])
        assert list(described) == ["b", "nobody", "a"]
        both = (TopicPartition("t", 0), TopicPartition("t", 2))
        assert described["a"] == TransactionDescription("a", "Ongoing", 1, 3, 60_000, LONG_AGO_MS, both, 8, 2)
        unknown = described["nobody"]
        assert isinstance(unknown, KafkaError)
        assert unknown.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_more_ids_than_one_request_names() -> None:
    async with transactional() as (cluster, admin):
        cluster.ids = {f"id-{number}": Known((number,), broker=number % 3) for number in range(1_300)}
        described = await admin.describe_transactions(cluster.ids)
        assert [
            transaction.producer_id
            for transaction in described.values()
            if not isinstance(transaction, KafkaError)
        ] == list(range(1_300))


async def test_an_abort_goes_to_one_broker_and_only_where_it_is_known() -> None:
    async with transactional() as (cluster, admin):
        cluster.ids = {"a": Known((1,))}
        await admin.abort_transaction("a")
        assert cluster.aborted == ["a"]
        with pytest.raises(KafkaError) as refused:
            await admin.abort_transaction("b")
        assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    async with transactional() as (cluster, _):
        cluster.served.remove(AbortTransactionRequest)
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            with pytest.raises(VersionUnsupported):
                await admin.abort_transaction("a")


async def test_a_deletion_goes_to_one_broker_once_and_only_where_it_is_known() -> None:
    """An open transaction may stay open for long: there is no retry, and the error states the remedy."""
    async with transactional() as (cluster, admin):
        cluster.ids = {"over": Known((1,), "CompleteCommit"), "open": Known((2,))}
        await admin.delete_transactional_id("over")
        for name, code, reason in (
            ("open", ErrorCode.CONCURRENT_TRANSACTIONS, "transactional id 'open': abort it first"),
            ("over", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "transactional id 'over': There is no such"),
        ):
            with pytest.raises(KafkaError, match=reason) as refused:
                await admin.delete_transactional_id(name)
            assert refused.value.code is code
        assert cluster.deletions == ["over", "open", "over"]
    async with transactional() as (cluster, _):
        cluster.served.remove(DeleteTransactionalIdRequest)
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            with pytest.raises(VersionUnsupported):
                await admin.delete_transactional_id("over")


PARTITIONS = [TopicPartition("t", index) for index in range(3)]


async def test_what_nobody_has_open_hangs() -> None:
    async with transactional() as (cluster, admin):
        cluster.ids = {
            "open": Known((1, 11), partitions=(0, 1)),
            "elsewhere": Known((2,), partitions=(1,), broker=1),
        }
        now_ms = round(time() * 1000)
        cluster.producers = {
            0: [opened(1), opened(11), opened(2, first=7), opened(99), opened(98, last_ms=now_ms)],
            1: [opened(2), opened(97, first=-1)],
        }
        asked: list[tuple[int, int]] = []
        found = await admin.find_hanging(PARTITIONS, progress=lambda done, total: asked.append((done, total)))
        assert [(transaction.partition, transaction.producer.producer_id) for transaction in found] == [
            (PARTITIONS[0], 2),
            (PARTITIONS[0], 99),
        ]
        assert found[0].producer.transaction_start == 7
        assert asked == [(3, 3)]
        shorter = await admin.find_hanging(PARTITIONS, max_transaction_timeout_ms=-60_000)
        assert [transaction.producer.producer_id for transaction in shorter] == [2, 98, 99]


async def test_what_ends_during_the_search_does_not_hang() -> None:
    async with transactional() as (cluster, admin):
        cluster.ids = {"over": Known((1,), "CompleteCommit")}
        cluster.producers = {0: [opened(1), opened(99)]}

        def ended() -> None:
            cluster.producers[0][0] = opened(1, first=-1)

        cluster.listed = ended
        found = await admin.find_hanging(PARTITIONS)
        assert [transaction.producer.producer_id for transaction in found] == [99]
        assert isinstance(found[0], HangingTransaction)


async def test_a_partition_that_cannot_be_asked_is_named() -> None:
    async with transactional() as (_, admin):
        with pytest.raises(KafkaError, match="nowhere-4: there is no nowhere-4"):
            await admin.find_hanging([TopicPartition("nowhere", 4)])
