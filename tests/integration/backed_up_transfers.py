"""A bank whose transfers are transactions over several partitions, and the check of backups that are made meanwhile.

Each transfer takes a sum from an account of one partition and gives it to an account of another partition. The same
transaction commits the number of the writer's transfers as the offset of the writer's group. So at each cut the sum of
all records is 0, and each offset is the number of the writer's transfers.

    python -m tests.integration.backed_up_transfers [--cuts 1000] [--restored 5] [--seed 0] [--processes 2]

Clusters are started for it. Every cut is read from the store as a restoration serves it, and its records are decoded.
Each cut is read from its beginning, so later cuts take longer: processes share the cuts. Random cuts are also restored
into another cluster, one after the other, and read there by clients.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.cli.terminal.progress import ProgressLine
from ottla.client.admin.backups.restore import prepare
from ottla.client.backup.catalog import Catalog
from ottla.client.backup.chain_reader import ChainReader
from ottla.client.backup.cut_file import OFFSETS_TOPIC, CutFile
from ottla.client.backup.loaded_segments import OBJECT_BYTES_MAX, LoadedSegments
from ottla.client.backup.names import CutName
from ottla.client.backup.plans import restore_plan
from ottla.client.backup.reading import read_catalog, read_cut
from ottla.client.objects.opening import open_store
from ottla.client.objects.store import ObjectStore, StoredObject
from ottla.dataplane.mirroring.offsets_at_cut import OffsetsAtCut
from ottla.protocol.cluster.mirror_offsets import OffsetsOfGroup
from ottla.protocol.records.record import decode_records
from ottla.protocol.records.record_batch import walk_batches
from tests.cluster import PAUSE_S, running_cluster
from tests.integration.mirroring import records_of

TOPIC = "transfers"
PARTITIONS = 4
WRITERS = 3
ABORTS_OF_TEN = 2
GROUP_PLACE = 0
PAUSE_MAX_S = 0.02
_COMMIT_KEY = b"\0\0\0\1"
Count = Callable[[], None]


def _uncounted() -> None:
    """Ignore a step."""


@dataclass
class Steps:
    """The numbers of cuts that are made, checked and restored, which a line on standard error shows."""

    line: ProgressLine
    cuts: int
    began_s: float = field(default_factory=time.monotonic)
    done: Counter[str] = field(default_factory=Counter)

    def count(self, step: str) -> None:
        """Count a cut after a step, and show the numbers."""
        self.done[step] += 1
        numbers = ", ".join(f"{self.done[name]:,} {name}" for name in ("made", "checked", "restored"))
        self.line.show(f"{self.cuts:,} cuts: {numbers}, {time.monotonic() - self.began_s:.0f} s")


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


async def back_up(
    bootstrap: str, topic: str, folder: Path, cuts: int, chance: random.Random, made: Count = _uncounted
) -> None:
    """Make cuts at random moments. `made` is called after each cut."""
    async with (
        Admin(bootstrap_servers=bootstrap) as admin,
        await admin.open_backup(folder.as_uri(), topics=topic, groups=f"{topic}-.*") as backup,
    ):
        for _ in range(cuts):
            await asyncio.sleep(chance.uniform(0, PAUSE_MAX_S))
            await backup.cut()
            made()


class KeptStore:
    """A store whose objects and listings are read once, since many cuts have the same segments."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._listings: dict[str, list[StoredObject]] = {}
        self._objects: dict[str, bytes] = {}
        self.url, self.put_new, self.delete = store.url, store.put_new, store.delete

    async def list(self, folder: str = "") -> AsyncIterator[StoredObject]:
        if folder not in self._listings:
            self._listings[folder] = [found async for found in self._store.list(folder)]
        for found in self._listings[folder]:
            yield found

    async def get(self, key: str, start: int, end: int) -> bytes:
        if key not in self._objects:
            self._objects[key] = await self._store.get(key, 0, OBJECT_BYTES_MAX)
        return self._objects[key][start:end]


async def check_cuts(folder: Path, topic: str) -> int:
    """Check every cut of a store. Returns the number of transfers at the newest cut."""
    store = kept_store(folder)
    catalog = await read_catalog(store)
    return _newest([await _check_cut(store, catalog, name, topic) for name in catalog.cuts])


def check_cuts_in(processes: int, folder: Path, topic: str, cuts: Sequence[CutName], checked: Count) -> int:
    """Check cuts of a store in processes. `checked` is called after each cut. Returns as `check_cuts` does."""
    counts = []
    with get_context("spawn").Pool(processes) as pool:
        for count in pool.imap(partial(_check_alone, folder, topic), cuts):
            counts.append(count)
            checked()
    return _newest(counts)


def _newest(counts: Sequence[int]) -> int:
    assert list(counts) == sorted(counts)
    return counts[-1]


kept_store = cache(lambda folder: KeptStore(open_store(folder.as_uri(), 30)))
"""The store of a folder, for all checks of this process."""


