"""Reads of a consumer that has neither a subscription nor partitions: they raise, since nothing would ever come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.client import sync
from ottla.client.consumer import Consumer
from ottla.client.records import TopicPartition
from tests.client.fake_cluster import fake_cluster

PLACE = TopicPartition("t", 0)
MESSAGE = r"nothing to read.*subscribe\(\).*assign\(\)"


async def next_one(consumer: Consumer) -> object:
    return await anext(aiter(consumer))


ASYNC: dict[str, Callable[[Consumer], Awaitable[object]]] = {
    "getone": lambda consumer: consumer.getone(),
    "getmany": lambda consumer: consumer.getmany(timeout_ms=None),
    "getmany at once": lambda consumer: consumer.getmany(),
    "async for": next_one,
    "columns": lambda consumer: consumer.fetch_arrow(timeout_ms=None),
    "transactions": lambda consumer: anext(consumer.transactions()),
}
SYNC: dict[str, Callable[[sync.Consumer], object]] = {
    "getone": lambda consumer: consumer.getone(timeout_ms=30_000),
    "getmany": lambda consumer: consumer.getmany(timeout_ms=30_000),
    "for": lambda consumer: next(iter(consumer)),
    "columns": lambda consumer: consumer.fetch_arrow(timeout_ms=30_000),
    "transactions": lambda consumer: next(consumer.transactions()),
}


def needs(how: str) -> None:
    if how == "columns":
        pytest.importorskip("pyarrow")


@pytest.mark.parametrize("how", ASYNC)
@pytest.mark.parametrize("assigned", ["never", "nothing", "unsubscribed"])
async def test_a_read_raises(how: str, assigned: str) -> None:
    needs(how)
    async with fake_cluster(brokers=1) as cluster, Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        if assigned == "nothing":
            consumer.assign([])
        elif assigned == "unsubscribed":
            consumer.assign([PLACE])
            await consumer.unsubscribe()
        async with asyncio.timeout(25):
            with pytest.raises(RuntimeError, match=MESSAGE):
                await ASYNC[how](consumer)


@pytest.mark.parametrize("how", SYNC)
async def test_a_read_without_an_event_loop_raises(how: str) -> None:
    needs(how)

    def read() -> None:
        with (
            sync.Consumer(bootstrap_servers=cluster.bootstrap) as consumer,
            pytest.raises(RuntimeError, match=MESSAGE),
        ):
            SYNC[how](consumer)

    async with fake_cluster(brokers=1) as cluster:
        await asyncio.to_thread(read)


async def test_a_read_that_waits_is_told_when_all_is_given_up() -> None:
    async with fake_cluster(brokers=1) as cluster, Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([PLACE])
        reading = asyncio.ensure_future(consumer.getone())
        await asyncio.sleep(0)
        await consumer.unsubscribe()
        async with asyncio.timeout(25):
            with pytest.raises(RuntimeError, match=MESSAGE):
                await reading


async def test_a_consumer_that_is_given_something_reads() -> None:
    async with fake_cluster(brokers=1) as cluster, Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        with pytest.raises(RuntimeError, match=MESSAGE):
            await consumer.getmany()
        consumer.assign([PLACE])
        assert await consumer.getmany() == {}
