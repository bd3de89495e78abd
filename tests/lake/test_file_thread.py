"""The thread that writes a round's files: it works beside the reader, in order, and stops at a failure."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile

from ottla.lake.file_thread import WAITING_MAX, FileThread

WAIT_S = 20.0


def batch(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": [number]})


class NotedFiles:
    """Files that note their batches. They stand still until `go_on` is set, and fail at one number."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.numbers: list[int] = []
        self.go_on = threading.Event()
        self.discarded = 0
        self._fails_at = fails_at

    def add(self, added: pa.RecordBatch) -> None:
        assert self.go_on.wait(WAIT_S)
        number = added.column(0)[0].as_py()
        self.numbers.append(number)
        if number == self._fails_at:
            raise OSError(28, "no space left")

    def finish(self) -> tuple[list[DataFile], list[DataFile]]:
        return [DataFile.from_args(file_path=f"with {len(self.numbers)} batches")], []

    def discard(self) -> None:
        self.discarded += 1


async def test_the_reader_goes_on_while_batches_are_written_until_enough_of_them_wait() -> None:
    files = NotedFiles()
    thread = FileThread(lambda: files)
    async with asyncio.timeout(WAIT_S):
        for number in range(WAITING_MAX):
            await thread.add(batch(number))
    one_more = asyncio.create_task(thread.add(batch(WAITING_MAX)))
    done, _ = await asyncio.wait([one_more], timeout=0.05)
    assert not done
    files.go_on.set()
    async with asyncio.timeout(WAIT_S):
        await one_more
        rows, letters = await thread.finish()
    assert files.numbers == list(range(WAITING_MAX + 1))
    assert [file.file_path for file in rows] == [f"with {WAITING_MAX + 1} batches"]
    assert letters == []


async def test_a_failure_is_raised_and_the_files_are_deleted_once() -> None:
    files = NotedFiles(fails_at=0)
    thread = FileThread(lambda: files)
    files.go_on.set()
    with pytest.raises(OSError, match="no space left"):
        async with asyncio.timeout(WAIT_S):
            for number in range(WAITING_MAX):
                await thread.add(batch(number))
            await thread.finish()
    await thread.discard()
    assert files.discarded == 1
    assert files.numbers == [0], "no batch is written after the failure"


async def test_batches_that_wait_are_left_out_when_the_files_are_discarded() -> None:
    files = NotedFiles()
    thread = FileThread(lambda: files)
    for number in range(3):
        await thread.add(batch(number))
    discarding = asyncio.create_task(thread.discard())
    await asyncio.sleep(0)
    files.go_on.set()
    async with asyncio.timeout(WAIT_S):
        await discarding
    assert files.numbers in ([], [0])
    assert files.discarded == 1


async def test_a_round_without_records_makes_no_files() -> None:
    made: list[NotedFiles] = []

    def make() -> NotedFiles:
        made.append(NotedFiles())
        return made[-1]

    assert await FileThread(make).finish() == ([], [])
    await FileThread(make).discard()
    assert made == []
