"""Limits on open connections and on their rate: of all listeners, of one listener, and of an address."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from ottla.dataplane.quotas.windows import QuotaWindows
from ottla.dataplane.server import ClientRequest, HandlerTable, Server, ServerConfig, handles
from ottla.dataplane.server.admissions import AdmissionLimits, Admissions
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.headers import encode_request
from ottla.protocol.settings.address_limits import AddressLimits

from .conftest import read_frame, until

CLIENTS, BROKERS = "CLIENTS", "BROKERS"
ADDRESS, OTHER = "10.0.0.1", "10.0.0.2"


class Handlers:
    @handles(HeartbeatRequest, 0, 4)
    def heartbeat(self, request: ClientRequest, message: HeartbeatRequest) -> HeartbeatResponse | None:
        return None if message.group_id == "later" else HeartbeatResponse()


def serving(cleanup: ExitStack, limits: AdmissionLimits) -> Server:
    server = Server(
        HandlerTable(Handlers()), ServerConfig(quota_windows=QuotaWindows(samples=2, sample_ms=300))
    )
    for name in (CLIENTS, BROKERS):
        server.listen(name, "127.0.0.1", 0)
    server.admissions.limits = limits
    server.start()
    cleanup.callback(server.close)
    return server


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def is_served(self) -> bool:
        self.writer.write(encode_request(HeartbeatRequest(), 4, 1, None))
        try:
            return bool(await asyncio.wait_for(read_frame(self.reader), 60))
        except (asyncio.IncompleteReadError, ConnectionError):
            return False

    def wait_for_an_answer(self) -> None:
        self.writer.write(encode_request(HeartbeatRequest(group_id="later"), 4, 1, None))


async def connect(server: Server, listener: str = CLIENTS) -> Peer:
    port = next(each.port for each in server.listeners if each.name == listener)
    return Peer(*await asyncio.open_connection("127.0.0.1", port))


def test_what_is_open_is_counted_by_listener_and_address() -> None:
    limits = AdmissionLimits(4, 2, AddressLimits(f"{OTHER}:1"), most_of_listener={BROKERS: 1})
    admissions = Admissions(limits, QuotaWindows())
    assert admissions.refusal(CLIENTS, OTHER) is None
    admissions.enter(CLIENTS, OTHER)
    assert admissions.refusal(CLIENTS, OTHER) == "max.connections.per.ip.overrides"
    admissions.enter(BROKERS, ADDRESS)
    assert admissions.refusal(BROKERS, "10.0.0.3") == "listener.name.brokers.max.connections"
    admissions.enter(CLIENTS, ADDRESS)
    assert admissions.refusal(CLIENTS, ADDRESS) == "max.connections.per.ip"
    admissions.enter(CLIENTS, "10.0.0.3")
    assert admissions.refusal(CLIENTS, "10.0.0.4") == "max.connections"
    admissions.leave(CLIENTS, OTHER)
    assert admissions.refusal(CLIENTS, OTHER) is None


def test_brokers_are_not_counted_against_what_is_left_for_clients() -> None:
    limits = AdmissionLimits(1, rate=1, listener_of_brokers=BROKERS)
    admissions = Admissions(limits, QuotaWindows(samples=2, sample_ms=1000))
    for _ in range(2):
        assert admissions.refusal(BROKERS, ADDRESS) is None
        admissions.enter(BROKERS, ADDRESS)
    assert admissions.is_full_beyond
    assert admissions.refusal(CLIENTS, ADDRESS) == "max.connections"
    assert [admissions.came(BROKERS, 0) for _ in range(5)] == [0] * 5


def test_a_rate_holds_over_the_windows() -> None:
    limits = AdmissionLimits(rate=1000, rate_of_listener={CLIENTS: 10})
    admissions = Admissions(limits, QuotaWindows(samples=11, sample_ms=1000))
    now_ms, accepted = 0.0, 0
    while now_ms < 60_000:
        accepted += 1
        now_ms += admissions.came(CLIENTS, now_ms)
        now_ms += 1
    assert accepted == pytest.approx(600, rel=0.05), "after the first window, ten a second"


async def test_a_listener_has_a_limit_of_its_own(
    cleanup: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    server = serving(cleanup, AdmissionLimits(most_of_listener={CLIENTS: 1}))
    first = await connect(server)
    assert await first.is_served()
    assert not await (await connect(server)).is_served()
    elsewhere = await connect(server, BROKERS)
    assert await elsewhere.is_served()
    first.writer.close()
    await until(lambda: server.admissions.open == 1)
    assert await (await connect(server)).is_served()
    await until(lambda: "refused connections: 1 by listener.name.clients.max.connections" in caplog.text)


async def test_a_broker_takes_the_place_of_the_client_that_was_idle_longest(cleanup: ExitStack) -> None:
    server = serving(cleanup, AdmissionLimits(3, listener_of_brokers=BROKERS))
    waiting, idle, busy = [await connect(server) for _ in range(3)]
    waiting.wait_for_an_answer()
    await until(lambda: any(each.owes_replies for each in server.connections))
    assert await idle.is_served()
    assert await busy.is_served()
    assert not await (await connect(server)).is_served(), "a client is refused"
    broker = await connect(server, BROKERS)
    assert await broker.is_served()
    assert not await idle.is_served()
    assert await busy.is_served()
    assert len(server.connections) == 3
    assert server.admissions.open == 3


async def test_who_connects_too_fast_waits_and_is_served(cleanup: ExitStack) -> None:
    server = serving(cleanup, AdmissionLimits(rate_of_listener={CLIENTS: 10}))
    peers = [await connect(server) for _ in range(8)]
    assert all(await asyncio.gather(*(peer.is_served() for peer in peers[:3])))
    assert len(server.connections) < 8, "the others wait to be accepted"
    assert await (await connect(server, BROKERS)).is_served()
    assert all(await asyncio.gather(*(peer.is_served() for peer in peers)))
