"""A share consumer whose leaders move, break connections or refuse it, as in the scenarios of franz-go's
`share_churn_test.go`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from ottla import AuthorizationFailed, ShareConsumer, ShareTask, TopicPartition
from ottla.protocol.errors import ErrorCode

from .fake_share_brokers import TOPIC, ShareBrokers, share_brokers


@asynccontextmanager
async def member(brokers: ShareBrokers, **options: Any) -> AsyncIterator[ShareConsumer]:
    """Return a member of the group. Its metadata is too young for a refresh without a reason."""
    defaults = {"bootstrap_servers": brokers.bootstrap, "group_id": "g", "drain_s": 0.0}
    async with asyncio.timeout(30), ShareConsumer(TOPIC, **(defaults | options)) as queue:
        yield queue


async def worked_off(queue: ShareConsumer, count: int) -> list[bytes]:
    """Accept the next tasks, and return their values. Each read that raises fails the test."""
    values = []
    for _ in range(count):
        async with await queue.getone() as task:
            values.append(task.value)
    await queue.flush()
    return values


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


async def test_a_moved_leader_that_nobody_names_is_found_in_the_metadata() -> None:
    async with share_brokers(brokers=2) as brokers, member(brokers) as queue:
        brokers.write(b"0", b"1", b"2")
        assert await worked_off(queue, 3) == [b"0", b"1", b"2"]
        asked = brokers.metadata_requests
        brokers.move_leaders()
        brokers.write(b"3", b"4", b"5")
        assert await worked_off(queue, 3) == [b"3", b"4", b"5"]
        assert brokers.metadata_requests > asked


async def test_a_leader_that_an_answer_names_is_asked_though_the_metadata_is_outdated() -> None:
    async with share_brokers(brokers=2) as brokers, member(brokers) as queue:
        brokers.names_leaders = True
        brokers.write(b"0", b"1", b"2")
        assert await worked_off(queue, 3) == [b"0", b"1", b"2"]
        brokers.keep_metadata()
        brokers.move_leaders()
        brokers.write(b"3", b"4", b"5")
        assert await worked_off(queue, 3) == [b"3", b"4", b"5"]
        assert brokers.fetches[-1].broker == 1


async def test_a_broken_connection_is_a_reason_to_ask_for_the_leader() -> None:
    async with share_brokers(brokers=2) as brokers, member(brokers) as queue:
        brokers.write(b"0", b"1", b"2")
        assert await worked_off(queue, 3) == [b"0", b"1", b"2"]
        brokers.move_leaders()
        brokers.dead.add(0)
        brokers.write(b"3", b"4", b"5")
        assert await worked_off(queue, 3) == [b"3", b"4", b"5"]


async def test_a_refused_request_is_repeated_after_a_pause_each_time() -> None:
    pause_s = 0.1
    async with share_brokers() as brokers:
        brokers.refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
        async with member(brokers, retry_backoff_max_ms=round(pause_s * 1000)) as queue:
            for _ in range(4):
                with pytest.raises(AuthorizationFailed, match="READ"):
                    await queue.getone()
            times_s = [fetched.at_s for fetched in brokers.fetches]
            assert all(after_s - before_s > 0.9 * pause_s for before_s, after_s in pairwise(times_s))
            brokers.refusal = ErrorCode.NONE
            brokers.write(b"0")
            assert await worked_off(queue, 1) == [b"0"]


async def test_a_partition_that_cannot_be_is_left_out_of_an_assignment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with share_brokers() as brokers, member(brokers) as queue:
        brokers.write(b"0")
        assert await worked_off(queue, 1) == [b"0"]
        asked = brokers.metadata_requests
        brokers.assignment = [0, -1]
        beats = brokers.heartbeats
        await until(lambda: brokers.heartbeats > beats + 1)
        brokers.write(b"1", b"2")
        assert await worked_off(queue, 2) == [b"1", b"2"]
        assert queue.assignment() == {TopicPartition(TOPIC, 0)}
        assert "partition -1" in caplog.text
        assert brokers.metadata_requests == asked, "its leader is not looked for"


async def test_a_partition_that_is_named_for_its_acknowledgements_is_forgotten_again() -> None:
    """Brokers add each partition that a fetch names to the session. A member that forgot this got the records of
    partitions for ever that it did not want."""
    held: list[ShareTask] = []
    async with share_brokers(partitions=2) as brokers, member(brokers, max_in_flight=50) as queue:
        brokers.write(*[b"0"] * 10)
        while len(held) < 10:
            held.append(await queue.getone())
        brokers.assignment = [1]
        reading = asyncio.ensure_future(queue.getone())
        await until(lambda: any(0 in fetched.forgotten for fetched in brokers.fetches))
        brokers.write(*[b"1"] * 100, partition=1)
        await (await reading).accept()
        for task in held:
            acknowledged = asyncio.ensure_future(task.accept())
            for _ in range(5):
                async with await queue.getone() as other:
                    assert other.partition == 1
            await acknowledged
        with_fetches = [fetched for fetched in brokers.fetches if 0 in fetched.acknowledged]
        assert with_fetches, "some acknowledgements came with a fetch"
        assert all(0 in fetched.forgotten for fetched in with_fetches)
        assert brokers.sessions[0] == {1}
        assert brokers.windows[0].finished == {*range(10)}
