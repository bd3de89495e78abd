"""A thread that writes the files of a round while the event loop reads the records of the next ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from .row_files import RowFiles

if TYPE_CHECKING:
    import pyarrow
    from pyiceberg.manifest import DataFile

WAITING_MAX: Final = 4
"""Batches of records that wait for the thread. It takes the time of some batches when it encodes a row group."""


class FileThread:
    """The files of a round, which one thread makes and writes. `add` batches, then `finish` or `discard`."""

    def __init__(self, make: Callable[[], RowFiles]) -> None:
        """`make` creates the files, in the thread, before the first batch."""
        self._make = make
        self._thread = ThreadPoolExecutor(1, "lake-files")
        self._files: RowFiles | None = None
        self._leaves_out = False
        self._adding: deque[asyncio.Future[None]] = deque()

    async def add(self, batch: pyarrow.RecordBatch) -> None:
        """Pass a batch to the thread, and wait until few batches wait there.

        Raises the error with which the thread failed to write this or an earlier batch.
        """
        self._adding.append(asyncio.get_running_loop().run_in_executor(self._thread, self._add, batch))
        while len(self._adding) > WAITING_MAX:
            await self._adding.popleft()

    async def finish(self) -> tuple[list[DataFile], list[DataFile]]:
        """Return the files of rows, and those of dead letters, once all batches are in them. Raises as `add` does."""
        while self._adding:
            await self._adding.popleft()
        done = await asyncio.get_running_loop().run_in_executor(self._thread, self._finish)
        self._thread.shutdown(wait=False)
        return done

    async def discard(self) -> None:
        """End the thread after the batch that it writes, and delete all files."""
        self._leaves_out = True
        await asyncio.gather(*self._adding, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._discard)
        self._thread.shutdown(wait=False)

    def _add(self, batch: pyarrow.RecordBatch) -> None:
        if self._leaves_out:
            return  # The files are discarded, or an earlier batch has failed, which the caller learns by that batch.
        try:
            if self._files is None:
                self._files = self._make()
            self._files.add(batch)
        except BaseException:
            self._leaves_out = True
            raise

    def _finish(self) -> tuple[list[DataFile], list[DataFile]]:
        return ([], []) if self._files is None else self._files.finish()

    def _discard(self) -> None:
        if self._files is not None:
            self._files.discard()
