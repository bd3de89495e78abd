"""Answers by the short cut equal those of the full path, byte for byte."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from ottla.dataplane.security.principal import USER, Principal
from ottla.dataplane.server.connection import ClientConnection
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record_batch import TRANSACTIONAL_FLAG

from ..replication.harness import batch
from .consumers import OTHER_ID, OWN_ID, Consumer, Shelf, parts_of, wanted

ID = b"t" * 16
RECORDS = 12


def answer(consumer: Consumer, offset: int, **fields: int) -> bytes:
    by_id = consumer.version >= 13
    topic = wanted(ID if by_id else bytes(16), (0, offset), name="" if by_id else "t", **fields)
    consumer.send([topic], max_bytes=400)
    return consumer.adapter.answers.pop()


@pytest.mark.parametrize("version", range(4, 19))
async def test_the_same_bytes(tmp_path: Path, version: int) -> None:
    shelf = Shelf(tmp_path)
    shelf.create("t", ID, 1)
    for number in range(RECORDS):
        shelf.append("t", 0, b"v" * (50 * number), count=2)
    fields = {"current_leader_epoch": 0} if version >= 9 else {}
    repeating = Consumer(shelf, version)
    assert repeating.adapter.shortcut is None
    for offset in (3, 0, 4, 2 * RECORDS - 1, 7, 2 * RECORDS, 2 * RECORDS + 1, 5):
        assert answer(repeating, offset, **fields) == answer(Consumer(shelf, version), offset, **fields)
        assert (repeating.adapter.shortcut is None) == (version < 10)
    await shelf.close()


async def test_what_does_not_fit_goes_the_long_way(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.create("t", ID, 1)
    shelf.append("t")
    consumer = Consumer(shelf)

    def error(**fields: int) -> int:
        return parts_of(consumer.fetch([wanted(ID, (0, 0), **fields)]))[ID, 0].error_code

    assert error(current_leader_epoch=0) == error(current_leader_epoch=0) == 0
    assert error(current_leader_epoch=1) == ErrorCode.UNKNOWN_LEADER_EPOCH
    shelf.tell(shelf.state(ID, 0, epoch=1))
    assert error(current_leader_epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
    assert error(current_leader_epoch=1) == error(current_leader_epoch=1) == 0
    shelf.replica("t").record_deletion.trim(1)
    assert error(current_leader_epoch=1) == ErrorCode.OFFSET_OUT_OF_RANGE
    shelf.tell(shelf.state(ID, 0, leader=OTHER_ID, epoch=2, isr=[OTHER_ID, OWN_ID]))
    assert error() == ErrorCode.OFFSET_OUT_OF_RANGE, "a follower with this log start"
    shelf.delete(ID)
    assert error() == ErrorCode.UNKNOWN_TOPIC_ID
    await shelf.close()


async def test_who_authenticates_anew_or_has_to_goes_the_long_way(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.create("t", ID, 1)
    shelf.append("t")
    consumer = Consumer(shelf)
    adapter, frames = consumer.adapter, []

    def taken() -> bool:
        """Return whether the short cut takes the frame that it was made from."""
        answer(consumer, 0)
        frames.append(consumer.frame)
        shortcut = adapter.shortcut
        assert shortcut is not None
        return shortcut(cast(ClientConnection, adapter), frames[-1], asyncio.get_running_loop().time())

    assert taken()
    adapter.session = replace(adapter.session, principal=Principal(USER, "ann"))
    before = adapter.shortcut
    assert taken()
    assert adapter.shortcut is not before, "the long way has left another"
    adapter.session = replace(adapter.session)
    assert not before(cast(ClientConnection, adapter), frames[-1], 0.0), "not even for the same principal"
    now = asyncio.get_running_loop().time()
    adapter.session = replace(adapter.session, expires_at=now - 1)
    assert not taken()
    adapter.session = replace(adapter.session, expires_at=now + 1000)
    assert taken()
    await shelf.close()


@pytest.mark.parametrize("version", [9, 10])
async def test_zstd_is_kept_from_consumers_that_cannot_read_it(tmp_path: Path, version: int) -> None:
    shelf = Shelf(tmp_path)
    shelf.create("t", ID, 1)
    shelf.append("t")
    shelf.append("t", attributes=4)
    consumer = Consumer(shelf, version)
    errors = [
        parts_of(consumer.fetch([wanted(bytes(16), (0, offset), name="t")], max_bytes=1))["t", 0].error_code
        for offset in (0, 0, 1)
    ]
    refusal = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 10 else ErrorCode.NONE
    assert errors == [0, 0, refusal]
    await shelf.close()


async def test_two_requests_in_turn_on_one_connection(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.create("t", ID, 2)
    for index in (0, 1):
        shelf.append("t", index, b"ab"[index : index + 1] * 10)
    consumer = Consumer(shelf)
    for _ in range(3):
        for index in (0, 1):
            part = parts_of(consumer.fetch([wanted(ID, (index, 0))]))[ID, index]
            assert bytes(part.records or b"").count(b"ab"[index : index + 1] * 10) == 1
    await asyncio.sleep(0)
    await shelf.close()


class AtTheEnd:
    """A consumer of one partition, whose next fetch finds no records and takes the short cut."""

    def __init__(self, shelf: Shelf, *, max_wait_ms: int = 60_000, **fields: int) -> None:
        self.shelf = shelf
        self.fields = {"max_wait_ms": max_wait_ms} | fields
        self.consumer = Consumer(shelf)
        self.consumer.send([wanted(ID, (0, 0))], **self.fields)

    def wait(self, offset: int) -> None:
        """Send the fetch, which must not be answered."""
        adapter = self.consumer.adapter
        adapter.answers.clear()
        assert adapter.shortcut is not None
        self.consumer.shelf.router.dispatch = self._short  # type: ignore[method-assign]
        try:
            self.consumer.send([wanted(ID, (0, offset))], **self.fields)
        finally:
            del self.consumer.shelf.router.dispatch
        assert adapter.answers == []

    def _short(self, connection: ClientConnection, frame: memoryview) -> None:
        shortcut = self.consumer.adapter.shortcut
        assert shortcut is not None
        assert shortcut(connection, frame, asyncio.get_running_loop().time())

    async def answer(self) -> bytes:
        await asyncio.wait_for(self.consumer.adapter.arrived.wait(), 60)
        return self.consumer.adapter.answers.pop()


async def a_shelf(folder: Path) -> Shelf:
    shelf = Shelf(folder)
    shelf.create("t", ID, 1)
    shelf.append("t", value=b"first")
    return shelf


async def the_long_way(shelf: Shelf, offset: int, **fields: int) -> bytes:
    consumer = Consumer(shelf)
    consumer.send([wanted(ID, (0, offset))], **fields)
    return consumer.adapter.answers.pop()


async def test_a_consumer_at_the_end_waits_for_records(tmp_path: Path) -> None:
    shelf = await a_shelf(tmp_path)
    waiting = AtTheEnd(shelf)
    for offset in (1, 2, 3):
        waiting.wait(offset)
        shelf.append("t", value=b"more")
        assert await waiting.answer() == await the_long_way(shelf, offset)
    await shelf.close()


async def test_a_consumer_waits_for_as_many_bytes_as_it_wants(tmp_path: Path) -> None:
    shelf = await a_shelf(tmp_path)
    shelf.append("t", value=b"v" * 500)
    waiting = AtTheEnd(shelf, min_bytes=300)
    waiting.wait(2)
    shelf.append("t", value=b"small")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.consumer.adapter.answers == []
    shelf.append("t", value=b"v" * 500)
    assert await waiting.answer() == await the_long_way(shelf, 2)
    await shelf.close()


async def test_who_wants_no_bytes_waits_for_none(tmp_path: Path) -> None:
    shelf = await a_shelf(tmp_path)
    fields = {"max_wait_ms": 60_000, "min_bytes": 0}
    consumer = Consumer(shelf)
    for offset in (0, 1, 1):
        consumer.adapter.answers.clear()
        consumer.send([wanted(ID, (0, offset))], **fields)
        assert consumer.adapter.answers == [await the_long_way(shelf, offset, **fields)]
    await shelf.close()


async def test_less_than_no_bytes_are_none_either_way(tmp_path: Path) -> None:
    shelf = await a_shelf(tmp_path)
    shelf.append("t", value=b"second")
    consumer = Consumer(shelf)
    for offset in (2, 1, 0):
        sent = answer(consumer, offset, partition_max_bytes=-1)
        assert sent == answer(Consumer(shelf), offset, partition_max_bytes=1)
    await shelf.close()


async def test_when_the_time_is_over_the_handler_answers(tmp_path: Path) -> None:
    shelf = await a_shelf(tmp_path)
    waiting = AtTheEnd(shelf, max_wait_ms=20)
    waiting.wait(1)
    assert await waiting.answer() == await the_long_way(shelf, 1)
    await shelf.close()


async def test_what_ends_the_wait_is_told_as_the_handler_tells_it(tmp_path: Path) -> None:
    shelf = await a_shelf(tmp_path)
    waiting = AtTheEnd(shelf)
    waiting.wait(1)
    shelf.append("t")
    shelf.append("t")
    shelf.replica("t").record_deletion.trim(2)
    assert await waiting.answer() == await the_long_way(shelf, 1)
    waiting = AtTheEnd(shelf)
    waiting.consumer.send([wanted(ID, (0, 2))], **waiting.fields)
    waiting.wait(3)
    shelf.tell(shelf.state(ID, 0, leader=OTHER_ID, epoch=2, isr=[OTHER_ID, OWN_ID]))
    assert await waiting.answer() == await the_long_way(shelf, 3)
    await shelf.close()


async def test_nothing_waits_for_a_client_that_is_gone(tmp_path: Path) -> None:
    shelf = await a_shelf(tmp_path)
    waiting = AtTheEnd(shelf)
    waiting.wait(1)
    waiting.consumer.adapter.close()
    shelf.append("t")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.consumer.adapter.answers == []
    await shelf.close()


async def test_a_reader_of_what_is_committed_waits_for_the_end_of_a_transaction(tmp_path: Path) -> None:
    shelf = await a_shelf(tmp_path)
    waiting = AtTheEnd(shelf, isolation_level=1)
    waiting.wait(1)
    replica = shelf.replica("t")
    replica.append(
        memoryview(batch(b"in a transaction", producer=(7, 0, 0), attributes=TRANSACTIONAL_FLAG)),
        required_acks=1,
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.consumer.adapter.answers == []
    replica.append_marker(7, 0, commit=True, number=1, commit_index=1)
    assert await waiting.answer() == await the_long_way(shelf, 1, isolation_level=1)
    await shelf.close()
