"""The interface of a coordinator's log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from ...protocol.errors import ErrorCode

COORDINATOR_ERRORS: Final = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Errors that a coordinator's clients get for errors of its log, as Kafka maps them."""


class CoordinatedLog(Protocol):
    """The interface of a replicated partition of an internal topic on its leader: appends, and reads of all batches."""

    @property
    def end_offset(self) -> int:
        """The offset of the next batch that is appended to the partition."""

    def append(self, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        """Append one batch. `done` is called once: with NONE when the batch is below the high watermark, or else with
        the error.

        If `done` gets an error before this method returns, nothing was appended.
        """

    def append_transactional(self, batch: bytearray) -> int:
        """Append one batch of a transaction; return the next offset. Raises KafkaError if nothing was appended."""

    def on_high_watermark(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once: with NONE when the high watermark reaches `offset`, or else with the reason why that is not
        known."""

    def read_all(self) -> AsyncIterator[memoryview]:
        """Yield whole batches from the log start to the log end, and yield to the event loop in between."""
