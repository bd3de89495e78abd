"""A bank whose transfers are transactions over several partitions, and the check of backups that are made meanwhile.

Each transfer takes a sum from an account of one partition and gives it to an account of another partition. The same
transaction commits the number of the writer's transfers as the offset of the writer's group. So at each cut the sum of
all records is 0, and each offset is the number of the writer's transfers.

    python -m tests.integration.backed_up_transfers BOOTSTRAP_SERVERS FOLDER 1000
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.client.backup.catalog import Catalog
from ottla.client.backup.chain_reader import ChainReader
from ottla.client.backup.cut_file import OFFSETS_TOPIC, CutFile
from ottla.client.backup.names import CutName
from ottla.client.backup.plans import restore_plan
from ottla.client.backup.reading import read_catalog, read_cut
from ottla.client.backup.restore import prepare
from ottla.client.backup.run import open_backup
from ottla.client.objects.opening import open_store
from ottla.client.objects.store import ObjectStore
from ottla.dataplane.mirroring.offsets_at_cut import OffsetsAtCut
from ottla.protocol.cluster.mirror_offsets import OffsetsOfGroup
from ottla.protocol.records.record import decode_records
from ottla.protocol.records.record_batch import walk_batches
from tests.cluster import PAUSE_S

PARTITIONS = 4
WRITERS = 3
ABORTS_OF_TEN = 2
GROUP_PLACE = 0
_COMMIT_KEY = b"\0\0\0\1"


@asynccontextmanager
async def transfers(bootstrap: str, topic: str, seed: int) -> Any:
    """Create the topic, and run the writers until the block ends."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    stop = asyncio.Event()
    writers = [
        asyncio.ensure_future(_write(bootstrap, topic, number, stop, random.Random(seed + number)))
        for number in range(WRITERS)
    ]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*writers)


async def _write(bootstrap: str, topic: str, writer: int, stop: asyncio.Event, chance: random.Random) -> None:
    name, done = f"{topic}-writer-{writer}", 0
    async with Producer(bootstrap_servers=bootstrap, transactional_id=name, linger_ms=0) as producer:
        while not stop.is_set():
            await producer.begin_transaction()
            amount = chance.randint(1, 100)
            taken, given = chance.sample(range(PARTITIONS), 2)
            await producer.send(topic, b"%d" % -amount, key=name.encode(), partition=taken)
            await producer.send(topic, b"%d" % amount, partition=given)
            place = TopicPartition(topic, GROUP_PLACE)
            await producer.send_offsets_to_transaction({place: done + 1}, name)
            if chance.randrange(10) < ABORTS_OF_TEN:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                done += 1
            await asyncio.sleep(PAUSE_S)


async def back_up(bootstrap: str, topic: str, folder: Path, cuts: int) -> None:
    """Make cuts, one after the other."""
    store = open_store(folder.as_uri(), 30)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        backup = await open_backup(admin, store, topics=topic, groups=f"{topic}-.*")
        try:
            for _ in range(cuts):
                await backup.cut()
        finally:
            await backup.close()


async def check_cuts(folder: Path, topic: str) -> int:
    """Check every cut of a store. Returns the number of transfers at the newest cut."""
    store = open_store(folder.as_uri(), 30)
    catalog = await read_catalog(store)
    count = 0
    for name in catalog.cuts:
        before, count = count, await _check_cut(store, catalog, name, topic)
        assert count >= before, name
    return count


async def _check_cut(store: ObjectStore, catalog: Catalog, name: CutName, topic: str) -> int:
    cut = await read_cut(store, name)
    prepared = await prepare(store, catalog, restore_plan(cut, None, None, []))
    total, by_writer = 0, Counter[bytes]()
    offsets: dict[str, int] = {}
    for part in prepared.partitions:
        reader = ChainReader(store, part.partition, part.chain, prepared.sizes)
        batches = await _all(reader, part.partition.start)
        if part.topic.name == OFFSETS_TOPIC:
            offsets |= _committed(batches, part.partition.end, topic)
        else:
            for key, value in _values(batches):
                total += value
                by_writer[key] += bool(key)
        assert not reader.unread
    assert total == 0, (name, total)
    assert offsets == {str(key, "ascii"): number for key, number in by_writer.items() if key}, name
    _check_ends(cut)
    return by_writer.total()


def _check_ends(cut: CutFile) -> None:
    assert all(part.start <= part.end for _, part in cut.places)


async def _all(reader: ChainReader, offset: int) -> bytes:
    """Return all batches of a partition."""
    found = bytearray()
    while batches := await reader.read(offset):
        found += batches
        *_, (_, last) = walk_batches(batches)
        offset = last.next_offset
    return bytes(found)


def _values(batches: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the records of committed transactions, as a read-committed consumer of the restored log gets them."""
    open_: dict[int, list[tuple[bytes, int]]] = {}
    for position, header in walk_batches(batches):
        records = list(decode_records(memoryview(batches)[position : position + header.size]))
        if not header.is_control:
            found = [(record.key or b"", int(record.value or b"0")) for record in records]
            open_.setdefault(header.producer_id, []).extend(found)
            continue
        ended = open_.pop(header.producer_id, [])
        if records[0].key == _COMMIT_KEY:
            yield from ended


def _committed(batches: bytes, end: int, topic: str) -> dict[str, int]:
    """Return the committed offset of each group of a topic's writers at a cut, as a promotion of a mirror finds it."""
    reader = OffsetsAtCut(end)
    reader.feed(memoryview(batches))
    found: dict[str, int] = {}
    for group, of_group in reader.committed(
        lambda group: group.startswith(topic), lambda key, said: ((b"", key[1]), said.offset)
    ):
        found[group] = _only(of_group)
    return found


def _only(of_group: OffsetsOfGroup) -> int:
    ((offset, _),) = of_group.values()
    return offset


async def main(bootstrap: str, folder: str, cuts: str) -> None:
    """Make the cuts while the bank works, and check them all."""
    async with transfers(bootstrap, "transfers", 0):
        await back_up(bootstrap, "transfers", Path(folder), int(cuts))
    count = await check_cuts(Path(folder), "transfers")
    sys.stdout.write(f"{cuts} cuts are whole, the last with {count} transfers\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
