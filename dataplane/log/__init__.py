"""The log: partitions as files in Kafka's on-disk layout.

``PartitionLog`` is one partition: segments, indexes, leader epochs and producer state. ``LogDirectory`` is
one data folder: its lock, identity, checkpoints and logs. The one rule: bytes that were appended are never
changed and never served if they cannot be trusted; truncation, deletion and compaction are the only ways they
go.
"""

from ..storage.directory import LogDirectory
from ..storage.meta_properties import MetaProperties
from .append_checks import RefusedRecords, TakesLong
from .config import LogConfig
from .leader_epochs import LeaderEpochs
from .partition_log import AppendResult, PartitionLog
from .producers.producer_state import ProducerStates
from .segments.log_slice import LogSlice
from .storage_errors import is_damage
from .timestamps import TimestampOffset

__all__ = [
    "AppendResult",
    "LeaderEpochs",
    "LogConfig",
    "LogDirectory",
    "LogSlice",
    "MetaProperties",
    "PartitionLog",
    "ProducerStates",
    "RefusedRecords",
    "TakesLong",
    "TimestampOffset",
    "is_damage",
]
