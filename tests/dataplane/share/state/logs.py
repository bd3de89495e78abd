"""Logs in memory for the shards of share states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ottla.protocol.records.record import ControlRecord, ControlType, encode_control_batch
from ottla.protocol.records.record_batch import parse_header, patch_offset_and_epoch
from tests.dataplane.groups.test_shard import MemoryLog


class StateMemoryLog(MemoryLog):
    """A partition of `__share_group_state` in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.start_offset = 0

    def trim(self, offset: int) -> None:
        self.start_offset = offset

    def append_marker(self, producer_id: int, *, committed: bool) -> int:
        """Append a marker, and return the next offset."""
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        batch = bytearray(
            encode_control_batch(
                ControlRecord(kind, 0, 0), timestamp_ms=0, producer_id=producer_id, producer_epoch=0
            )
        )
        patch_offset_and_epoch(batch, 0, self.end_offset, 0)
        self.batches.append(bytes(batch))
        return self.end_offset

    async def read_all(self) -> AsyncIterator[memoryview]:
        for batch in list(self.batches):
            if parse_header(batch).next_offset > self.start_offset:
                yield memoryview(batch)
                await asyncio.sleep(0)
