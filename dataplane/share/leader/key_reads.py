"""Reads of the keys of records from the log, for groups that keep the order of keys."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.compression import DECOMPRESSED_BYTES_MAX, expand
from ....protocol.records.record_batch import HEADER_SIZE, BatchHeader, Buffer, walk_batches
from ...log import LogSlice
from ...runtime.threads import in_thread
from ..key_order import ReadKeys
from .key_hashes import hash_keys

READ_BYTES: Final = 1024 * 1024
"""Bytes of a slice for one read of keys, unless a single batch is larger."""
_PIECE_BYTES: Final = 256 * 1024
"""Bytes to which compressed records are expanded at a time."""


async def read_keys(records: LogSlice, first: int, keys_max: int) -> ReadKeys:
    """Read the keys of records of a slice from an offset on, at most `keys_max` keys.

    Raises KafkaError KAFKA_STORAGE_ERROR if the disk refuses to read, or records are damaged.
    """
    try:
        return await in_thread(lambda: _keys(records, first, keys_max))
    except (OSError, EOFError, ValueError, KafkaError) as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the keys of records from offset {first} on cannot be read: {error}",
        ) from error


def _keys(records: LogSlice, first: int, keys_max: int) -> ReadKeys:
    data = memoryview(records.read())
    offsets, hashes = array("q"), array("q")
    behind = first
    for start, header in walk_batches(data):
        behind = header.next_offset
        if header.is_control or behind <= first:
            continue
        body = data[start + HEADER_SIZE : start + header.size]
        for some_offsets, some_hashes in _batch_keys(body, header, first, keys_max - len(offsets)):
            offsets.frombytes(some_offsets)
            hashes.frombytes(some_hashes)
        if len(offsets) >= keys_max:
            behind = offsets[-1] + 1
            break
    return ReadKeys(first, behind, offsets, hashes)


def _batch_keys(
    body: Buffer, header: BatchHeader, first: int, keys_max: int
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the offsets and the hashes of the keys of one batch, from an offset on, until there are `keys_max`.

    Compressed records are expanded piece by piece, and no further than needed. Raises KafkaError CORRUPT_MESSAGE, or
    ValueError, for damaged records.
    """
    held, skip, records_left, expanded = b"", 0, header.record_count, 0
    for piece in expand(header.compression, body, _PIECE_BYTES) if header.compression else (body,):
        expanded += len(piece)
        if expanded > DECOMPRESSED_BYTES_MAX:
            raise ValueError(f"a batch expands to more than the {DECOMPRESSED_BYTES_MAX} bytes allowed")
        if skip >= len(piece):
            skip -= len(piece)
            continue
        data = held + piece[skip:] if held else memoryview(piece)[skip:]
        used, skip, records, offsets, hashes = hash_keys(
            data, header.base_offset, first, records_left, keys_max
        )
        yield offsets, hashes
        held = bytes(data[used:])
        records_left -= records
        keys_max -= len(offsets) // array("q").itemsize
        if not records_left or not keys_max:
            return
    raise ValueError(f"the batch at offset {header.base_offset} ends {records_left} records before its count")
