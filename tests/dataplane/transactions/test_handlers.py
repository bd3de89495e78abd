"""Requests about transactions over sockets, decided by the controller's real state machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import pytest

from ottla.client.connections.connection import BrokerAddress, Connection, ConnectionLost
from ottla.client.connections.opening import connect
from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.dataplane.coordinated_log.key_hash import partition_for
from ottla.dataplane.handlers.add_to_txn import AddToTxnHandlers
from ottla.dataplane.handlers.api_versions import ApiVersionsHandlers
from ottla.dataplane.handlers.end_txn import EndTxnHandlers
from ottla.dataplane.handlers.init_producer_id import InitProducerIdHandlers
from ottla.dataplane.handlers.produce import ProduceHandlers
from ottla.dataplane.handlers.shared_transactions import SharedTransactionHandlers
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.server.server import Server
from ottla.dataplane.transactions.announced_offsets import AnnouncedOffsets
from ottla.dataplane.transactions.client_commands import ClientOrigins
from ottla.dataplane.transactions.producer_ids import ProducerIds, blocks_from
from ottla.dataplane.transactions.tokens import TransactionTokens
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)
from ottla.protocol.records.record import encode_batch
from ottla.protocol.session.node_secrets import Secrets
from tests.metadata_quorum.state.harness import assigned
from tests.metadata_quorum.state.transactional import Identity

from .broker_beside_a_quorum import Beside, beside_a_quorum

TIMEOUT_MAX_MS = 900_000
TOKENS = TransactionTokens(Secrets((b"s" * 32,)), "cluster")


class Served(NamedTuple):
    broker: Beside
    address: BrokerAddress

    async def client(self) -> Connection:
        return await connect(self.address)


@contextlib.asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    async with beside_a_quorum(directory) as broker:
        origins = ClientOrigins(1, broker, lambda: 5)

        async def make_offsets_topic() -> None:
            broker.quorum.create(assigned(OFFSETS_TOPIC, [1], [1]))
            broker.catch_up()

        announced_offsets = AnnouncedOffsets()
        table = HandlerTable(
            InitProducerIdHandlers(
                ProducerIds(blocks_from(broker, 1)), broker, origins, lambda: TIMEOUT_MAX_MS
            ),
            AddToTxnHandlers(broker, origins, make_offsets_topic, announced_offsets),
            EndTxnHandlers(broker, origins, broker.completion_waits, announced_offsets),
            SharedTransactionHandlers(
                broker, origins, broker.completion_waits, TOKENS, lambda: TIMEOUT_MAX_MS
            ),
        )
        table.add(ApiVersionsHandlers(table, SimpleNamespace(image=broker.image), 1))  # type: ignore[arg-type]
        server = Server(table)
        server.metadata_offset = lambda: broker.image.offset
        table.add(ProduceHandlers(broker.replicas, server.purgatory, broker.pending_writes))
        port = server.listen("TEST", "127.0.0.1", 0).port
        server.start()
        broker.moved = lambda: server.image_changed(broker.image, ImageDelta())
        try:
            yield Served(broker, BrokerAddress(1, "127.0.0.1", port))
        finally:
            server.close()


async def begun(client: Connection, name: str = "x") -> Identity:
    answer = await client.request(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    return answer.producer_id, answer.producer_epoch


async def added(
    client: Connection, who: Identity, *indexes: int, topic: str = "solo", name: str = "x"
) -> list[int]:
    """Return the error codes."""
    answer = await client.request(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        ),
        version=3,
    )
    return [
        result.partition_error_code
        for found in answer.results_by_topic_v3_and_below
        for result in found.results_by_partition
    ]


def ending(who: Identity, *, commits: bool = True, name: str = "x") -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=commits)


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("commits", [True, False])
async def test_a_transaction_from_its_beginning_to_what_readers_see(
    tmp_path: Path, *, version: int, commits: bool
) -> None:
    async with served(tmp_path) as (broker, address):
        client = await connect(address)
        who = await begun(client)
        assert await added(client, who, 0, 1) == [ErrorCode.NONE] * 2
        for index in (0, 1):
            await broker.produce(who, 0, index=index)
        ended = await client.request(ending(who, commits=commits), version=version)
        assert ended.error_code == ErrorCode.NONE
        for index in (0, 1):
            partition = broker.partition(index=index)
            log, watermark = partition.log, partition.high_watermark
            assert log.transactions.last_stable_offset(watermark) == 2, (
                "a reader that starts now sees the end"
            )
            assert bool(log.transactions.aborted(0, 2)) is not commits
        if version == 5:
            assert (ended.producer_id, ended.producer_epoch) == (who[0], who[1] + 1)
            who = (ended.producer_id, ended.producer_epoch)
        assert await added(client, who, 0) == [ErrorCode.NONE]
        client.close()


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
)
async def test_a_fenced_producer_is_told_in_words_that_it_knows(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async with served(tmp_path) as (_, address):
        client = await connect(address)
        old = await begun(client)
        await begun(client)
        assert (await client.request(ending(old), version=version)).error_code == code
        client.close()


async def test_if_one_partition_does_not_exist_none_is_added(tmp_path: Path) -> None:
    async with served(tmp_path) as (broker, address):
        client = await connect(address)
        who = await begun(client)
        assert await added(client, who, 0, 9) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await added(client, who, 0, topic="nowhere") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert broker.quorum.state().phase is Phase.EMPTY
        client.close()


async def test_internal_topics_are_no_places_to_write_to(tmp_path: Path) -> None:
    async with served(tmp_path) as (broker, address):
        broker.quorum.create(assigned(OFFSETS_TOPIC, [1], [1]))
        broker.catch_up()
        client = await connect(address)
        who = await begun(client)
        assert await added(client, who, 0, topic=OFFSETS_TOPIC) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        client.close()


async def test_an_empty_transactional_id_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, address):
        client = await connect(address)
        assert await added(client, (1, 0), 0, name="") == [ErrorCode.INVALID_REQUEST]
        assert (await client.request(ending((1, 0), name=""))).error_code == ErrorCode.INVALID_REQUEST
        offsets = AddOffsetsToTxnRequest(group_id="g", producer_id=1)
        assert (await client.request(offsets)).error_code == ErrorCode.INVALID_REQUEST
        client.close()


async def test_a_request_that_was_delayed_on_an_old_connection_gets_no_answer(tmp_path: Path) -> None:
    """KAFKA-17754: it would end the next transaction of a client that keeps its epoch."""
    async with served(tmp_path) as (broker, address):
        old = await connect(address)
        who = await begun(old)
        assert await added(old, who, 0) == [ErrorCode.NONE]
        client = await connect(address)
        assert (await client.request(ending(who), version=3)).error_code == ErrorCode.NONE
        assert await added(client, who, 1) == [ErrorCode.NONE]
        with pytest.raises(ConnectionLost):
            await old.request(ending(who), version=3)
        assert broker.quorum.state().phase is Phase.ONGOING
        assert (await client.request(ending(who), version=3)).error_code == ErrorCode.NONE
        client.close()


@pytest.mark.parametrize(
    ("name", "timeout_ms", "code"),
    [
        ("", 1000, ErrorCode.INVALID_REQUEST),
        ("x", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", TIMEOUT_MAX_MS + 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
async def test_what_no_producer_may_ask_for(
    tmp_path: Path, name: str, timeout_ms: int, code: ErrorCode
) -> None:
    async with served(tmp_path) as (_, address):
        client = await connect(address)
        answer = await client.request(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        )
        assert answer.error_code == code
        client.close()


async def test_without_a_quorum_clients_look_for_another_coordinator(tmp_path: Path) -> None:
    async with served(tmp_path) as (broker, address):
        client = await connect(address)
        who = await begun(client)
        broker.quorum.answers = False
        answer = await client.request(ending(who), version=3)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        client.close()


@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE]
)
@pytest.mark.parametrize("version", [3, 5])
async def test_an_end_of_which_the_outcome_is_unknown_is_asked_for_again(
    tmp_path: Path, code: ErrorCode, version: int
) -> None:
    """A client that is refused a commit repeats its work, which may have been committed already."""
    async with served(tmp_path) as (broker, address):
        client = await connect(address)
        who = await begun(client)
        assert await added(client, who, 0) == [ErrorCode.NONE]
        submit = broker.submit

        async def applied_and_lost(command: Command[Any], timeout_ms: int | None = None) -> None:
            await submit(command, timeout_ms)
            raise KafkaError(code)

        with mock.patch.object(broker, "submit", applied_and_lost):
            answer = await client.request(ending(who), version=version)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await client.request(ending(who), version=version)).error_code == ErrorCode.NONE
        assert broker.quorum.state().phase is Phase.COMPLETE_COMMIT
        client.close()


async def test_the_first_offsets_of_all_make_the_topic_for_them(tmp_path: Path) -> None:
    async with served(tmp_path) as (broker, address):
        client = await connect(address)
        producer_id, epoch = await begun(client)
        answer = await client.request(
            AddOffsetsToTxnRequest(
                transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id="g"
            )
        )
        assert answer.error_code == ErrorCode.NONE
        topic = broker.image.topics[OFFSETS_TOPIC]
        place = (topic.id, partition_for("g", len(topic.partitions)))
        assert broker.image.transactions.by_id["x"].writers[producer_id].outstanding == {place}
        client.close()


async def test_partitions_of_several_transactions_are_added_and_verified_together(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, address):
        client = await connect(address)
        first, second = await begun(client, "x"), await begun(client, "y")

        def asked(name: str, who: Identity, index: int, *, verify: bool) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=who[0],
                producer_epoch=who[1],
                verify_only=verify,
                topics=[AddPartitionsToTxnTopic(name="solo", partitions=[index])],
            )

        async def codes(*transactions: AddPartitionsToTxnTransaction) -> list[int]:
            answer = await client.request(
                AddPartitionsToTxnRequest(transactions=list(transactions)), version=5
            )
            return [
                result.partition_error_code
                for found in answer.results_by_transaction
                for topic in found.topic_results
                for result in topic.results_by_partition
            ]

        assert await codes(asked("x", first, 0, verify=False), asked("y", second, 1, verify=False)) == [0, 0]
        assert await codes(asked("x", first, 0, verify=True), asked("x", first, 1, verify=True)) == [
            ErrorCode.NONE,
            ErrorCode.TRANSACTION_ABORTABLE,
        ]
        client.close()


@pytest.mark.parametrize("name", ["x", "y", "\U0010ffff" * 8000], ids=["own", "other", "long"])
async def test_who_may_write_under_another_id_does_not_write_in_this_ones_transaction(
    tmp_path: Path, name: str
) -> None:
    """This holds even for a batch that comes before this broker knows the producer id's owner."""
    async with served(tmp_path) as here:
        quorum = here.broker.quorum
        who = quorum.begin("x", broker=2)
        here.broker.catch_up()
        records = encode_batch(
            [(None, b"", 0)],
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=0,
            transactional=True,
        )
        sent = PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="solo", partition_data=[sent])],
        )
        client = await here.client()
        sending = asyncio.create_task(client.request(request, version=11))
        async with asyncio.timeout(20):
            while not here.broker.pending_writes.waiting:
                await asyncio.sleep(0.001)
        quorum.add(who, here.broker.solo(0), broker=2)
        here.broker.catch_up()
        (answer,) = (await sending).responses[0].partition_responses
        owns = name == "x"
        assert answer.error_code == (ErrorCode.NONE if owns else ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert here.broker.partition().log.log_end_offset == owns
        client.close()
