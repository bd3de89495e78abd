"""Logs in memory for the shards of share states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ottla.protocol.records.record_batch import parse_header
from tests.dataplane.groups.test_shard import MemoryLog


class StateMemoryLog(MemoryLog):
    """A partition of `__share_group_state` in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.start_offset = 0

    def trim(self, offset: int) -> None:
        self.start_offset = offset

    async def read_all(self) -> AsyncIterator[memoryview]:
        for batch in list(self.batches):
            if parse_header(batch).next_offset > self.start_offset:
                yield memoryview(batch)
                await asyncio.sleep(0)
