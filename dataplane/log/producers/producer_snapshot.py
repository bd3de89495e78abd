"""The file `.snapshot`: producer state at an offset, in Kafka's format version 1.

Kafka's entries hold only the last batch of each producer. Their field for the coordinator epoch here has the number of
the producer's last marker. A trailer, which Kafka's readers skip, has the commit indexes of markers, the transactions
that ended above the high watermark, and the producers' whole windows.

A window cannot be restored from the log: its older batches may have been deleted, and one of them is still a duplicate
if it is sent again. If the log has only markers of a producer, it also cannot show whether the producer has written
anything under its epoch.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from ....protocol.checksum import crc32c
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.record import NO_COMMIT_INDEX
from ....protocol.records.record_batch import NO_SEQUENCE
from ..durable_files import read_file, write_atomically
from .open_transactions import Ended
from .producer_state import NO_OFFSET, WINDOW, ProducedBatch, ProducerEntry, ProducerStates
from .refused_batches import SEQUENCE_MAX

SUFFIX = ".snapshot"
_VERSION = 1
_PREFIX = struct.Struct(">hIi")  # version, CRC-32C of all that follows it, number of entries
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_COVERS_FROM = 6
_TRAILER_VERSION = 1
_TRAILER = struct.Struct(">hqqi")  # version, last commit index, forgotten below, number of ended transactions
_ENDED = struct.Struct(">qq")  # marker offset, first offset
_COMMIT_INDEX = struct.Struct(">q")  # of the last marker of each entry, in their order
_WINDOW = struct.Struct(">B")  # number of batches, and _EPOCH_BEGAN_HERE; of each entry, in their order
_EPOCH_BEGAN_HERE = 0x80
_BATCH = struct.Struct(">qiiq")  # first offset, first sequence, last offset delta, timestamp; oldest first


def snapshot_path(directory: Path, offset: int) -> Path:
    """Return the path of the snapshot of the producer state below `offset`."""
    return directory / f"{offset:020d}{SUFFIX}"


def encode_snapshot(producers: ProducerStates) -> bytes:
    """Return the bytes of a snapshot file that holds this producer state."""
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
            entry.marker_number,
            entry.transaction_first_offset,
        )
    if len(producers) or not producers.transactions.is_pristine:
        out += _encode_trailer(producers)
    with memoryview(out) as view:
        crc = crc32c(view[_CRC_COVERS_FROM:])
    struct.pack_into(">I", out, 2, crc)
    return bytes(out)


def _encode_trailer(producers: ProducerStates) -> bytes:
    transactions = producers.transactions
    ended = transactions.ended
    return b"".join(
        (
            _TRAILER.pack(
                _TRAILER_VERSION, transactions.last_commit_index, transactions.forgotten_below, len(ended)
            ),
            *(_ENDED.pack(*each) for each in ended),
            *(_COMMIT_INDEX.pack(entry.marker_commit_index) for entry in producers.entries()),
            *(_encode_window(entry) for entry in producers.entries()),
        )
    )


def _encode_window(entry: ProducerEntry) -> bytes:
    batches = (
        _BATCH.pack(
            batch.first_offset,
            batch.first_sequence,
            batch.last_offset - batch.first_offset,
            batch.timestamp,
        )
        for batch in entry.batches
    )
    began = _EPOCH_BEGAN_HERE if entry.epoch_began_here else 0
    return b"".join((_WINDOW.pack(len(entry.batches) | began), *batches))


def decode_snapshot(data: bytes) -> ProducerStates:
    """Return the producer state in the bytes of a snapshot file. Raises ValueError if they are damaged or of another
    version."""
    if len(data) < _PREFIX.size:
        raise ValueError(f"{len(data)} bytes are too few")
    version, crc, count = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"version {version} is not supported")
    if crc32c(memoryview(data)[_CRC_COVERS_FROM:]) != crc:
        raise ValueError("the CRC does not match")
    entries_end = _PREFIX.size + count * _ENTRY.size
    if count < 0 or len(data) < entries_end:
        raise ValueError(f"{count} entries do not fit in {len(data)} bytes")
    producers = ProducerStates()
    for fields in _ENTRY.iter_unpack(memoryview(data)[_PREFIX.size : entries_end]):
        producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, number, first_offset = fields
        entry = ProducerEntry(producer_id, epoch, timestamp)
        entry.marker_number = number
        entry.transaction_first_offset = first_offset
        if last_offset >= 0 and last_sequence >= 0:
            first_sequence = (last_sequence - offset_delta) & SEQUENCE_MAX
            entry.batches.append(
                ProducedBatch(
                    first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp
                )
            )
        producers.load(entry)
    _decode_trailer(memoryview(data)[entries_end:], producers)
    return producers


def _decode_trailer(data: memoryview, producers: ProducerStates) -> None:
    """Add the content of a snapshot's trailer to `producers`: commit indexes, ended transactions, and windows. Raises
    ValueError."""
    commit_index, forgotten_below, ended = NO_COMMIT_INDEX, 0, []
    if data:
        if len(data) < _TRAILER.size:
            raise ValueError(f"{len(data)} bytes follow the entries")
        version, commit_index, forgotten_below, count = _TRAILER.unpack_from(data)
        if version != _TRAILER_VERSION:
            raise ValueError(f"version {version} of what follows the entries is not supported")
        ended_end = _TRAILER.size + count * _ENDED.size
        windows_at = ended_end + len(producers) * _COMMIT_INDEX.size
        if count < 0 or len(data) < windows_at:
            raise ValueError(f"{count} ended transactions do not fit in {len(data)} bytes")
        ended = [Ended._make(each) for each in _ENDED.iter_unpack(data[_TRAILER.size : ended_end])]
        commit_indexes = _COMMIT_INDEX.iter_unpack(data[ended_end:windows_at])
        for entry, (of_entry,) in zip(producers.entries(), commit_indexes, strict=True):
            entry.marker_commit_index = of_entry
        _decode_windows(data[windows_at:], producers)
    producers.transactions.restore(
        [
            (entry.producer_id, entry.transaction_first_offset)
            for entry in producers.entries()
            if entry.transaction_first_offset != NO_OFFSET
        ],
        ended,
        forgotten_below=forgotten_below,
        last_commit_index=commit_index,
    )


def _decode_windows(data: memoryview, producers: ProducerStates) -> None:
    """Add the windows in a snapshot's trailer (each producer's last five batches) to the entries of `producers`. Raises
    ValueError."""
    at = 0
    for entry in producers.entries():
        if at == len(data):
            raise ValueError("windows are missing")
        count = data[at] & ~_EPOCH_BEGAN_HERE
        end = at + _WINDOW.size + count * _BATCH.size
        if count > WINDOW or end > len(data):
            raise ValueError(f"a window of {count} batches does not fit in {len(data) - at} bytes")
        entry.epoch_began_here = bool(data[at] & _EPOCH_BEGAN_HERE)
        entry.batches.clear()
        for offset, sequence, delta, timestamp in _BATCH.iter_unpack(data[at + _WINDOW.size : end]):
            last_sequence = (sequence + delta) & SEQUENCE_MAX
            entry.batches.append(ProducedBatch(sequence, last_sequence, offset, offset + delta, timestamp))
        at = end
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the windows")


def write_snapshot(directory: Path, offset: int, producers: ProducerStates, *, sync: bool) -> None:
    """Write the producer state of all records below `offset`. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    write_atomically(snapshot_path(directory, offset), encode_snapshot(producers), sync=sync)


def read_snapshot(path: Path) -> ProducerStates:
    """Read a snapshot. Raises ValueError for a damaged file, KafkaError for a file that cannot be read."""
    try:
        return decode_snapshot(read_file(path))
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {path}: {error.strerror}") from error


def snapshot_offsets(directory: Path) -> list[int]:
    """Return the offsets of the snapshots in `directory`, rising; none if the directory is gone."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return snapshot_offsets_among(names)


def snapshot_offsets_among(names: Iterable[str]) -> list[int]:
    """Return the offsets of the snapshots among file names, rising."""
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def drop_snapshots_above(directory: Path, offset: int) -> None:
    """Delete the snapshots of offsets above `offset`. Raises OSError."""
    for snapshot in snapshot_offsets(directory):
        if snapshot > offset:
            snapshot_path(directory, snapshot).unlink(missing_ok=True)
