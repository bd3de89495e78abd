"""Clients used before their start, after their stop, twice, or on another event loop: no call hangs, and no record is
lost silently.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import ottla.sync
from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.client.failures import ClientClosed, NoBrokerReachable
from ottla.client.producer import Producer
from tests.client.fake_cluster import FakeCluster, fake_cluster
from tests.client.fake_coordinator import PLACE
from tests.client.fake_transactions import transactional_cluster

Client = Producer | Consumer | Admin
NAMES = {Producer: "producer", Consumer: "consumer", Admin: "admin client"}


def uses(client: Client) -> list[Callable[[], Awaitable[Any]]]:
    """Return calls that send requests to the cluster."""
    match client:
        case Producer():
            return [
                lambda: client.send("t", b""),
                lambda: client.send_and_wait("t", b""),
                client.flush,
                lambda: client.partitions_for("t"),
            ]
        case Consumer():
            return [
                client.getone,
                client.getmany,
                client.commit,
                lambda: client.committed(PLACE),
                lambda: client.position(PLACE),
                lambda: client.end_offsets([PLACE]),
                lambda: client.partitions_for("t"),
                lambda: anext(client.transactions()),
            ]
        case Admin():
            return [client.list_topics, client.describe_cluster]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as running:
        yield running


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


@pytest.mark.parametrize("kind", NAMES)
async def test_a_plain_block_is_refused_with_the_right_form(cluster: FakeCluster, kind: Any) -> None:
    client = kind(bootstrap_servers=cluster.bootstrap)
    name = kind.__name__
    message = f"{name} is a client for asyncio: use `async with`, or ottla.sync.{name} without asyncio"
    with pytest.raises(TypeError, match=exactly(message)), client:
        pass


async def test_a_subclass_of_a_program_is_sent_to_the_class_that_there_is(cluster: FakeCluster) -> None:
    class Mine(Producer):
        """A client of a program's."""

    client: Any = Mine(bootstrap_servers=cluster.bootstrap)
    message = "Mine is a client for asyncio: use `async with`, or ottla.sync.Producer without asyncio"
    with pytest.raises(TypeError, match=exactly(message)), client:
        pass


async def test_a_plain_loop_over_a_consumer_is_refused_with_the_right_form(cluster: FakeCluster) -> None:
    consumer: Any = Consumer(bootstrap_servers=cluster.bootstrap)
    with pytest.raises(TypeError, match=r"use `async for`, or ottla\.sync\.Consumer without asyncio"):
        list(consumer)


@pytest.mark.parametrize("kind", NAMES)
async def test_before_the_start(cluster: FakeCluster, kind: Any) -> None:
    client = kind(bootstrap_servers=cluster.bootstrap)
    message = (
        f"the {NAMES[kind]} was not started: use it as a block (`async with`; `with` in ottla.sync), or await its "
        "start() before"
    )
    for use in uses(client):
        with pytest.raises(RuntimeError, match=exactly(message)):
            await use()
    await client.stop()
    with pytest.raises(ClientClosed, match=re.escape(f"the {NAMES[kind]} was stopped: make another one")):
        await client.start()


@pytest.mark.parametrize("kind", NAMES)
async def test_started_and_stopped_twice(cluster: FakeCluster, kind: Any) -> None:
    async with kind(bootstrap_servers=cluster.bootstrap) as client:
        message = (
            f"the {NAMES[kind]} was started before; a block starts it too, and needs no start() of its own"
        )
        with pytest.raises(RuntimeError, match=exactly(message)):
            await client.start()
        if kind is not Consumer:
            await uses(client)[0]()  # the client goes on as before
        await client.stop()
        await client.stop()
    for use in uses(client):
        with pytest.raises(ClientClosed, match=f"the {NAMES[kind]} was stopped"):
            await use()


@pytest.mark.parametrize("kind", NAMES)
async def test_a_start_that_failed(kind: Any) -> None:
    client = kind(bootstrap_servers="127.0.0.1:1", request_timeout_ms=200)
    if kind is Consumer:
        client.subscribe(["t"])
    with pytest.raises(NoBrokerReachable):
        await client.start()
    with pytest.raises(ClientClosed, match="was stopped: make another one"):
        await client.start()
    await client.stop()


async def test_what_a_loop_that_ended_left_unread_is_not_read_any_more(cluster: FakeCluster) -> None:
    async with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        pass
    assert [record async for record in consumer] == []


@pytest.mark.parametrize("kind", NAMES)
async def test_on_another_event_loop(cluster: FakeCluster, kind: Any) -> None:
    async with kind(bootstrap_servers=cluster.bootstrap) as client:
        if kind is Consumer:
            client.assign([PLACE])
        message = (
            f"the {NAMES[kind]} was started on another event loop: a client is used, and stopped, on the loop on which "
            "it was started; those of ottla.sync may be used anywhere"
        )
        for use in [*uses(client), client.stop]:

            async def elsewhere(use: Callable[[], Awaitable[Any]] = use) -> None:
                await use()

            with pytest.raises(RuntimeError, match=exactly(message)):
                await asyncio.to_thread(asyncio.run, elsewhere())
        if kind is Consumer:
            for now in (
                lambda: client.seek(PLACE, 0),
                lambda: client.pause(PLACE),
                lambda: client.assign([]),
                lambda: client.subscribe(["t"]),
                client.unsubscribe,
            ):
                with pytest.raises(RuntimeError, match=exactly(message)):
                    await asyncio.to_thread(now)
            assert client.assignment() == {PLACE}


@pytest.mark.parametrize("kind", NAMES)
async def test_when_its_event_loop_is_closed(cluster: FakeCluster, kind: Any) -> None:
    """This happens with asyncio.run for each step of a script."""
    client = kind(bootstrap_servers=cluster.bootstrap)
    await asyncio.to_thread(asyncio.run, client.start())
    for use in [*uses(client), client.stop]:
        with pytest.raises(
            RuntimeError, match="on another event loop, which is closed by now with all that was under"
        ):
            await use()


async def test_transactions_live_on_the_loop_of_their_producer() -> None:
    async with transactional_cluster(2) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap, transactional_id="me")
        with pytest.raises(RuntimeError, match="the producer was not started"):
            await producer.begin_transaction()
        async with producer:
            transaction = await producer.transaction().begin()
            for use in (transaction.commit, transaction.abort, producer.begin_transaction):

                async def elsewhere(use: Callable[[], Awaitable[Any]] = use) -> None:
                    await use()

                with pytest.raises(
                    RuntimeError, match="the producer was started on another event loop: a cli"
                ):
                    await asyncio.to_thread(asyncio.run, elsewhere())
            await producer.send("t", b"1")
            await transaction.commit()
        with pytest.raises(ClientClosed, match="the producer was stopped"):
            await producer.begin_transaction()


async def test_blocking_clients_say_the_same() -> None:
    for client, use in (
        (producer := ottla.sync.Producer(), lambda: producer.send("t", b"")),
        (consumer := ottla.sync.Consumer(), lambda: consumer.getone()),
        (admin := ottla.sync.Admin(), lambda: admin.list_topics()),
    ):
        with pytest.raises(RuntimeError, match="was not started: use it as a block"):
            use()
        client.stop()
        with pytest.raises(ClientClosed, match="was stopped"):
            use()
