"""The interface of an open log for its own parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ...protocol.errors import KafkaError
    from ...protocol.records.record_batch import BatchHeader
    from .config import LogConfig
    from .leader_epochs import LeaderEpochs
    from .placement import PlacedBatches
    from .producers.producer_state import ProducerStates
    from .segments.segment_list import SegmentList


class AppendResult(NamedTuple):
    """The result of an append; offsets and times are those of the original if the batch was a duplicate."""

    first_offset: int
    last_offset: int
    append_time_ms: int
    """The time at which the log stamped the records; -1 if their producer stamped them."""
    max_timestamp: int
    size: int
    """Bytes appended; 0 for a duplicate."""
    duplicate: bool


class OpenLog(Protocol):
    """The interface of an open `PartitionLog` for the modules that implement it, such as truncation and retention."""

    config: LogConfig
    producers: ProducerStates
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    start_moved: bool

    @property
    def directory(self) -> Path: ...
    @property
    def segment_list(self) -> SegmentList: ...
    def check_usable(self) -> None:
        """Raise KafkaError, KAFKA_STORAGE_ERROR, if the log is offline or closed."""

    def on_move(self) -> object:
        """Report a change of the log's start or end, its epochs or its files to the owner of the log."""

    def fail(self, error: KafkaError) -> None:
        """Take the log offline because of this error: its appends and reads fail from now on."""

    def append_placed(
        self, batches: memoryview, placement: PlacedBatches, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append, as the leader, batches that have their offsets. Raises KafkaError: KAFKA_STORAGE_ERROR; nothing was
        appended."""
        ...

    def append_single(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append, as the leader, one batch of which only the offset and the epoch have to be patched. Raises
        KafkaError: KAFKA_STORAGE_ERROR; nothing was appended."""
        ...

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end. Raises KafkaError: KAFKA_STORAGE_ERROR."""
