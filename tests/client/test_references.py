"""References to objects: their form, hostile ones, and the order of the values that a consumer fetches for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from hashlib import sha256
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import Producer
from ottla.client.consuming.assigned import AssignedPartition
from ottla.client.consuming.fetched import FetchedRecords
from ottla.client.consuming.fetcher import Fetcher
from ottla.client.consuming.inbox import Inbox
from ottla.client.consuming.large_messages.assembly import Assembly, AssemblyOptions, LargeMessageStats
from ottla.client.consuming.large_messages.referenced import ReferencedValues
from ottla.client.failures import ObjectMissing, ObjectStoreUnavailable, UnreadableValue
from ottla.client.objects.references import (
    REFERENCE_HEADER,
    ObjectReference,
    day_end_ms,
    new_key,
    read_reference,
)
from ottla.client.objects.store import ObjectStore
from ottla.client.producing.pending import PendingRecord
from ottla.client.records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ottla.protocol.records.record import encode_batch
from ottla.protocol.records.record_batch import patch_offset_and_epoch

MARK = ((REFERENCE_HEADER, b""),)


@given(
    st.binary(min_size=1, max_size=200), st.binary(min_size=16, max_size=16), st.integers(0, 4_000_000_000)
)
def test_a_reference_is_read_as_it_was_written(value: bytes, random_bytes: bytes, now_s: int) -> None:
    key = new_key("orders", bytes(15) + b"\7", now_s, random_bytes)
    reference = ObjectReference.to(key, value)
    assert read_reference(reference.encoded()) == reference
    assert reference.fault_of(value) is None
    assert reference.fault_of(value + b"x") == f"it has more than {len(value)} bytes instead of {len(value)}"
    assert reference.fault_of(bytes([value[0] ^ 1]) + value[1:]) == "its SHA-256 is another"
    end = day_end_ms(key)
    assert end is not None
    assert 0 < end - now_s * 1000 <= 86_400_000


@given(st.binary(max_size=300) | st.none())
def test_bytes_that_are_no_reference_are_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="reference"):
        read_reference(value)


@pytest.mark.parametrize(
    "key",
    [
        "../x",
        "/etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "s3://other/x",
        "a/../../x",
        "a\0",
        "~incoming/x",
    ],
)
def test_a_reference_to_a_place_outside_of_the_store_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="invalid part"):
        read_reference(ObjectReference(key, 1, bytes(32)).encoded())


def test_a_reference_of_another_version_is_refused() -> None:
    encoded = ObjectReference("a", 1, bytes(32)).encoded()
    with pytest.raises(ValueError, match="version 2; 1 is known"):
        read_reference(encoded[:8] + b"\2" + encoded[9:])


@pytest.mark.parametrize(
    "key", ["a", "t/id/2026-13-01/x", "t/id/today/x", "t/2026-11-29/x", "t/id/9999-12-31/x"]
)
def test_a_key_of_another_program_has_no_day(key: str) -> None:
    assert day_end_ms(key) is None


class GatedStore:
    """A store whose answers come when a test lets them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.waiting: list[tuple[str, asyncio.Future[bytes]]] = []
        self.asked: list[str] = []

    async def get(self, key: str, start: int, end: int) -> bytes:
        self.asked.append(key)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append((key, answer))
        return (await answer)[start:end]

    def answer(self, place: int, *, fails: bool = False) -> None:
        key, answer = self.waiting.pop(place)
        if answer.done():
            return
        if fails:
            answer.set_exception(ObjectStoreUnavailable(f"the object {key} was not read"))
        elif key not in self.objects:
            answer.set_exception(ObjectMissing(f"the object {key} was not read: there is no object"))
        else:
            answer.set_result(self.objects[key])


