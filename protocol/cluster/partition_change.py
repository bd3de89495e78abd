"""Changes of partitions' states, as the quorum's state machine notes them, and their encoding for brokers."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ..messages.metadata_records import NUMBERS, PartitionRecord, Record, encode_record
from ..wire.primitives import write_uvarint
from .cluster_image import PartitionState, partition_record

KNOWN_MAX: Final = 4096

_NUMBER: Final = NUMBERS[PartitionRecord]
_BEGINNING: Final = struct.Struct(">B16si")
_END: Final = struct.Struct(">iii?x")
"""Leadership fields, and the number of tagged fields, which is zero."""

_Lists = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_known: dict[_Lists, bytes] = {}


class PartitionChange(NamedTuple):
    """The new state of a partition, noted in place of a metadata record. The record is made only where it is needed."""

    topic_id: bytes
    partition: int
    state: PartitionState

    def record(self) -> PartitionRecord:
        """The metadata record that sets the partition to this state."""
        return partition_record(*self)

    def encoded(self) -> bytes:
        """Return the bytes of the change's metadata record, as `encode_record` makes them but in a third of the
        time."""
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
"""An effect of a command on the image: a record, or an object that stands for one."""


def record_of(change: Change) -> Record:
    """Return the metadata record that a noted change stands for; a record is returned unchanged."""
    return change.record() if isinstance(change, PartitionChange) else change


def _encoded(lists: _Lists) -> bytes:
    """Encode lists of brokers; results are kept, since thousands of partitions of a large cluster have equal lists."""
    out = bytearray()
    for brokers in lists:
        write_uvarint(out, len(brokers) + 1)
        out += struct.pack(f">{len(brokers)}i", *brokers)
    if len(_known) >= KNOWN_MAX:
        _known.clear()
    encoded = _known[lists] = bytes(out)
    return encoded
