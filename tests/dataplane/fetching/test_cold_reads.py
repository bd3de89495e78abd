"""Records that are not in the page cache are read in threads; the event loop and other connections go on."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ottla.dataplane.fetching import cold_reads
from ottla.dataplane.log import LogSlice

from .consumers import Consumer, Shelf, offsets, parts_of, wanted

ID = b"t" * 16
BATCHES, BATCH_BYTES = 40, 100_000


def run(directory: Path, test: Callable[[Shelf], Coroutine[Any, Any, None]]) -> None:
    async def body() -> None:
        shelf = Shelf(directory)
        try:
            shelf.create("t", ID, 1)
            for number in range(BATCHES):
                shelf.append("t", 0, bytes([number]) * BATCH_BYTES)
            await test(shelf)
        finally:
            await shelf.close()

    asyncio.run(body())


def evict(shelf: Shelf) -> None:
    """Make the kernel drop the topic's file from its cache; skip the test where it does not (tmpfs).

    Readahead is off, since otherwise a fast disk brings the whole batch while the handler reads its header.
    """
    (segment,) = shelf.replica("t").log.segments
    fd = os.open(segment.path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    with_records = shelf.replica("t").log.read(0, BATCH_BYTES * 2, BATCHES, at_least_one=True)
    os.posix_fadvise(with_records.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    cached = with_records.is_cached()
    with_records.release()
    if cached:
        pytest.skip("this file system keeps its files in memory")


@pytest.mark.parametrize("size", [BATCH_BYTES + 1000, 20 * BATCH_BYTES])
def test_cold_records_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    readers: list[str] = []
    go_on = threading.Event()
    really = cold_reads._read_ahead

    def reading(slices: Any) -> None:
        readers.append(threading.current_thread().name)
        assert go_on.wait(20)
        really(slices)

    monkeypatch.setattr(cold_reads, "_read_ahead", reading)

    async def body(shelf: Shelf) -> None:
        consumer, other = Consumer(shelf), Consumer(shelf)
        evict(shelf)
        try:
            # From the middle: looking the offset up has read what lies before.
            consumer.send([wanted(ID, (0, 10), partition_max_bytes=size)], max_bytes=size)
            assert not consumer.adapter.answers, "it waits for the disk"
            shelf.append("t")
            tail = other.fetch([wanted(ID, (0, BATCHES))])
            assert offsets(parts_of(tail)[ID, 0]) == [BATCHES], "the loop does not"
        finally:
            go_on.set()
        part = parts_of(await consumer.answered())[ID, 0]
        assert offsets(part)[0] == 10
        assert bytes(part.records or b"")[-BATCH_BYTES // 2] == offsets(part)[-1]
        assert len(readers) == shelf.handlers.cold_reads.count == 1
        assert readers[0].startswith("cold reads")
        consumer.fetch([wanted(ID, (0, 10), partition_max_bytes=size)], max_bytes=size)
        assert shelf.handlers.cold_reads.count == 1, "now it is warm: no thread"

    run(tmp_path, body)


def test_a_client_that_goes_while_its_records_are_read(tmp_path: Path) -> None:
    async def body(shelf: Shelf) -> None:
        evict(shelf)
        consumer = Consumer(shelf)
        consumer.send([wanted(ID, (0, 10))])
        consumer.adapter.close()
        await consumer.answered()

    run(tmp_path, body)


def test_records_that_the_disk_refuses_end_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks elsewhere, and does not wait for an answer that never comes."""

    def refused(_slice: LogSlice) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def body(shelf: Shelf) -> None:
        consumer = Consumer(shelf)
        monkeypatch.setattr(LogSlice, "read_cached", refused)
        consumer.send([wanted(ID, (0, 0), partition_max_bytes=1000)], max_bytes=1000)
        assert not consumer.adapter.answers
        assert consumer.adapter.closed

    run(tmp_path, body)