class Readers:
    """A consumer's inbox over logs of several partitions, without a cluster."""

    def __init__(self, logs: list[list[PendingRecord]], bytes_max: int, store: GatedStore | None) -> None:
        self.logs = {TopicPartition("t", number): log for number, log in enumerate(logs)}
        self.store = store
        self.stats = LargeMessageStats()
        self.arrivals = 0
        self.values = ReferencedValues(cast(ObjectStore | None, store), bytes_max, self.stats, self._arrived)
        self.states = {partition: AssignedPartition(partition) for partition in self.logs}
        fetcher = SimpleNamespace(assigned=self.states, changed=lambda: None)
        assembly = Assembly(AssemblyOptions(1 << 30, 1 << 30), self.stats, lambda _: None)
        self.inbox = Inbox(cast(Fetcher, fetcher), assembly, None, self.values)
        self.inbox.reassigned()
        for state in self.states.values():
            self.inbox.resume(state, OffsetAndMetadata(0))

    def _arrived(self) -> None:
        self.arrivals += 1

    def fetch(self, partition: TopicPartition, count: int) -> None:
        state = self.states[partition]
        some = self.logs[partition][state.fetch_offset : state.fetch_offset + count]
        if some and len(state.buffer) < 2:
            batch = bytearray(encode_batch(some))
            patch_offset_and_epoch(batch, 0, state.fetch_offset, 7)
            state.buffer.append(FetchedRecords(partition, memoryview(batch), state.fetch_offset))
            state.fetch_offset += len(some)

    def take(self, limit: int = 500) -> dict[TopicPartition, list[ConsumerRecord]]:
        return self.inbox.take(set(), limit)


async def settled(readers: Readers) -> None:
    """Wait until all values that the store has answered are here; their digests are computed in threads."""
    tasks = [value.task for reads in readers.values._reads.values() for value in reads.values.values()]
    asked = {key for key, _ in readers.store.waiting} if readers.store else set()
    async with asyncio.timeout(20):
        for task in tasks:
            while not task.done() and not asked:
                await asyncio.sleep(0.0002)


def log_of(store: GatedStore, chance: random.Random, name: str, size_max: int) -> Iterator[PendingRecord]:
    for number in range(chance.randrange(1, 25)):
        value = b"%s-%d" % (name.encode(), number)
        if chance.random() < 0.6:
            value = value.ljust(chance.randrange(12, size_max), b".")
            key = f"t/{name}/{number}"
            store.objects[key] = value
            yield b"k", ObjectReference.to(key, value).encoded(), 0, (*MARK, ("h", b"%d" % number))
        else:
            yield b"k", value, 0, (("h", b"%d" % number),) if number % 2 else ()


def take_some(
    readers: Readers,
    limit: int,
    position: dict[TopicPartition, int],
    expected: dict[TopicPartition, list[bytes | None]],
) -> None:
    """Take records, compare them with the expected ones, and move the positions."""
    try:
        taken = readers.take(limit)
    except UnreadableValue as error:
        if error.offset != position[error.partition]:
            raise
        return
    for partition, records in taken.items():
        for record in records:
            assert record.offset == position[partition]
            assert record.value == expected[partition][record.offset]
            assert not any(name == REFERENCE_HEADER for name, _ in record.headers)
            position[partition] += 1


