"""Backups into stores that are slow, that stop answering, and whose disk is full: a backup ends whole, or says why not.

Delays and times without an answer are a fortieth of the real ones.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ottla import Admin, BackupProgress, BackupRefused, NewTopic, ObjectStoreFailed, Producer
from ottla.client.admin.backups.copying import FETCH_BYTES, SEGMENT_BYTES
from ottla.client.admin.backups.run import COPIED_AT_ONCE, open_backup
from ottla.client.backup import lease
from ottla.client.backup.names import CUTS, DATA
from ottla.client.backup.verify import verify
from ottla.client.failures import ObjectStoreUnavailable
from ottla.client.objects.folder import FolderStore
from ottla.client.objects.retrying import AttemptingStore, RetryingStore
from ottla.client.objects.store import StoredObject
from tests.cluster import RunningCluster, running_cluster
from tests.faults.disks import tmpfs, unavailable

MEGABYTE = 1 << 20
SCALE = 40
ANSWER_S = 2.0 / SCALE
BYTES_PER_S = 1_000_000 * SCALE
PIECE_BYTES = 256 << 10
RECORD_BYTES = 512 << 10
RESIDENT_MAX = 110 * MEGABYTE
pytestmark = pytest.mark.xdist_group("backups")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), quorum=1, brokers=1) as cluster:
        yield cluster


class SlowStore:
    """A store that answers each request late, moves all bytes through one slow link, and may fall silent."""

    def __init__(self, store: AttemptingStore, answer_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        self.silent = asyncio.Event()
        self.held_max = 0
        """The most bytes that were under way to the store."""
        self.url, self._store = store.url, store
        self._answer_s, self._bytes_per_s = answer_s, bytes_per_s
        self._link = asyncio.Lock()
        self._held = 0

    async def put_new(self, key: str, data: bytes) -> None:
        self._held += len(data)
        self.held_max = max(self.held_max, self._held)
        try:
            await self._wait(len(data))
            await self._store.put_new(key, data)
        finally:
            self._held -= len(data)

    async def get(self, key: str, start: int, end: int) -> bytes:
        data = await self._store.get(key, start, end)
        await self._wait(len(data))
        return data

    async def pages(self, folder: str) -> AsyncIterator[list[StoredObject]]:
        await self._wait()
        async for page in self._store.pages(folder):
            yield page

    async def delete(self, key: str) -> None:
        await self._wait()
        await self._store.delete(key)

    async def _wait(self, size: int = 0) -> None:
        if self.silent.is_set():
            await asyncio.Event().wait()
        await asyncio.sleep(self._answer_s)
        for start in range(0, size if self._bytes_per_s else 0, PIECE_BYTES):
            async with self._link:
                await asyncio.sleep(min(PIECE_BYTES, size - start) / self._bytes_per_s)


async def written(cluster: RunningCluster, partitions: int, size: int) -> str:
    """Create a topic with records of so many bytes in each partition. Returns its name."""
    topic = f"slow-{uuid.uuid4().hex[:8]}"
    at = {"bootstrap_servers": cluster.bootstrap}
    async with Admin(**at) as admin, Producer(**at) as producer:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
        for _ in range(max(1, size // RECORD_BYTES)):
            value = os.urandom(min(size, RECORD_BYTES))
            for partition in range(partitions):
                await producer.send(topic, value, partition=partition)
        await producer.flush()
    return topic


async def test_a_store_that_answers_after_two_seconds_gets_whole_cuts(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWED_EVERY_S", lease.RENEWED_EVERY_S / SCALE)
    topic = await written(cluster, 6, 1000)
    store = RetryingStore(SlowStore(FolderStore(tmp_path), ANSWER_S), 30)
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        async with await open_backup(admin, store, topics=topic) as backup:
            first = await backup.cut()
            with pytest.raises(BackupRefused, match="is running"):
                await open_backup(admin, store, topics=topic, watched_s=lease.WATCHED_S / SCALE)
            second = await backup.cut()
        assert (first.cut, first.offsets, second.cut, second.offsets) == ("1-1", 6, "1-2", 6)
        async with await open_backup(admin, store, topics=topic) as backup:
            assert (await backup.cut()).cut == "2-1"
    found = await verify(store)
    assert (found.cuts, found.damages) == (3, ())


async def test_a_store_of_one_megabyte_per_second_gets_a_large_cut_in_bounded_memory(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    partitions, size = 8, 16 * MEGABYTE
    topic = await written(cluster, partitions, size)
    slow = SlowStore(FolderStore(tmp_path), bytes_per_s=BYTES_PER_S)
    store = RetryingStore(slow, 60)
    told: list[BackupProgress] = []
    async with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        await open_backup(admin, store, topics=topic, groups="") as backup,
    ):
        before = begin_maximum()
        cut = await backup.cut(progress=told.append)
        grown = resident("VmHWM") - before
    assert cut.copied is not None
    assert cut.copied >= partitions * size
    assert slow.held_max <= COPIED_AT_ONCE * (SEGMENT_BYTES + FETCH_BYTES)
    assert grown <= RESIDENT_MAX < cut.copied
    sizes = [progress.size for progress in told]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > partitions * size // FETCH_BYTES
    assert (told[-1].size, told[-1].partitions_done) == (cut.copied, partitions)
    assert (await verify(RetryingStore(FolderStore(tmp_path), 60))).damages == ()


def begin_maximum() -> int:
    """Let the kernel begin a new maximum of this process's memory. Returns the memory in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def resident(name: str) -> int:
    """Return the memory of this process, or its maximum, in bytes."""
    return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024