def _check_alone(folder: Path, topic: str, name: CutName) -> int:
    async def check() -> int:
        store = kept_store(folder)
        return await _check_cut(store, await read_catalog(store), name, topic)

    return asyncio.run(check())


async def _check_cut(store: ObjectStore, catalog: Catalog, name: CutName, topic: str) -> int:
    cut = await read_cut(store, name)
    prepared = await prepare(store, catalog, restore_plan(cut, None, None, {}))
    total, by_writer = 0, Counter[bytes]()
    offsets: dict[str, int] = {}
    segments = LoadedSegments(store, prepared.sizes)
    for part in prepared.partitions:
        batches = await _all(ChainReader(part.chain, segments), part.partition.start)
        if part.topic.name == OFFSETS_TOPIC:
            offsets |= _committed(batches, part.partition.end, topic)
        else:
            for key, value in _values(batches):
                total += value
                by_writer[key] += bool(key)
    assert segments.checked == {segment for part in prepared.partitions for segment in part.chain.segments}
    assert total == 0, (name, total)
    assert offsets == {str(key, "ascii"): number for key, number in by_writer.items() if key}, name
    _check_ends(cut)
    return by_writer.total()


def _check_ends(cut: CutFile) -> None:
    assert all(part.start <= part.end for _, part in cut.places)


async def _all(reader: ChainReader, offset: int) -> bytes:
    """Return all batches of a partition."""
    found = bytearray()
    while pieces := (read := await reader.read(offset)).pieces:
        found += b"".join(pieces)
        offset = read.next_offset
    return bytes(found)


def _values(batches: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the records of committed transactions, as a read-committed consumer of the restored log gets them."""
    open_: dict[int, list[tuple[bytes, int]]] = {}
    for position, header in walk_batches(batches):
        records = _records(batches[position : position + header.size])
        if not header.is_control:
            found = [(key, int(value)) for key, value in records]
            open_.setdefault(header.producer_id, []).extend(found)
            continue
        ended = open_.pop(header.producer_id, [])
        if records[0][0] == _COMMIT_KEY:
            yield from ended


@cache
def _records(batch: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return the keys and values of a batch. Many cuts have the batch."""
    return tuple((record.key or b"", record.value or b"") for record in decode_records(memoryview(batch)))


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


async def check_restored(bootstrap: str, topic: str) -> int:
    """Check a restored bank with clients. Returns the number of its transfers."""
    found = await records_of(bootstrap, topic, "read_committed")
    values = [int(record[3]) for records in found.values() for record in records]
    assert sum(values) == 0
    async with Admin(bootstrap_servers=bootstrap) as admin:
        offsets = [await admin.committed_offsets(f"{topic}-writer-{writer}") for writer in range(WRITERS)]
    count = sum(offset for committed in offsets for offset in committed.values())
    assert 2 * count == len(values)
    return count


async def restore_some(
    bootstrap: str, folder: Path, topic: str, chosen: Sequence[CutName], restored: Count
) -> None:
    """Restore cuts, one after the other, and check each. `restored` is called after each cut."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        for name in chosen:
            await admin.restore_backup(folder.as_uri(), as_of=str(name.cut))
            _tell(f"cut {name.cut} is restored, with {await check_restored(bootstrap, topic)} transfers")
            await admin.delete_topics([topic])
            await admin.delete_groups([f"{topic}-writer-{writer}" for writer in range(WRITERS)])
            restored()


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def play(source: str, target: str, folder: Path, arguments: argparse.Namespace) -> None:
    """Make the cuts while the bank works, check them all, and restore some."""
    chance = random.Random(arguments.seed)
    with ProgressLine() as line:
        steps = Steps(line, arguments.cuts)
        async with transfers(source, TOPIC, arguments.seed):
            await back_up(source, TOPIC, folder, arguments.cuts, chance, partial(steps.count, "made"))
        cuts = (await read_catalog(open_store(folder.as_uri(), 30))).cuts
        _tell(f"{len(cuts)} cuts are made")
        checked = partial(steps.count, "checked")
        count = await asyncio.to_thread(check_cuts_in, arguments.processes, folder, TOPIC, cuts, checked)
        _tell(f"{len(cuts)} cuts are whole, the last with {count} transfers")
        chosen = sorted(chance.sample(cuts, min(arguments.restored, len(cuts))))
        await restore_some(target, folder, TOPIC, chosen, partial(steps.count, "restored"))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--restored", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, help="that check cuts (2)")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="backed-up-transfers-") as name:
        source, target, store = folders = [Path(name) / part for part in ("source", "target", "store")]
        for folder in folders:
            folder.mkdir()
        with (
            running_cluster(source, quorum=1, brokers=1) as bank,
            running_cluster(target, quorum=1, brokers=1) as restored,
        ):
            asyncio.run(play(bank.bootstrap, restored.bootstrap, store, arguments))


if __name__ == "__main__":
    main()
