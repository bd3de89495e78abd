"""A log that is open, as its own parts see it."""

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
    """What an append did; offsets and times are those of the original if it was a duplicate."""

    first_offset: int
    last_offset: int
    append_time_ms: int
    """When the log stamped the records; -1 if their producer did."""
    max_timestamp: int
    size: int
    """Bytes appended; 0 for a duplicate."""
    duplicate: bool


class OpenLog(Protocol):
    """`PartitionLog`, as far as the parts need it that work on the whole of it."""

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
        """Raises KafkaError: KAFKA_STORAGE_ERROR."""

    def on_move(self) -> object:
        """Called by whatever changes an end of the log, its epochs or its files."""

    def fail(self, error: KafkaError) -> None:
        """Take the log offline."""

    def append_placed(
        self, batches: memoryview, placement: PlacedBatches, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """As leader, append what has its place. Raises KafkaError: KAFKA_STORAGE_ERROR; nothing was appended."""
        ...

    def append_sole(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """As leader, append one batch in which nothing but its place is to be patched. Raises KafkaError:
        KAFKA_STORAGE_ERROR; nothing was appended."""
        ...

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end. Raises KafkaError: KAFKA_STORAGE_ERROR."""
