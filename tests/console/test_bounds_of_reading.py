"""Bounds on the reads of a message page: records, bytes, time, and concurrent readers."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.console.pages.messages import reading
from ottla.protocol.errors import ErrorCode, KafkaError

PLACE = TopicPartition("t", 0)
END = 1_000_000


class EndlessConsumer:
    """A consumer that gives ten records of ten bytes at a time."""

    open_ones: ClassVar[int] = 0
    most_open: ClassVar[int] = 0
    gate: ClassVar[asyncio.Event]

    def __init__(self, **_: Any) -> None:
        self._at = 0

    async def __aenter__(self) -> EndlessConsumer:
        kind = type(self)
        kind.open_ones += 1
        kind.most_open = max(kind.most_open, kind.open_ones)
        return self

    async def __aexit__(self, *_: object) -> None:
        type(self).open_ones -= 1

    def assign(self, partitions: object) -> None:
        pass

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._at = offset

    async def getmany(self, **_: Any) -> dict[TopicPartition, list[ConsumerRecord]]:
        await self.gate.wait()
        begin, self._at = self._at, self._at + 10
        return {PLACE: [ConsumerRecord("t", 0, at, 0, None, b"0123456789") for at in range(begin, self._at)]}

    async def position(self, partition: TopicPartition) -> int:
        return self._at


@pytest.fixture(autouse=True)
def consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "Consumer", EndlessConsumer)
    EndlessConsumer.open_ones = EndlessConsumer.most_open = 0
    EndlessConsumer.gate = asyncio.Event()
    EndlessConsumer.gate.set()


async def read(*, passes: bool = False, count: int | None = 5) -> reading.MessagesRead:
    return await reading.read({}, {PLACE: 0}, {PLACE: END}, [lambda *_: passes], count=count)


async def test_a_filter_that_finds_nothing_ends_after_so_many_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "SCANNED_RECORDS_MAX", 100)
    found = await read()
    assert (found.scanned, found.trouble, found.next) == (100, "stopped after 100 records", {PLACE: 100})


@pytest.mark.parametrize(
    ("bound", "passes", "trouble"),
    [
        ("SCANNED_BYTES_MAX", False, "stopped after 0 MiB"),
        ("KEPT_BYTES_MAX", True, "stopped after 0 MiB of records for this page"),
    ],
)
async def test_so_many_bytes_are_enough(
    monkeypatch: pytest.MonkeyPatch, bound: str, passes: bool, trouble: str
) -> None:
    monkeypatch.setattr(reading, bound, 1_000)
    found = await read(passes=passes, count=None)
    assert (found.scanned, found.trouble) == (100, trouble)


async def test_a_cluster_that_gives_nothing_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_S", 0.05)
    EndlessConsumer.gate.clear()
    async with asyncio.timeout(60):
        found = await read()
    assert (found.records, found.trouble, found.next) == ([], "stopped after 0.05 s", {PLACE: 0})


async def test_few_pages_read_at_a_time() -> None:
    EndlessConsumer.gate.clear()
    pages = [asyncio.create_task(read(passes=True)) for _ in range(3 * reading.READERS_MAX)]
    async with asyncio.timeout(60):
        while EndlessConsumer.open_ones < reading.READERS_MAX:
            await asyncio.sleep(0)
        EndlessConsumer.gate.set()
        found = await asyncio.gather(*pages)
    assert EndlessConsumer.most_open == reading.READERS_MAX
    assert [len(messages.records) for messages in found] == [5] * len(pages)


@pytest.mark.parametrize("failure", [KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "gone"), None])
async def test_outcomes_that_cannot_be_had_in_time_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, failure: KafkaError | None
) -> None:
    asked: list[object] = []

    async def outcomes(_: object, stretches: object, *, bytes_max: int) -> object:
        asked.append((stretches, bytes_max))
        if failure is not None:
            raise failure
        return await asyncio.Future[None]()

    monkeypatch.setattr(EndlessConsumer, "transaction_outcomes", outcomes, raising=False)
    monkeypatch.setattr(reading, "OUTCOMES_S", 0.05)
    records = [ConsumerRecord("t", 0, offset, 0, None, b"") for offset in (7, 5, 6)]
    async with asyncio.timeout(60):
        assert await reading.outcomes_of({}, records) == {}
        assert await reading.outcomes_of({}, []) == {}
    assert asked == [({PLACE: (5, 8)}, reading.OUTCOMES_BYTES_MAX)]
