"""A partition of an internal topic as a coordinator's shard uses it: replicated appends, replay from the start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.record_batch import walk_batches
from ..replication.replica.partition import Partition

READ_BYTES = 64 * 1024
"""Bytes that are replayed in one turn of the event loop."""


class ReplicatedLog:
    """The `CoordinatedLog` of a shard, implemented by a partition that this broker leads."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def end_offset(self) -> int:
        """The offset of the next batch that is appended to the partition."""
        return self._partition.log.log_end_offset

    @property
    def start_offset(self) -> int:
        """The first offset of the partition that is not removed."""
        return self._partition.log.log_start_offset

    def trim(self, offset: int) -> None:
        """Remove the records below an offset from all replicas.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER; OFFSET_OUT_OF_RANGE above the high watermark.
        """
        self._partition.record_deletion.trim(offset)

    def append(self, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        """Append with acks=all. `done` gets NONE once the batch is below the high watermark, or else the error."""
        try:
            result = self._partition.append(memoryview(batch), required_acks=-1)
        except KafkaError as error:
            done(error.code)
            return
        self._partition.on_high_watermark(result.last_offset + 1, done)

    def append_transactional(self, batch: bytearray) -> int:
        """Append a batch of a transaction; return the next offset.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE, KAFKA_STORAGE_ERROR.
        """
        limit = self._partition.log.config.max_message_bytes
        if len(batch) > limit:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"offsets of {len(batch)} bytes for {self._partition!r} exceed max.message.bytes={limit}",
            )
        return self._partition.append_unsequenced(memoryview(batch))

    def on_high_watermark(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` with NONE once the high watermark reaches `offset`, or else with the reason why that is not
        known."""
        self._partition.on_high_watermark(offset, done)

    async def read_all(self) -> AsyncIterator[memoryview]:
        """Yield all batches up to the log end, and return once they are committed.

        The batches include all that the former leader has answered to clients. Records that are not yet committed must
        not be answered.
        """
        async for data in self.read_below(self.end_offset):
            yield data

    async def read_below(self, limit: int) -> AsyncIterator[memoryview]:
        """Yield all batches below `limit`, at which a batch begins, and return once they are committed."""
        log = self._partition.log
        offset, end = log.log_start_offset, min(limit, log.log_end_offset)
        while offset < end:
            # Not `log`: the replica may move into another folder between two turns of the loop.
            piece = self._partition.log.read(offset, READ_BYTES, end, at_least_one=True)
            try:
                data = os.pread(piece.fileno(), piece.size, piece.position)
            finally:
                piece.release()
            if len(data) != piece.size or not data:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._partition} ends before {end}")
            yield memoryview(data)
            offset = max(header.next_offset for _, header in walk_batches(data))
            await asyncio.sleep(0)
        await self._committed(end)

    async def _committed(self, offset: int) -> None:
        outcome = await self._partition.high_watermark_at(offset)
        if outcome is not ErrorCode.NONE:
            raise KafkaError(outcome)
