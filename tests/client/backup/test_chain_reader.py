"""Reading of a partition from its segments: every batch once, from any offset, and no changed byte is served."""

from __future__ import annotations

import asyncio
import random
from hashlib import sha256

import pytest

from ottla.client.backup.chain_reader import ChainReader
from ottla.client.backup.chains import chain_of
from ottla.client.backup.cut_file import BackedPartition
from ottla.client.backup.loaded_segments import LoadedSegments, read_segment
from ottla.client.backup.names import CutId, PartitionFolder, SegmentName
from ottla.client.backup.verify import segment_fault
from ottla.client.failures import ObjectDamaged, ObjectMissing
from ottla.client.objects.opening import open_store
from ottla.client.objects.store import ObjectStore
from ottla.protocol.records.record_batch import walk_batches
from tests.dataplane.log.batches import make_batch

PLACE = PartitionFolder(b"t" * 16, 0, 0)


class CountedStore:
    """A store that counts the objects that are being read."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.url, self.put_new, self.list, self.delete = store.url, store.put_new, store.list, store.delete
        self.read: list[str] = []
        self.now = self.most = 0

    async def get(self, key: str, start: int, end: int) -> bytes:
        self.read.append(key)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            return await self._store.get(key, start, end)
        finally:
            self.now -= 1


class Partition:
    """A partition of random batches in the segments of a store."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.store = CountedStore(open_store(f"memory://{name}", 5))
        self.chance = chance
        self.batches: dict[int, bytes] = {}
        self.sizes: dict[SegmentName, int] = {}
        self.end = 0

    async def fill(self, segments: int) -> None:
        for _ in range(segments):
            first, data = self.end, b""
            for _ in range(self.chance.randint(1, 6)):
                count = self.chance.randint(1, 4)
                value = bytes(self.chance.randrange(1, 40))
                batch = bytes(make_batch(count, value, base_offset=self.end))
                self.batches[self.end] = batch
                data += batch
                self.end += count
            name = SegmentName(PLACE, first, self.end, CutId(1, 1), sha256(data).hexdigest())
            self.sizes[name] = len(data)
            await self.store.put_new(name.key, data)

    def loaded(self, bytes_max: int = 1 << 20) -> LoadedSegments:
        return LoadedSegments(self.store, self.sizes, bytes_max)

    def reader(self, segments: LoadedSegments) -> ChainReader:
        part = BackedPartition(0, 0, 0, self.end, 0, ())
        return ChainReader(chain_of(part, self.sizes), segments)


@pytest.mark.parametrize("seed", range(30))
async def test_each_batch_is_read_once_from_any_offset(seed: int) -> None:
    chance = random.Random(seed)
    partition = Partition(f"reader-{seed}", chance)
    await partition.fill(chance.randint(1, 5))
    segments = partition.loaded(chance.choice([100, 400, 10_000]))
    reader = partition.reader(segments)
    size = chance.choice([1, 70, 150, 400, 10_000])

    async def read_from(offset: int, reads: int) -> None:
        expected = [batch for base, batch in partition.batches.items() if _end(base, batch) > offset]
        found = b""
        for _ in range(reads):
            reader.pass_to(offset)
            if chance.random() < 0.5:
                reader.read_ahead(offset, chance.choice([1, 300, 5_000]))
            read = await reader.read(offset, size)
            if not read.pieces:
                assert (offset, read.next_offset) == (partition.end, partition.end)
                break
            batches = b"".join(read.pieces)
            assert len(batches) == read.size
            *others, (_, last) = walk_batches(batches)
            assert read.size <= size or not others
            found += batches
            offset = last.next_offset
            assert offset == read.next_offset
        whole = b"".join(expected)
        assert whole.startswith(found)
        assert reads < 1000 or found == whole

    for _ in range(6):
        await read_from(chance.randint(0, partition.end), chance.randint(1, 4))
    await read_from(0, 1000)
    assert segments.checked == set(partition.sizes)


async def test_segments_are_read_once_ahead_and_in_parallel_within_their_bound() -> None:
    partition = Partition("ahead", random.Random(1))
    await partition.fill(30)
    bound = sum(partition.sizes.values()) // 3
    segments = partition.loaded(bound)
    reader = partition.reader(segments)
    offset = 0
    while True:
        reader.pass_to(offset)
        kept = sum(size for name, size in partition.sizes.items() if name in segments)
        assert kept <= bound
        read = await reader.read(offset, 100)
        if not read.pieces:
            break
        offset = read.next_offset
        reader.read_ahead(offset, bound)
    assert sorted(partition.store.read) == sorted(name.key for name in partition.sizes)
    assert partition.store.most > 1
    assert not any(name in segments for name in partition.sizes)


async def test_an_abandoned_segment_gives_way_to_one_that_is_needed() -> None:
    partition = Partition("abandoned", random.Random(2))
    await partition.fill(2)
    first, second = sorted(partition.sizes)
    segments = partition.loaded(max(partition.sizes.values()))
    await segments.get(first)
    assert not segments.read_ahead(second)
    await segments.get(second)
    assert (first in segments, second in segments) == (False, True)


def _end(base: int, batch: bytes) -> int:
    ((_, header),) = walk_batches(batch)
    assert header.base_offset == base
    return header.next_offset


@pytest.mark.parametrize("seed", range(20))
async def test_no_record_of_a_changed_segment_is_served(seed: int) -> None:
    chance = random.Random(seed)
    partition = Partition(f"changed-{seed}", chance)
    await partition.fill(chance.randint(1, 5))
    name = chance.choice(list(partition.sizes))
    data = bytearray(await partition.store.get(name.key, 0, 1 << 20))
    data[chance.randrange(len(data))] ^= chance.randint(1, 255)
    await partition.store.delete(name.key)
    await partition.store.put_new(name.key, bytes(data))
    assert await segment_fault(partition.store, name, len(data)) is not None

    segments, offset = partition.loaded(), 0
    reader = partition.reader(segments)
    with pytest.raises(ObjectDamaged, match=name.key):
        while (read := await reader.read(offset, 150)).pieces:
            offset = read.next_offset
    assert offset <= name.first
    assert name not in segments.checked


class LyingStore(CountedStore):
    """A store whose first answers have other bytes than the object."""

    answers: list[bytes]

    async def get(self, key: str, start: int, end: int) -> bytes:
        whole = await super().get(key, start, end)
        return self.answers.pop(0) if self.answers else whole


@pytest.mark.parametrize("cut", [0, 1, 40])
async def test_an_object_is_read_again_before_it_counts_as_damaged(cut: int) -> None:
    partition = Partition(f"lying-{cut}", random.Random(3))
    await partition.fill(1)
    ((name, size),) = partition.sizes.items()
    whole = await partition.store.get(name.key, 0, size)
    lying = LyingStore(partition.store)
    lying.answers = [whole[:cut]]
    assert await read_segment(lying, name, size) == whole
    lying.answers = [whole[:cut], whole + b"x"]
    with pytest.raises(ObjectDamaged, match="its SHA-256 is another"):
        await read_segment(lying, name, size)
    # A listing that lies about the length
    assert await read_segment(partition.store, name, size + 7) == whole
    with pytest.raises(ObjectDamaged):
        await read_segment(partition.store, name, size - 2 - cut)
    with pytest.raises(ObjectDamaged, match="more than any segment"):
        await read_segment(partition.store, name, 1 << 40)
    await partition.store.delete(name.key)
    with pytest.raises(ObjectMissing):
        await read_segment(partition.store, name, size)
