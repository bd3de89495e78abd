"""Fetches of many partitions are read in turns, and behave as the others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.dataplane.fetching import long_fetches, reading
from ottla.protocol.errors import ErrorCode

from .consumers import Consumer, Shelf, offsets, parts_of, wanted

TOPIC_ID = b"many-partitions!"
PARTITIONS = 20
EVERYTHING = [(index, 0) for index in range(PARTITIONS)]


@pytest.fixture
async def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shelf]:
    """Run a broker for which five partitions count as many."""
    for module in (reading, long_fetches):
        monkeypatch.setattr(module, "PARTITIONS_PER_TURN", 5)
    shelf = Shelf(tmp_path)
    shelf.create("many", TOPIC_ID, PARTITIONS)
    yield shelf
    await shelf.close()


async def settle() -> None:
    """Wait for longer than one pass over all partitions takes."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_it_is_answered_with_all_that_is_there(shelf: Shelf) -> None:
    shelf.append("many", 3)
    shelf.append("many", 17)
    consumer = Consumer(shelf)
    consumer.send([wanted(TOPIC_ID, *EVERYTHING)], max_wait_ms=20_000)
    parts = parts_of(await consumer.answered())
    assert len(parts) == PARTITIONS
    assert [index for (_, index), part in parts.items() if offsets(part)] == [3, 17]


async def test_it_waits_for_records_wherever_they_come(shelf: Shelf) -> None:
    consumer = Consumer(shelf)
    consumer.send([wanted(TOPIC_ID, *EVERYTHING)], max_wait_ms=20_000)
    await settle()
    assert not consumer.adapter.answers
    shelf.append("many", 11)
    parts = parts_of(await consumer.answered())
    assert [index for (_, index), part in parts.items() if offsets(part)] == [11]


async def test_records_that_come_while_it_is_read_are_not_missed(shelf: Shelf) -> None:
    for turns in range(8):
        consumer = Consumer(shelf)
        consumer.send(
            [wanted(TOPIC_ID, *[(index, turns) for index in range(PARTITIONS)])], max_wait_ms=20_000
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        for index in range(PARTITIONS):
            shelf.append("many", index)
        parts = parts_of(await consumer.answered())
        assert any(offsets(part) for part in parts.values()), turns


async def test_it_is_answered_when_its_time_is_over(shelf: Shelf) -> None:
    consumer = Consumer(shelf)
    consumer.send([wanted(TOPIC_ID, *EVERYTHING)], max_wait_ms=50)
    parts = parts_of(await consumer.answered())
    assert len(parts) == PARTITIONS
    assert not any(offsets(part) for part in parts.values())


async def test_many_at_once_share_the_turns_of_the_loop(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty sessions of 2,000 partitions held the loop for 250 ms: each read its slice in the same turn."""
    reads = [0]
    read = reading.FetchReader._read

    def counted(*args: Any) -> reading.Outcome:
        reads[-1] += 1
        return read(*args)

    monkeypatch.setattr(reading.FetchReader, "_read", counted)
    consumers = [Consumer(shelf) for _ in range(6)]
    for consumer in consumers:
        consumer.send([wanted(TOPIC_ID, *EVERYTHING)])
    while not all(consumer.adapter.answers for consumer in consumers):
        reads.append(0)
        await asyncio.sleep(0)
    assert sum(reads) == len(consumers) * PARTITIONS
    assert max(reads) == 5


async def test_a_client_that_leaves_leaves_nothing_behind(shelf: Shelf) -> None:
    consumer = Consumer(shelf)
    consumer.send([wanted(TOPIC_ID, *EVERYTHING)], max_wait_ms=20_000)
    await settle()
    consumer.adapter.close()
    shelf.append("many", 1)
    await settle()
    assert not consumer.adapter.answers


async def test_a_session_that_goes_on_ends_the_wait(shelf: Shelf) -> None:
    consumer = Consumer(shelf)
    consumer.send([wanted(TOPIC_ID, *EVERYTHING)], session_epoch=0)
    session_id = (await consumer.answered()).session_id
    again = [wanted(TOPIC_ID, *EVERYTHING)]
    consumer.send(again, session_id=session_id, session_epoch=1, max_wait_ms=20_000)
    await settle()
    consumer.send(again, session_id=session_id, session_epoch=2, max_wait_ms=50)
    first, second = await consumer.answered(), None
    while second is None:
        await asyncio.sleep(0.005)
        second = consumer.take() if consumer.adapter.answers else None
    assert first.error_code != ErrorCode.NONE
    assert second.error_code == ErrorCode.NONE
