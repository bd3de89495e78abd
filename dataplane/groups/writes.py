"""Writes to a shard's log: what they come to for clients, and how long clients wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

from ...protocol.errors import ErrorCode
from .records import KeyValue, batch_of


class OffsetsLog(Protocol):
    """One replicated partition of `__consumer_offsets`, as its leader sees it."""

    def append(self, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        """Append one batch; `done` is called once, below the high watermark or with why not."""

    def read_all(self) -> AsyncIterator[memoryview]:
        """Whole batches from the log start to the log end, yielding to the loop in between."""


class ShardWrites:
    """Appends for one shard, until it is closed."""

    def __init__(self, log: OffsetsLog, now_ms: Callable[[], int], timeout_s: float) -> None:
        """`timeout_s` is Kafka's `offsets.commit.timeout.ms`."""
        self._log, self._now_ms, self._timeout_s = log, now_ms, timeout_s
        self.closed = False

    def write(
        self,
        records: Iterable[KeyValue],
        done: Callable[[ErrorCode], None],
        show: Callable[[], None] = lambda: None,
    ) -> None:
        """Append records: `show` once they are committed, however late; `done` with outcome or timeout."""
        late = False

        def time_out() -> None:
            nonlocal late
            late = True
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        def written(error: ErrorCode) -> None:
            timer.cancel()
            if error is ErrorCode.NONE and not self.closed:
                show()
            if not late:
                done(_for_clients(error))

        timer = asyncio.get_running_loop().call_later(self._timeout_s, time_out)
        self._log.append(batch_of(list(records), self._now_ms()), written)


_CLIENT_ERRORS = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def _for_clients(error: ErrorCode) -> ErrorCode:
    """What a failed write to the offsets log means to a group member, as Kafka maps it."""
    return _CLIENT_ERRORS.get(error, error)