async def test_a_store_that_falls_silent_is_named_with_the_request_and_is_used_again_when_it_answers(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWED_EVERY_S", 0.05)
    monkeypatch.setattr(lease, "RELEASED_WITHIN_S", 0.2)
    topic = await written(cluster, 2, 1000)
    slow = SlowStore(FolderStore(tmp_path))
    store = RetryingStore(slow, 0.5)
    url = tmp_path.as_uri()
    refusal = rf"the object ({DATA}|{CUTS})\S+ was not created within 0.5 s, .*no answer in time \({url}\)"

    def fall_silent(progress: BackupProgress) -> None:
        slow.silent.set()

    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        backup = await open_backup(admin, store, topics=topic, groups="")
        with pytest.raises(ObjectStoreUnavailable, match=refusal):
            await backup.cut(progress=fall_silent)
        with pytest.raises(ObjectStoreUnavailable, match=rf"within 0.5 s.* \({url}\)"):
            await backup.cut()
        slow.silent.clear()
        async with asyncio.timeout(20):
            while True:
                try:
                    cut = await backup.cut()
                    break
                except ObjectStoreUnavailable:  # The lease has not been renewed yet.
                    await asyncio.sleep(0.01)
        assert cut.offsets == 2
        with pytest.raises(ObjectStoreUnavailable, match=refusal):
            async with backup, asyncio.timeout(20):  # The end of the block must not hide the failure.
                await written_again(cluster, topic)
                await backup.cut(progress=fall_silent)
    assert (await verify(RetryingStore(FolderStore(tmp_path), 5))).damages == ()


async def written_again(cluster: RunningCluster, topic: str) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait(topic, b"more", partition=0)


@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
async def test_a_full_disk_is_named_with_its_room_and_the_next_run_completes_the_backup(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments are of 8 MiB and more, so the disk is full in the middle of a segment."""
    topic = await written(cluster, 2, 12 * MEGABYTE)
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        with tmpfs(tmp_path / "disk", 18) as disk:
            url = disk.path.as_uri()
            small = await admin.create_backup(url, topics="none", groups="")
            room = rf"No space left on device: [\d,]+ of {18 * MEGABYTE:,} bytes are free on its file system \({url}\)"
            with pytest.raises(ObjectStoreFailed, match=rf"the object {DATA}\S+ was not created: {room}$"):
                await admin.create_backup(url, topics=topic, groups="")
            assert [cut.cut for cut in await admin.list_backup(url)] == [small.cut]
            assert (await admin.verify_backup(url)).damages == ()
            assert list((disk.path / "~incoming").iterdir()) == []
            grow(disk.path, 64)
            whole = await admin.create_backup(url, topics=topic, groups="")
            assert whole.offsets == 2 * 12 * MEGABYTE // RECORD_BYTES
            found = await admin.verify_backup(url)
            assert (found.cuts, found.damages) == (2, ())
            pruned = await admin.prune_backup(url, keep=1)
            assert pruned.kept == (whole.cut,)
            restored = await admin.restore_backup(url, renames={topic: f"{topic}-copy"})
            assert [each.offsets for each in restored.topics] == [whole.offsets]


def grow(path: Path, size_mb: int) -> None:
    """Make a tmpfs larger."""
    done = os.spawnlp(os.P_WAIT, "mount", "mount", "-o", f"remount,size={size_mb}m", str(path))
    assert done == 0
