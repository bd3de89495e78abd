"""A partition that has changed, as the state machine notes it, and the bytes that brokers are told."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .cluster_image import PartitionState, partition_record
from .messages.metadata_records import NUMBERS, PartitionRecord, Record, encode_record
from .primitives import write_uvarint

KNOWN_MAX: Final = 4096

_NUMBER: Final = NUMBERS[PartitionRecord]
_BEGINNING: Final = struct.Struct(">B16si")
_END: Final = struct.Struct(">iii?x")
"""With the number of tagged fields, none."""

_Lists = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_known: dict[_Lists, bytes] = {}


class PartitionChange(NamedTuple):
    """The new state of a partition. It stands for a record, which is made only where somebody needs it."""

    topic_id: bytes
    partition: int
    state: PartitionState

    def record(self) -> PartitionRecord:
        """The record that makes this state."""
        return partition_record(*self)

    def encoded(self) -> bytes:
        """What `encode_record` makes of the record, in a third of the time."""
        topic_id, partition, state = self
        if state.adding_replicas or state.removing_replicas or state.offline_replicas:
            return encode_record(self.record())
        lists = (state.replicas, state.isr, state.elr, state.last_known_elr)
        return (
            _BEGINNING.pack(_NUMBER, topic_id, partition)
            + (_known.get(lists) or _encoded(lists))
            + _END.pack(state.leader, state.leader_epoch, state.partition_epoch, state.unclean)
        )


Change = Record | PartitionChange
"""What a command does to the image: a record, or what stands for one."""


def record_of(change: Change) -> Record:
    """The record of a change."""
    return change.record() if isinstance(change, PartitionChange) else change


def _encoded(lists: _Lists) -> bytes:
    """In a large cluster thousands of partitions have the same."""
    out = bytearray()
    for one in lists:
        write_uvarint(out, len(one) + 1)
        out += struct.pack(f">{len(one)}i", *one)
    if len(_known) >= KNOWN_MAX:
        _known.clear()
    encoded = _known[lists] = bytes(out)
    return encoded
