"""Requests with many elements: others have their turns meanwhile, order is kept, and absurd ones are refused."""

from __future__ import annotations

import asyncio
import struct
from contextlib import ExitStack
from typing import Any

import pytest

from ottla.dataplane.server import ClientRequest, HandlerTable, Server, handles
from ottla.dataplane.server.handler import ELEMENTS_PER_TURN
from ottla.dataplane.server.long_requests import ELEMENTS_MAX
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

from .conftest import read_frame, until


def _refused(message: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=name, error_code=error.code) for name in message.topic_names]
    )


class Handlers:
    """Note what they are asked, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.records: list[bytes] = []

    @handles(ProduceRequest, 3, 9)
    def produce(self, request: ClientRequest, message: ProduceRequest) -> ProduceResponse:
        partitions = message.topic_data[0].partition_data
        self.asked.append(("produce", len(partitions)))
        self.records.append(bytes(partitions[-1].records or b""))
        return ProduceResponse()

    @handles(FetchRequest, 4, 17)
    def fetch(self, request: ClientRequest, message: FetchRequest) -> FetchResponse:
        self.asked.append(("fetch", sum(len(topic.partitions) for topic in message.topics)))
        return FetchResponse()

    @handles(DeleteTopicsRequest, 1, 5, on_error=_refused, elements_max=20_000)
    async def delete(self, request: ClientRequest, message: DeleteTopicsRequest) -> DeleteTopicsResponse:
        self.asked.append(("delete", len(message.topic_names)))
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(name=name) for name in message.topic_names]
        )

    @handles(HeartbeatRequest, 0, 4)
    def heartbeat(self, request: ClientRequest, message: HeartbeatRequest) -> HeartbeatResponse:
        self.asked.append(("heartbeat", 0))
        return HeartbeatResponse()


@pytest.fixture
async def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
async def server(cleanup: ExitStack, handlers: Handlers) -> Server:
    server = Server(HandlerTable(handlers))
    server.listen("CLIENTS", "127.0.0.1", 0)
    server.start()
    cleanup.callback(server.close)
    return server


async def connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.listeners[0].port)


async def ask(server: Server, message: Any, version: int) -> Any:
    """Return the answer; None if the server hangs up."""
    reader, writer = await connect(server)
    writer.write(encode_request(message, version, 1, None))
    try:
        frame = await asyncio.wait_for(read_frame(reader), 60)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    finally:
        writer.close()
    return decode_response(type(message), frame, version)[1]


def fetch_of(partitions: int) -> FetchRequest:
    return FetchRequest(
        topics=[
            FetchTopic(
                topic="unknown", partitions=[FetchPartition(partition=index) for index in range(partitions)]
            )
        ]
    )


def produce_of(partitions: int, records: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])


async def test_others_have_turns_while_a_long_request_is_read(server: Server, handlers: Handlers) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += bool(server.router.reading)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    answer = await ask(server, fetch_of(9_000), 11)
    counting.cancel()
    assert answer.error_code == ErrorCode.NONE
    assert handlers.asked == [("fetch", 9_000)]
    assert turns >= 5, "of the loop, in each of which at most some hundred elements are read"


async def test_long_requests_that_follow_each_other_are_each_read_from_their_own_bytes(
    server: Server, handlers: Handlers
) -> None:
    """The end of one must not let go of the buffer in which the next is being read."""
    reader, writer = await connect(server)
    all_records = [b"records of request %d" % number * (number + 1) for number in range(8)]
    for number, records in enumerate(all_records):
        writer.write(encode_request(produce_of(3_000 + 500 * number, records), 9, number, None))
    for number in range(len(all_records)):
        assert struct.unpack_from(">i", await asyncio.wait_for(read_frame(reader), 60))[0] == number
    writer.close()
    assert handlers.records == all_records
    assert [count for _, count in handlers.asked] == [3_000 + 500 * number for number in range(8)]
    assert server.budget.held_bytes == 0


async def test_requests_of_a_connection_are_handled_in_their_order(
    server: Server, handlers: Handlers
) -> None:
    reader, writer = await connect(server)
    long, short = produce_of(5_000, b"long" * 10), produce_of(1, b"short")
    requests = [long, short, HeartbeatRequest(), long, HeartbeatRequest()]
    for number, message in enumerate(requests):
        version = 9 if isinstance(message, ProduceRequest) else 4
        writer.write(encode_request(message, version, number, None))
    for number in range(len(requests)):
        assert struct.unpack_from(">i", await asyncio.wait_for(read_frame(reader), 60))[0] == number
    writer.close()
    assert [name for name, _ in handlers.asked] == ["produce", "produce", "heartbeat", "produce", "heartbeat"]
    assert handlers.records == [b"long" * 10, b"short", b"long" * 10], "each from its own bytes"
    assert server.budget.held_bytes == 0


async def test_more_elements_than_a_handler_takes_are_a_violation_of_policy(
    server: Server, handlers: Handlers
) -> None:
    names = [f"topic-{number}" for number in range(20_001)]
    answer = await ask(server, DeleteTopicsRequest(topic_names=names), 5)
    assert {result.error_code for result in answer.responses} == {ErrorCode.POLICY_VIOLATION}
    assert [result.name for result in answer.responses] == names
    answer = await ask(server, DeleteTopicsRequest(topic_names=names[1:]), 5)
    assert {result.error_code for result in answer.responses} == {ErrorCode.NONE}
    answer = await ask(server, fetch_of(ELEMENTS_PER_TURN + 1), 11)
    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    assert handlers.asked == [("delete", 20_000)]


async def test_absurdly_many_elements_are_not_read(server: Server, handlers: Handlers) -> None:
    reader, writer = await connect(server)
    names = [str(number) for number in range(ELEMENTS_MAX + 1)]
    assert await ask(server, DeleteTopicsRequest(topic_names=names), 5) is None
    writer.write(encode_request(HeartbeatRequest(), 0, 1, None))
    await asyncio.wait_for(read_frame(reader), 60)
    writer.close()
    assert handlers.asked == [("heartbeat", 0)]


async def test_clients_that_leave_while_their_requests_are_read_cost_nothing(
    server: Server, handlers: Handlers
) -> None:
    request = encode_request(fetch_of(9_000), 11, 1, None)
    for _ in range(10):
        _, writer = await connect(server)
        writer.write(request)
        await writer.drain()
        writer.transport.abort()
    await until(lambda: not server.connections and not server.router.reading)
    assert (server.budget.held_bytes, server.pool.lent_bytes) == (0, 0)
    assert (await ask(server, HeartbeatRequest(), 0)).error_code == ErrorCode.NONE


async def test_many_long_requests_at_once_are_all_answered(server: Server, handlers: Handlers) -> None:
    answers = await asyncio.gather(*(ask(server, fetch_of(3_000), 11) for _ in range(20)))
    assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    assert handlers.asked == [("fetch", 3_000)] * 20
