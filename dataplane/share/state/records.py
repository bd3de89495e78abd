"""Records of `__share_group_state`, in Kafka's bytes: snapshots of share-partitions, updates, and tombstones."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ....protocol.messages import share_state_records as wire
from ....protocol.messages.find_coordinator import SharePartition
from ....protocol.messages.share_state_records import (
    SNAPSHOT_KEY_VERSION,
    UPDATE_KEY_VERSION,
    VALUE_VERSION,
    ShareSnapshotValue,
    ShareStateKey,
    ShareUpdateValue,
)
from ....protocol.records.record import Record
from ....protocol.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchHeader
from ....protocol.wire.codec import decode, encode
from ....protocol.wire.schema import Message
from ...coordinated_log.batches import KeyValue, TransactionEnd, read_stored
from ..states import DurableState, StateBatch
from .stored_state import StoredShareState, Update

_VERSION = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The whole state of a share-partition as a record; a tombstone if `stored` is None."""

    key: SharePartition
    stored: StoredShareState | None
    epoch: int = 0
    """Number of the snapshot, one more each time."""
    created_ms: int = 0
    written_ms: int = 0


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """A change of a share-partition as a record. `epoch` is the number of the snapshot before it."""

    key: SharePartition
    epoch: int
    update: Update
    producer_id: int = NO_PRODUCER_ID
    """Producer in whose transaction the change was made, if it was made in one."""
    producer_epoch: int = NO_PRODUCER_EPOCH


def snapshot_record(snapshot: StateSnapshot) -> KeyValue:
    """Return key and value of a snapshot, or of a tombstone."""
    key = _encoded(SNAPSHOT_KEY_VERSION, _wire_key(snapshot.key))
    stored = snapshot.stored
    if stored is None:
        return key, None
    value = ShareSnapshotValue(
        snapshot_epoch=snapshot.epoch,
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        delivery_complete_count=stored.delivery_complete_count,
        create_timestamp=snapshot.created_ms,
        write_timestamp=snapshot.written_ms,
        state_batches=wire_batches(stored.batches),
    )
    return key, _encoded(VALUE_VERSION, value)


def update_record(stored: StateUpdate) -> KeyValue:
    """Return key and value of an update."""
    update = stored.update
    value = ShareUpdateValue(
        snapshot_epoch=stored.epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=wire_batches(update.batches),
    )
    return _encoded(UPDATE_KEY_VERSION, _wire_key(stored.key)), _encoded(VALUE_VERSION, value)


StoredRecord = StateSnapshot | StateUpdate | TransactionEnd


def read_records(data: memoryview) -> Iterator[tuple[int, StoredRecord]]:
    """Yield the records of whole batches, and the ends of transactions, each with the offset of its batch. Damaged
    records are skipped (`read_stored`)."""
    return read_stored(data, "share states", _read_record)


def _read_record(record: Record, header: BatchHeader) -> StateSnapshot | StateUpdate | None:
    if record.key is None:
        return None
    key = bytes(record.key)
    (version,) = _VERSION.unpack_from(key)
    if version not in (SNAPSHOT_KEY_VERSION, UPDATE_KEY_VERSION):
        return None
    named = decode(ShareStateKey, key, version, _VERSION.size)
    partition = SharePartition(named.group_id, bytes(named.topic_id), named.partition)
    if version == SNAPSHOT_KEY_VERSION:
        return _read_snapshot(partition, record.value)
    return None if record.value is None else _read_update(partition, record.value, header)


def _read_snapshot(key: SharePartition, value: bytes | memoryview | None) -> StateSnapshot:
    if value is None:
        return StateSnapshot(key, None)
    read = decode(ShareSnapshotValue, value, _VERSION.unpack_from(value)[0], _VERSION.size)
    stored = StoredShareState(
        read.state_epoch,
        read.leader_epoch,
        read.start_offset,
        read.delivery_complete_count,
        read_batches(read.state_batches),
    )
    return StateSnapshot(key, stored, read.snapshot_epoch, read.create_timestamp, read.write_timestamp)


def _read_update(key: SharePartition, value: bytes | memoryview, header: BatchHeader) -> StateUpdate:
    read = decode(ShareUpdateValue, value, _VERSION.unpack_from(value)[0], _VERSION.size)
    update = Update(
        read.leader_epoch, read.start_offset, read.delivery_complete_count, read_batches(read.state_batches)
    )
    return StateUpdate(key, read.snapshot_epoch, update, header.producer_id, header.producer_epoch)


def wire_batches(batches: Iterable[StateBatch]) -> list[wire.StateBatch]:
    """Return state batches as messages."""
    return [
        wire.StateBatch(
            first_offset=batch.first,
            last_offset=batch.last,
            delivery_state=batch.state,
            delivery_count=batch.delivery_count,
            not_before_ms=batch.not_before_ms,
        )
        for batch in batches
    ]


def read_batches(batches: Iterable[wire.StateBatch]) -> tuple[StateBatch, ...]:
    """Return the state batches of messages. Raises ValueError for a state that is never stored."""
    return tuple(
        StateBatch(
            batch.first_offset,
            batch.last_offset,
            DurableState(batch.delivery_state),
            batch.delivery_count,
            batch.not_before_ms,
        )
        for batch in batches
    )


def _wire_key(key: SharePartition) -> ShareStateKey:
    return ShareStateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def _encoded(version: int, message: Message) -> bytes:
    return _VERSION.pack(version) + bytes(encode(message, version))
