"""Sessions that are revoked or expire while their requests are not answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ottla.dataplane.handlers.sasl import SaslHandlers
from ottla.dataplane.server import ClientRequest, HandlerTable, Server, connection, handles
from ottla.dataplane.server.authentication import AuthenticationSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.headers import decode_response
from ottla.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.wire.schema import Message
from tests.dataplane.server.conftest import read_frame, until
from tests.dataplane.server.test_authentication import LISTENER, Expiring, Handlers, Peer, connect

ANN, BOB = b"ann:60000", b"bob:60000"


class Waiting:
    """Handlers of a waiting request, and of a request that changes state; the test answers both."""

    def __init__(self) -> None:
        self.fetches: list[ClientRequest] = []
        self.commits: list[ClientRequest] = []

    @handles(FetchRequest, 12, 12, waits_for_others=True)
    def fetch(self, request: ClientRequest, message: FetchRequest) -> None:
        self.fetches.append(request)

    @handles(OffsetCommitRequest, 8, 8)
    def commit(self, request: ClientRequest, message: OffsetCommitRequest) -> None:
        self.commits.append(request)


@asynccontextmanager
async def server(waiting: Waiting) -> AsyncIterator[Server]:
    table = HandlerTable(Handlers(), waiting)
    broker = Server(table)
    table.add(SaslHandlers(broker.authentications))
    broker.authentication = {LISTENER: AuthenticationSettings({"EXPIRING": Expiring()}, failure_delay_ms=20)}
    broker.listen(LISTENER, "127.0.0.1", 0)
    broker.start()
    try:
        yield broker
    finally:
        broker.close()


async def logged_in(broker: Server, token: bytes = ANN) -> Peer:
    peer = await connect(broker)
    assert (await peer.log_in("EXPIRING", token)).error_code == ErrorCode.NONE
    return peer


def end_sessions_of_ann(broker: Server) -> None:
    broker.authentications.end(lambda session: session.principal.name == "ann", "it was deleted")


async def test_a_fetch_that_waits_is_not_answered_once_its_session_is_ended() -> None:
    waiting = Waiting()
    async with server(waiting) as broker:
        ann, bob = await logged_in(broker), await logged_in(broker, BOB)
        for peer in (ann, bob):
            peer.send(FetchRequest(), 12)
        await until(lambda: len(waiting.fetches) == 2)
        end_sessions_of_ann(broker)
        for request in waiting.fetches:
            request.reply(FetchResponse(session_id=7))
        assert await ann.is_closed()
        answer = decode_response(FetchRequest, memoryview(await read_frame(bob.reader)), 12)[1]
        assert answer.session_id == 7


async def test_a_change_that_was_made_is_acknowledged_and_nothing_after_it() -> None:
    waiting = Waiting()
    async with server(waiting) as broker:
        ann = await logged_in(broker)
        messages: list[tuple[Message, int]] = [
            (OffsetCommitRequest(), 8), (FetchRequest(), 12), (OffsetCommitRequest(), 8),
        ]  # fmt: skip
        for message, version in messages:
            ann.send(message, version)  # type: ignore[arg-type]
        await until(lambda: len(waiting.commits) == 2 and len(waiting.fetches) == 1)
        end_sessions_of_ann(broker)
        ann.send(FetchRequest(), 12)
        waiting.commits[1].reply(OffsetCommitResponse())
        waiting.fetches[0].reply(FetchResponse())
        waiting.commits[0].reply(OffsetCommitResponse())
        answer = decode_response(OffsetCommitRequest, memoryview(await read_frame(ann.reader)), 8)[1]
        assert answer.topics == []
        assert await ann.is_closed()
        assert len(waiting.fetches) == 1, "nothing is read any more"


async def test_an_ended_session_waits_only_so_long_for_its_last_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "LAST_ANSWERS_S", 0.05)
    waiting = Waiting()
    async with server(waiting) as broker:
        ann = await logged_in(broker)
        ann.send(OffsetCommitRequest(), 8)
        await until(lambda: bool(waiting.commits))
        end_sessions_of_ann(broker)
        assert await ann.is_closed()
        await until(lambda: not broker.connections)


async def test_the_end_of_a_sessions_time_is_told_to_who_waits_under_it() -> None:
    waiting = Waiting()
    async with server(waiting) as broker:
        ann = await logged_in(broker, b"ann:300")
        ann.send(FetchRequest(), 12)
        await until(lambda: bool(waiting.fetches))
        over = asyncio.Event()
        waiting.fetches[0].connection.on_expiry = over.set
        await asyncio.wait_for(over.wait(), 60)
        waiting.fetches[0].reply(FetchResponse(session_id=7))
        answer = decode_response(FetchRequest, memoryview(await read_frame(ann.reader)), 12)[1]
        assert answer.session_id == 7, "its client may log in again"
