"""The log of one partition, as files in Kafka's on-disk layout.

`PartitionLog` is the log: segments, indexes, leader epochs and producer state. `segments` has its files, and
`producers` the state of the producers that write to it. `recovery` opens its folder, and `compaction` rewrites old
segments. One rule holds: appended bytes are never changed, and never served if they cannot be trusted. Only truncation,
deletion and compaction remove them.
"""

from .append_checks import RefusedRecords, TakesLong
from .config import LogConfig
from .leader_epochs import LeaderEpochs
from .open_log import AppendResult
from .partition_log import PartitionLog
from .producers.producer_state import ProducerStates
from .segments.log_slice import LogSlice
from .storage_errors import is_damage
from .timestamps import TimestampOffset

__all__ = [
    "AppendResult",
    "LeaderEpochs",
    "LogConfig",
    "LogSlice",
    "PartitionLog",
    "ProducerStates",
    "RefusedRecords",
    "TakesLong",
    "TimestampOffset",
    "is_damage",
]
