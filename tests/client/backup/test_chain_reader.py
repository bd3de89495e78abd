"""Reading of a partition from its segments: every batch once, from any offset, and no changed byte unnoticed."""

from __future__ import annotations

import asyncio
import random
from hashlib import sha256

import pytest

from ottla.client.backup import chain_reader
from ottla.client.backup.chain_reader import ChainReader
from ottla.client.backup.chains import chain_of
from ottla.client.backup.cut_file import BackedPartition
from ottla.client.backup.names import CutId, PartitionFolder, SegmentName
from ottla.client.backup.verify import segment_fault
from ottla.client.failures import ObjectDamaged
from ottla.client.objects.opening import open_store
from ottla.client.objects.store import ObjectStore
from ottla.protocol.records.record_batch import walk_batches
from tests.dataplane.log.batches import make_batch

PLACE = PartitionFolder(b"t" * 16, 0, 0)


class Partition:
    """A partition of random batches in the segments of a store."""

    def __init__(self, store: ObjectStore, chance: random.Random) -> None:
        self.store = store
        self.batches: dict[int, bytes] = {}
        self.sizes: dict[SegmentName, int] = {}
        offset = 0
        for _ in range(chance.randint(1, 5)):
            first, data = offset, b""
            for _ in range(chance.randint(1, 6)):
                count = chance.randint(1, 4)
                batch = bytes(make_batch(count, bytes(chance.randrange(1, 40)), base_offset=offset))
                self.batches[offset] = batch
                data += batch
                offset += count
            name = SegmentName(PLACE, first, offset, CutId(1, 1), sha256(data).hexdigest())
            self.sizes[name] = len(data)
            asyncio.run(store.put_new(name.key, data))
        self.end = offset

    def reader(self) -> ChainReader:
        part = BackedPartition(0, 0, 0, self.end, 0, ())
        return ChainReader(self.store, part, chain_of(part, self.sizes), self.sizes)


@pytest.mark.parametrize("seed", range(20))
def test_each_batch_is_read_once_from_any_offset(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(chain_reader, "READ_BYTES", chance.choice([70, 150, 400, 10_000]))
    partition = Partition(open_store(f"memory://reader-{seed}", 5), chance)
    reader = partition.reader()

    async def read_from(offset: int, reads: int) -> None:
        expected = [batch for base, batch in partition.batches.items() if _end(base, batch) > offset]
        found = b""
        for _ in range(reads):
            batches = await reader.read(offset)
            if not batches:
                assert offset == partition.end
                break
            found += batches
            *_, (_, last) = walk_batches(batches)
            offset = last.next_offset
        whole = b"".join(expected)
        assert whole.startswith(found)
        assert reads < 1000 or found == whole

    for _ in range(6):
        asyncio.run(read_from(chance.randint(0, partition.end), chance.randint(1, 4)))
    asyncio.run(read_from(0, 1000))
    assert not reader.unread


def _end(base: int, batch: bytes) -> int:
    ((_, header),) = walk_batches(batch)
    assert header.base_offset == base
    return header.next_offset


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_byte_is_noticed_before_the_end(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(chain_reader, "READ_BYTES", 150)
    partition = Partition(open_store(f"memory://changed-{seed}", 5), chance)
    name = chance.choice(list(partition.sizes))

    async def change() -> None:
        data = bytearray(await partition.store.get(name.key, 0, 1 << 20))
        data[chance.randrange(len(data))] ^= chance.randint(1, 255)
        await partition.store.delete(name.key)
        await partition.store.put_new(name.key, bytes(data))
        assert await segment_fault(partition.store, name, len(data)) is not None

    async def read_all() -> None:
        reader, offset = partition.reader(), 0
        while batches := await reader.read(offset):
            *_, (_, last) = walk_batches(batches)
            offset = max(offset + 1, last.next_offset)

    asyncio.run(change())
    with pytest.raises(ObjectDamaged, match=name.key):
        asyncio.run(read_all())
