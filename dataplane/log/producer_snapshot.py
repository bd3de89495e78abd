"""``.snapshot``: producer state at an offset, in Kafka's format version 1.

It holds only the last batch of each producer; the rest of the window is found again in the log.
"""

from __future__ import annotations

import struct
from pathlib import Path

from crc32c import crc32c

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record_batch import NO_SEQUENCE
from .checkpoints import write_atomically
from .producer_state import NO_OFFSET, SEQUENCE_MAX, ProducedBatch, ProducerEntry, ProducerStates

SUFFIX = ".snapshot"
_VERSION = 1
_PREFIX = struct.Struct(">hIi")  # version, CRC-32C of all that follows it, number of entries
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_COVERS_FROM = 6


def snapshot_path(directory: Path, offset: int) -> Path:
    """Where the snapshot of the producer state below `offset` is kept."""
    return directory / f"{offset:020d}{SUFFIX}"


def encode_snapshot(producers: ProducerStates) -> bytes:
    """The file's bytes."""
    out = bytearray(_PREFIX.pack(_VERSION, 0, len(producers)))
    for entry in producers.entries():
        last = entry.batches[-1] if entry.batches else None
        out += _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else NO_OFFSET,
            last.last_offset - last.first_offset if last else 0,
            entry.last_seen_ms,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
    with memoryview(out) as view:
        crc = crc32c(view[_CRC_COVERS_FROM:])
    struct.pack_into(">I", out, 2, crc)
    return bytes(out)


def decode_snapshot(data: bytes) -> ProducerStates:
    """Producer state from a file's bytes.

    Raises:
        ValueError: they are damaged or of another version.
    """
    if len(data) < _PREFIX.size:
        raise ValueError(f"{len(data)} bytes are too few")
    version, crc, count = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"version {version} is not supported")
    if crc32c(memoryview(data)[_CRC_COVERS_FROM:]) != crc:
        raise ValueError("the CRC does not match")
    if count < 0 or len(data) != _PREFIX.size + count * _ENTRY.size:
        raise ValueError(f"{count} entries do not fill {len(data)} bytes")
    producers = ProducerStates()
    for fields in _ENTRY.iter_unpack(memoryview(data)[_PREFIX.size :]):
        producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator, first_offset = (
            fields
        )
        entry = ProducerEntry(producer_id, epoch, timestamp)
        entry.coordinator_epoch = coordinator
        entry.transaction_first_offset = first_offset
        if last_offset >= 0 and last_sequence >= 0:
            first_sequence = (last_sequence - offset_delta) & SEQUENCE_MAX
            entry.batches.append(
                ProducedBatch(
                    first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp
                )
            )
        producers.load(entry)
    return producers


def write_snapshot(directory: Path, offset: int, producers: ProducerStates, *, sync: bool) -> None:
    """Write the state of everything below ``offset``.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    write_atomically(snapshot_path(directory, offset), encode_snapshot(producers), sync=sync)


def read_snapshot(path: Path) -> ProducerStates:
    """Raises ValueError for a damaged file, KafkaError for one that cannot be read."""
    try:
        return decode_snapshot(path.read_bytes())
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {path}: {error.strerror}") from error


def snapshot_offsets(directory: Path) -> list[int]:
    """Offsets of the snapshots in ``directory``, rising."""
    return sorted(
        int(path.name.removesuffix(SUFFIX))
        for path in directory.glob("*" + SUFFIX)
        if path.name.removesuffix(SUFFIX).isdigit()
    )