@pytest.mark.parametrize("seeds", [range(first, first + 100) for first in range(0, 400, 100)], ids=str)
async def test_values_come_in_the_order_of_their_records_within_the_bound(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        store = GatedStore()
        logs = [list(log_of(store, chance, f"p{number}", 60)) for number in range(3)]
        readers = Readers(logs, 150, store)
        expected = {
            partition: [
                (value if not headers or headers[0] != MARK[0] else None) for _, value, _, headers in log
            ]
            for partition, log in readers.logs.items()
        }
        for partition, values in expected.items():
            for offset, value in enumerate(values):
                if value is None:
                    values[offset] = store.objects[f"t/p{partition.partition}/{offset}"]
        position = dict.fromkeys(readers.logs, 0)

        for _ in range(chance.randrange(60)):
            partition = chance.choice(list(readers.logs))
            state = readers.states[partition]
            match chance.randrange(8):
                case 0 | 1:
                    readers.fetch(partition, chance.randrange(1, 6))
                case 2 | 3:
                    take_some(readers, chance.choice([1, 3, 500]), position, expected)
                case 4 | 5 if store.waiting:
                    store.answer(chance.randrange(len(store.waiting)), fails=chance.random() < 0.2)
                    await asyncio.sleep(chance.choice([0, 0.0005]))
                case 6:
                    state.paused = not state.paused
                case 7:
                    position[partition] = chance.randrange(len(expected[partition]) + 1)
                    readers.inbox.resume(state, OffsetAndMetadata(position[partition]))
            assert (
                sum(
                    value.reference.size
                    for reads in readers.values._reads.values()
                    for value in reads.values.values()
                )
                <= 150
            )
            known = readers.inbox.positions()
            assert known == position, "a position never passes a value that was not handed out"
        for state in readers.states.values():
            state.paused = False
        rounds = 0
        while any(position[partition] < len(log) for partition, log in readers.logs.items()):
            rounds += 1
            assert rounds < 300, f"seed {seed}: no progress"
            for partition in readers.logs:
                readers.fetch(partition, 4)
            take_some(readers, 500, position, expected)
            await asyncio.sleep(0)
            while store.waiting:
                store.answer(0)
            await settled(readers)


async def test_an_error_names_the_record_and_the_object_until_the_reader_seeks() -> None:
    store = GatedStore()
    good, bad = b"g" * 20, b"b" * 20
    store.objects = {"t/good": good, "t/bad": b"B" + bad[1:]}
    log = [
        (None, ObjectReference.to(key, value).encoded(), 0, MARK)
        for key, value in [("t/good", good), ("t/bad", bad), ("t/gone", bad)]
    ]
    readers = Readers([log], 1000, store)
    here = TopicPartition("t", 0)

    async def read() -> list[bytes]:
        for _ in range(3):
            readers.fetch(here, 10)
            if found := readers.take().get(here):
                return [record.value for record in found]
            await asyncio.sleep(0)
            while store.waiting:
                store.answer(0)
            await settled(readers)
        raise AssertionError("nothing came")

    assert await read() == [good]
    for _ in range(2):
        with pytest.raises(
            UnreadableValue, match=r"t-0: the record at offset 1 .*object t/bad is wrong: its SHA-256"
        ):
            await read()
    readers.inbox.resume(readers.states[here], OffsetAndMetadata(2))
    with pytest.raises(
        UnreadableValue, match=r"offset 2 .*the object t/gone was not read: there is no object"
    ):
        await read()
    store.objects["t/gone"] = bad
    assert await read() == [bad]
    assert readers.stats.fetched == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ObjectReference("../../etc/passwd", 5, bytes(32)).encoded(), "invalid part '..'"),
        (ObjectReference("t/x", 1 << 60, bytes(32)).encoded(), "large_message_buffer_bytes is 1000"),
        (b"junk", "a reference has"),
        (None, "this value has no"),
    ],
)
async def test_a_hostile_reference_is_an_error_before_anything_is_fetched(
    value: bytes | None, message: str
) -> None:
    store = GatedStore()
    readers = Readers([[(None, value, 0, MARK)]], 1000, store)
    readers.fetch(TopicPartition("t", 0), 1)
    with pytest.raises(UnreadableValue, match=message):
        readers.take()
    assert store.asked == []


async def test_without_a_store_the_error_names_the_option() -> None:
    value = ObjectReference("t/x", 5, sha256(b"12345").digest()).encoded()
    readers = Readers([[(None, b"small", 0, ()), (None, value, 0, MARK), (None, b"next", 0, ())]], 1000, None)
    here = TopicPartition("t", 0)
    readers.fetch(here, 3)
    assert [record.value for record in readers.take()[here]] == [b"small"]
    readers.fetch(here, 3)
    with pytest.raises(
        UnreadableValue, match=r"offset 1 .*large_message_store.*large_messages=False"
    ) as caught:
        readers.take()
    readers.inbox.resume(readers.states[here], OffsetAndMetadata(caught.value.next_offset))
    readers.fetch(here, 3)
    assert [record.value for record in readers.take()[here]] == [b"next"]


def test_a_producer_that_has_a_store_and_would_not_use_it_is_refused() -> None:
    with pytest.raises(ValueError, match="large_message_store needs large_messages='reference'"):
        Producer(large_message_store="file:///tmp")
