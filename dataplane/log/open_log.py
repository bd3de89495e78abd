"""A log that is open, as its own parts see it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...protocol.errors import KafkaError
    from .config import LogConfig
    from .leader_epochs import LeaderEpochs
    from .producers.producer_state import ProducerStates
    from .segments.segment_list import SegmentList


class OpenLog(Protocol):
    """`PartitionLog`, as far as the parts need it that work on the whole of it."""

    config: LogConfig
    producers: ProducerStates
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int

    @property
    def directory(self) -> Path: ...
    @property
    def segment_list(self) -> SegmentList: ...
    def check_usable(self) -> None:
        """Raises KafkaError: KAFKA_STORAGE_ERROR."""

    def fail(self, error: KafkaError) -> None:
        """Take the log offline."""

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end. Raises KafkaError: KAFKA_STORAGE_ERROR."""
