"""Batches of topics with a compression.type of their own: brought into it in a few threads, appended as they came.

The partition decides the order, not the thread that is done first: what comes behind a batch that is still being
compressed waits for it, even if it is in the right form already. So producers with several requests under way keep
their sequences, and a connection its answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ...protocol.compression import Compression
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record import recompressed
from ...protocol.record_batch import COMPRESSION_MASK, HEADER_SIZE, parse_header, validate_produced
from ..log import LogConfig
from ..log.append_checks import check_limits
from ..log.config import StoredCompression
from ..replication.partition import Partition
from .connection import Connection

_THREADS = 2
_EXPANDED_BYTES_MAX = 64 << 20
_HELD_BYTES_MAX = 128 << 20
"""Of batches that wait, over all partitions; more are refused, and the producer tries again."""
_MUTED_BYTES = _HELD_BYTES_MAX // 4
_MUTED_MS = 100
"""From so many waiting bytes on, connections that bring more are not read for so long."""

log = logging.getLogger(__name__)

Outcome = bytearray | KafkaError
Append = Callable[[Outcome], None]


class _Batch:
    """One batch on its way; `outcome` is what to append, or why not."""

    __slots__ = ("append", "data", "outcome", "size")

    def __init__(self, data: bytearray, append: Append) -> None:
        self.data = data
        self.size = len(data)
        self.append = append
        self.outcome: Outcome | None = None


class Recompression:
    """The batches under way, by partition. Owned by the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="recompress")
        self.waiting: dict[Partition, deque[_Batch]] = {}
        """Empty while nothing is under way."""
        self._held_bytes = 0

    def takes(self, partition: Partition, records: memoryview) -> bool:
        """Whether this batch has to come here: it has another compression than the topic's, or others of its
        partition are on their way."""
        if partition in self.waiting:
            return True
        return partition.leader is not None and not _is_stored(records, partition.settings.stored)

    def submit(
        self, partition: Partition, records: memoryview, connection: Connection, append: Append
    ) -> None:
        """Call `append` once with the batch as the topic wants it, or what is wrong with it: after those that came
        before, perhaps within this call. `records` are copied.

        KafkaError: REQUEST_TIMED_OUT if too much waits already; nothing is appended then.
        """
        size = len(records)
        if self._held_bytes + size > _HELD_BYTES_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{self._held_bytes} bytes wait to be compressed already"
            )
        data = bytearray(records)
        batch = _Batch(data, append)
        self._held_bytes += size
        if self._held_bytes > _MUTED_BYTES:
            connection.mute(_MUTED_MS)
        self.waiting.setdefault(partition, deque()).append(batch)
        stored = partition.settings.stored
        if stored is None or _is_stored(data, stored) or partition.log.has(data):
            self._done(partition, batch, data)
            return
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, _compress, data, stored.codec, stored.level, partition.log.config
        )
        work.add_done_callback(lambda done: self._compressed(partition, batch, done))

    def _compressed(self, partition: Partition, batch: _Batch, work: asyncio.Future[Outcome]) -> None:
        if work.cancelled():
            self._done(partition, batch, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker stops"))
        elif error := work.exception():
            log.error("a batch of %r cannot be compressed", partition, exc_info=error)
            self._done(partition, batch, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            self._done(partition, batch, work.result())

    def _done(self, partition: Partition, batch: _Batch, outcome: Outcome) -> None:
        batch.outcome = outcome
        waiting = self.waiting[partition]
        while waiting and (ready := waiting[0].outcome) is not None:
            first = waiting.popleft()
            self._held_bytes -= first.size
            # What was appended meanwhile, sent before, is a duplicate whatever is wrong with it now.
            refused = isinstance(ready, KafkaError)
            first.append(first.data if refused and partition.log.has(first.data) else ready)
        # An append may answer requests, and so bring the next ones, within the loop above.
        if not waiting and self.waiting.get(partition) is waiting:
            del self.waiting[partition]

    def close(self) -> None:
        """Begin nothing more; what has not begun is refused."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_stored(records: bytearray | memoryview, stored: StoredCompression | None) -> bool:
    """Whether the batch can be appended as it is; what is too short for one is left to the append to refuse."""
    if stored is None or len(records) < HEADER_SIZE:
        return True
    return parse_header(records).attributes & COMPRESSION_MASK == stored.codec


def _compress(data: bytearray, codec: Compression, level: int | None, config: LogConfig) -> Outcome:
    """In a thread. The checks are those of an append, which has to make them before the CRC is made anew."""
    try:
        parsed = validate_produced(data)
        check_limits(parsed, len(data), config)
        (_,) = parsed
        return recompressed(data, codec, level, _EXPANDED_BYTES_MAX)
    except KafkaError as error:
        return error
    except MemoryError:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "there is no memory to compress the batch anew")
