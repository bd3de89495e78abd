"""A slow, continuous check of all closed segments. It verifies each batch's CRC, and offsets and leader epochs, which
no CRC covers.

Without it, bytes that rot in unread segments would be noticed only when they are needed, after the other replicas are
gone. A log that proves to be damaged is passed to a callback, so that it is copied again while other replicas have its
records.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ...protocol.errors import KafkaError
from ..log.segments.batch_walk import SCAN_CHUNK, walk_file
from ..log.storage_errors import BrokenBatch, damage
from ..runtime.threads import in_thread
from ..runtime.time_slices import in_time_slices
from .replica import StoredReplica

if TYPE_CHECKING:
    from ...protocol.records.record_batch import BatchHeader
    from ..log.segments.segment import Segment

logger = logging.getLogger(__name__)

_Replica = TypeVar("_Replica", bound=StoredReplica)

_PIECE_BYTES = 256 * 1024
_FIRST_ROUND_S = 30.0


class LogVerifier(Generic[_Replica]):
    """A task that reads all closed segments of all logs to find damage, in a different order each round, and rests
    between rounds.
    """

    def __init__(
        self,
        replicas: Callable[[], Iterable[_Replica]],
        condemn: Callable[[_Replica, KafkaError], None],
        bytes_per_second: int,
        rest_ms: int,
    ) -> None:
        self._replicas = replicas
        self._condemn = condemn
        self._bytes_per_second = bytes_per_second
        self._rest_s = rest_ms / 1000
        self._chance = random.Random(os.urandom(16))
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the verification task, unless the read rate is 0."""
        if self._bytes_per_second:
            self._task = asyncio.create_task(self._verify_for_ever(), name="verify logs")

    async def _verify_for_ever(self) -> None:
        await asyncio.sleep(min(_FIRST_ROUND_S, self._rest_s))
        while True:
            await self.verify_all()
            await asyncio.sleep(self._rest_s)

    async def verify_all(self) -> None:
        """Verify all logs once. Most logs have no closed segment, and are skipped."""
        held = in_time_slices(list(self._replicas()))
        partitions = [partition async for partition in held if len(partition.log.segment_list) > 1]
        self._chance.shuffle(partitions)
        for partition in partitions:
            partition_log = partition.log
            for segment in partition_log.segments[:-1]:
                if partition.log is not partition_log or partition_log.failure is not None:
                    break
                await self._verify(partition, segment)
            await asyncio.sleep(0)

    async def _verify(self, partition: _Replica, segment: Segment) -> None:
        partition_log = partition.log
        cuts = partition_log.durability.cuts
        segments = partition_log.segments
        if segment not in segments[:-1]:
            return  # The segment was dropped, or cut and reopened, while other segments were read.
        try:
            descriptor = segment.descriptor()
        except KafkaError:
            return  # The segment was dropped meanwhile, or the disk refuses, which the next reader will notice.
        try:
            walk = walk_file(
                descriptor.fd,
                0,
                segment.size,
                next_offset=segment.base_offset,
                contiguous=partition_log.is_contiguous,
                upto=segments[segments.index(segment) + 1].base_offset,
                epochs=partition_log.leader_epochs.copy(),
                verify_from=0,
                chunk=SCAN_CHUNK,
            )
            ended = False
            while not ended:
                read, ended = await in_thread(partial(_walk_on, walk))
                await asyncio.sleep(read / self._bytes_per_second)
        except BrokenBatch as broken:
            unchanged = partition.log is partition_log and partition_log.durability.cuts == cuts
            if unchanged and partition_log.failure is None and segment in partition_log.segments:
                found = damage(segment.path, broken.position, broken.reason)
                found.__cause__ = broken
                self._condemn(partition, found)
        except OSError as error:
            logger.warning("cannot verify %s: %s", segment.path, error.strerror)
        finally:
            descriptor.release()

    async def close(self) -> None:
        """Stop the verification task, once the disk has answered."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _walk_on(walk: Iterator[tuple[int, BatchHeader]]) -> tuple[int, bool]:
    """Read and check the next batches of a segment, about `_PIECE_BYTES`. Returns the number of bytes, and whether the
    segment's end was reached.
    """
    read = 0
    for _, header in walk:
        read += header.size
        if read >= _PIECE_BYTES:
            return read, False
    return read, True
