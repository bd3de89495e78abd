"""A producer's spool as a whole: its part in `send`, `flush`, `sync` and `stop`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ..connections.cluster import Cluster
from ..failures import ClientClosed, LeftInSpool, SpoolFileDeleted, SpoolFull, SpoolUnusable
from ..producing.pending import PendingRecord
from .delivery import Courier, Delivery, in_thread
from .folder import INDEX_BITS, Folder
from .futures import SpooledFuture, WaitingFutures
from .rejected_records import RejectedRecords
from .spool_log import SpoolLog

STOP_S: Final = 5.0
"""Time in seconds for which `stop` continues to deliver."""
SEGMENT_BYTES_MAX: Final = 4 << 20
FRAME_OVERHEAD: Final = 64
"""Bytes that a frame takes besides the record and its topic."""
YIELD_BYTES: Final = 64 << 10
"""Number of bytes after which `send` yields to the event loop."""
RECORDS_PER_LIMIT: Final = 4
"""Number of the largest records that fit into the smallest spool."""
logger = logging.getLogger(__name__)


class Spooled(NamedTuple):
    """The content of a spool.

    `records` is the number of records that wait to be delivered, `bytes` the size of all its files, including rejected
    and damaged ones. `rejected` is the number of records in the file 'rejected', `damaged` the number of files that
    hold unreadable data. `error` is the reason why records are not delivered now.
    """

    records: int = 0
    bytes: int = 0
    rejected: int = 0
    damaged: int = 0
    error: Exception | None = None


class Spool:
    """The spool of a producer with a `spool_dir`: a folder of records that wait for delivery."""

    def __init__(
        self,
        path: Path,
        bytes_max: int,
        patience_s: float,
        cluster: Cluster,
        courier: Callable[[str], Courier],
        attempt_s_max: float,
    ) -> None:
        """`patience_s` is how long `send` waits while the spool is full; `courier` creates a producer for a
        transactional id. `attempt_s_max` is the longest that a transaction may wait for acknowledgements."""
        self.path = path
        self._bytes_max = bytes_max
        self._patience_s = patience_s
        self._cluster = cluster
        self._courier = courier
        self._attempt_s_max = attempt_s_max
        self._folder = Folder(path)
        self._rejected = RejectedRecords(path)
        self._waiting = WaitingFutures()
        self._log: SpoolLog | None = None
        self._delivery: Delivery | None = None
        self._task: asyncio.Task[None] | None = None
        self._unyielded = 0
        self._stopped = False
        self._left: Spooled | None = None

    async def start(self) -> None:
        """Open the spool's folder and begin to deliver its records. Raises SpoolUnusable."""
        try:
            log = await in_thread(self._open)
        except asyncio.CancelledError:
            self._folder.close()
            raise
        self._delivery = Delivery(
            self._folder,
            log,
            self._rejected,
            self._waiting,
            self._cluster,
            self._courier,
            self._patience_s,
            self._attempt_s_max,
        )
        self._log = log
        self._task = asyncio.ensure_future(self._delivery.run())

    def _open(self) -> SpoolLog:
        try:
            self._folder.open()
            base = self._folder.identity.run << INDEX_BITS
            log = SpoolLog(self.path, base, min(SEGMENT_BYTES_MAX, self._bytes_max // 8))
            log.open()
            self._rejected.open(self._folder.checkpoint.delivered)
            return log
        except OSError as error:
            self._folder.close()
            raise SpoolUnusable(f"the spool {self.path} cannot be opened: {error}") from error
        except BaseException:
            self._folder.close()
            raise

    # ------------------------------------------------------------ sending

    def check(self) -> None:
        """Raise the error that prevents new records, or their delivery."""
        if self._task is None:
            raise RuntimeError(f"the spool {self.path} is being opened: wait for the producer's start")
        if self._stopped:
            raise ClientClosed(f"the producer was stopped, and has let the spool {self.path} go")
        delivery = self._started[1]
        if delivery.dead:
            raise SpoolUnusable(
                f"the spool {self.path} delivers no more: {delivery.error}"
            ) from delivery.error

    def has_room(self, topic: str, size: int) -> bool:
        """Return whether the spool has room for a record of estimated `size` bytes."""
        used = self._started[0].bytes + self._rejected.bytes
        return used + size + len(topic) + FRAME_OVERHEAD <= self._bytes_max

    async def room(self, topic: str, size: int) -> None:
        """Wait until the spool has room for a record of estimated `size` bytes. Raises SpoolFull."""
        _, delivery = self._started
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                while not self.has_room(topic, size):
                    self.check()
                    await delivery.moved()
                return
        now = self.spooled
        raise SpoolFull(
            f"the spool {self.path} was full for {self._patience_s:g} s of max_block_ms: {now.bytes} of "
            f"{self._bytes_max} bytes (spool_bytes_max), {now.records} records wait; {self._rejected.bytes} bytes are "
            f"rejected records. The delivery's last error: {delivery.error}"
        )

    def add(self, topic: str, partition: int | None, record: PendingRecord) -> tuple[SpooledFuture, bool]:
        """Write a record. Returns its future, and whether it is time to yield to the event loop."""
        if partition is not None and not 0 <= partition < 1 << 31:
            raise ValueError(f"partition is a whole number from 0 on, or None, not {partition!r}")
        log, delivery = self._started
        key, value, timestamp_ms, headers = record
        before = log.bytes
        position = log.append(topic, partition, key, value, timestamp_ms, headers)
        future = SpooledFuture(topic, partition, timestamp_ms)
        self._waiting.add(position, future)
        delivery.appended.set()
        self._unyielded += log.bytes - before
        if self._unyielded < YIELD_BYTES:
            return future, False
        self._unyielded = 0
        return future, True

    async def flush(self) -> None:
        """Wait until all records added to the spool before are delivered or rejected. Raises SpoolUnusable."""
        log, delivery = self._started
        end = log.end
        while delivery.position < end:
            self.check()
            await delivery.moved()

    async def sync(self) -> None:
        """Return once all records added to the spool before are on the disk. Raises SpoolUnusable."""
        await in_thread(self._started[0].sync)

    @property
    def spooled(self) -> Spooled:
        """The state of the spool: numbers of records and bytes, and the reason for a wait."""
        if self._left is not None:
            return self._left
        if self._log is None or self._delivery is None:
            return Spooled()
        return Spooled(
            self._log.count_from(self._delivery.position),
            self._log.bytes + self._rejected.bytes,
            self._rejected.count,
            self._log.damaged,
            self._delivery.error,
        )

    # ------------------------------------------------------------ the end

    async def stop(self) -> None:
        """Deliver records for up to STOP_S, then close the folder; undelivered records remain in it."""
        if self._task is None or self._log is None or self._delivery is None:
            return
        try:
            with suppress(TimeoutError, SpoolUnusable):
                async with asyncio.timeout(STOP_S):
                    await self.flush()
        finally:
            self._stopped = True  # for callers that wait for room: the end of the task wakes them
            self._task.cancel()
            await asyncio.wait([self._task])
            try:
                await in_thread(self._close)
            finally:  # A disk that fails now must not keep callers waiting.
                self._waiting.all_failed(
                    LeftInSpool(
                        f"the producer was stopped; the record is in the spool {self.path} for the next one"
                    )
                )

    def _close(self) -> None:
        log, delivery = self._started
        left = self.spooled
        known = 0  # position that the folder certainly knows: no file with later records is deleted
        try:
            try:
                log.sync()
            except SpoolFileDeleted:
                if not delivery.dead:  # else the error was raised already
                    raise
            self._folder.keep(delivery.clean_checkpoint, durably=True)
            known = delivery.position
        finally:
            try:
                log.close(known)
            finally:
                self._folder.close()
                self._left = left._replace(bytes=log.bytes + self._rejected.bytes)
        if left.records:
            logger.warning(
                "spool %s: %d records were not delivered and stay there for the next producer (%d bytes; %s)",
                self.path, left.records, left.bytes, left.error or "there was no time",
            )  # fmt: skip

    @property
    def _started(self) -> tuple[SpoolLog, Delivery]:
        assert self._log is not None
        assert self._delivery is not None
        return self._log, self._delivery
