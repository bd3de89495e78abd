"""An offsets partition in memory whose high watermark the test moves, with a broker's markers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record_batch import parse_header

from .test_shard import MemoryLog


class TransactionalLog(MemoryLog):
    """A log whose high watermark moves by `advance`; waiting callers are notified in log order."""

    def __init__(self) -> None:
        super().__init__()
        self.high_watermark = 0
        self._acknowledgements: list[tuple[int, Callable[[ErrorCode], None]]] = []

    def on_high_watermark(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        if self.high_watermark >= offset:
            done(ErrorCode.NONE)
        else:
            self._acknowledgements.append((offset, done))

    def advance(self, offset: int | None = None) -> None:
        """Move the high watermark to `offset`, or to the log end."""
        reached = self.end_offset if offset is None else min(offset, self.end_offset)
        self.high_watermark = max(self.high_watermark, reached)
        waiting, self._acknowledgements = self._acknowledgements, []
        for end, done in waiting:
            if end <= self.high_watermark:
                done(ErrorCode.NONE)
            else:
                self._acknowledgements.append((end, done))

    def fail_over(self, keep: int) -> None:
        """Let another broker lead; all but `keep` of the batches above the high watermark are lost."""
        committed = sum(parse_header(each).next_offset <= self.high_watermark for each in self.batches)
        del self.batches[committed + keep :]
        waiting, self._acknowledgements = self._acknowledgements, []
        for _, done in waiting:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def end(self, coordinator: GroupCoordinator, producer_id: int, *, committed: bool) -> None:
        """Write a marker, and notify the coordinator once it is below the high watermark."""
        end = self.append_marker(producer_id, committed=committed)

        def replicated(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                coordinator.transaction_ended(0, producer_id, end, committed=committed)

        self.on_high_watermark(end, replicated)

    async def read_all(self) -> AsyncIterator[memoryview]:
        end = self.end_offset
        for batch in list(self.batches):
            yield memoryview(batch)
            await asyncio.sleep(0)
        self.advance(end)
