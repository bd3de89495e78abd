"""Keys and values of `__share_group_state`, without the int16 version that precedes each in the record (KIP-932).

A snapshot has the whole state of a share-partition, which is a partition as seen by one share group. The updates behind
the snapshot have the changes since.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ..wire.schema import Message, array, data, int8, int16, int32, int64, string, uuid

SNAPSHOT_KEY_VERSION: Final = 0
UPDATE_KEY_VERSION: Final = 1
VALUE_VERSION: Final = 0
"""Versions of the keys and of both values. The version of a key tells whether the record is a snapshot or an update."""
UNCHANGED_START: Final = -1
"""Start offset of an update that does not change it."""
UNKNOWN_COUNT: Final = -1


class DeliveryState(IntEnum):
    """Stored states of records, with Kafka's numbers. Locks are not stored: an acquired record is stored as
    available."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVED = 4


@data("0-1", flexible="none")
class ShareStateKey(Message):
    """Key of a share-partition's state: of a snapshot (version 0), or of an update (version 1). Both are equal."""

    group_id: str = string(about="Id of the group.")
    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")


@data()
class StateBatch(Message):
    """A range of offsets in one state, delivered equally often."""

    first_offset: int = int64(about="First offset of the range.")
    last_offset: int = int64(about="Last offset of the range.")
    delivery_state: int = int8(about="State of the records, a DeliveryState.")
    delivery_count: int = int16(about="Number of deliveries of each record.")
    not_before_ms: int = int64(
        tag=10000,
        default=0,
        about="Not in Kafka: time in ms since 1970 before which nobody gets the records; 0 without a delay.",
    )


@data("0", flexible="0+")
class ShareSnapshotValue(Message):
    """The whole state of a share-partition."""

    snapshot_epoch: int = int32(about="Number of the snapshot, one more each time.")
    state_epoch: int = int32(about="Epoch of the state, which a change of the group's offsets raises.")
    leader_epoch: int = int32(about="Leader epoch of the partition.")
    start_offset: int = int64(about="First offset whose delivery is not complete.")
    delivery_complete_count: int = int32(
        default=UNKNOWN_COUNT,
        tag=0,
        about="Number of offsets from the start offset on whose delivery is complete; -1 unknown (KIP-1226).",
    )
    create_timestamp: int = int64(about="Time at which the state was created, in ms since 1970.")
    write_timestamp: int = int64(about="Time at which the state was written, in ms since 1970.")
    state_batches: list[StateBatch] = array(StateBatch, about="States of offsets from the start offset on.")


@data("0", flexible="0+")
class ShareUpdateValue(Message):
    """A change of a share-partition's state since its last snapshot."""

    snapshot_epoch: int = int32(about="Number of the snapshot before the update.")
    leader_epoch: int = int32(about="Leader epoch of the partition.")
    start_offset: int = int64(about="First offset whose delivery is not complete; -1 if unchanged.")
    delivery_complete_count: int = int32(
        default=UNKNOWN_COUNT,
        tag=0,
        about="Number of offsets from the start offset on whose delivery is complete; -1 unknown (KIP-1226).",
    )
    state_batches: list[StateBatch] = array(StateBatch, about="States that have changed.")
