"""Reads of the records whose dead letters a group writes."""

from __future__ import annotations

from typing import Final

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.record import Record, decode_records
from ....protocol.records.record_batch import walk_batches
from ...log import LogSlice
from ...replication.replica.partition import Partition
from ...runtime.threads import in_thread
from .letters import SourceRecords

_READ_BYTES: Final = 1024 * 1024
_EXPANDED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum decompressed size of a batch. Letters of records in a larger batch have headers alone."""


async def read_source(replica: Partition, first: int, last: int) -> SourceRecords:
    """Return the records between two offsets, at most those of about 1 MiB. Raises KafkaError."""
    records = replica.log.read(first, _READ_BYTES, replica.high_watermark, at_least_one=True)
    if not records.size:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{replica!r} has no record at offset {first} below its high watermark",
        )
    try:
        return await in_thread(lambda: _decoded(records, first, last))
    except (OSError, EOFError) as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{replica!r} cannot be read at offset {first}: {error}"
        ) from error
    finally:
        records.release()


def _decoded(records: LogSlice, first: int, last: int) -> SourceRecords:
    data = memoryview(records.read())
    found: dict[int, Record | None] = {}
    behind, size = first, 0
    for start, header in walk_batches(data):
        if header.base_offset > last or size > _READ_BYTES:
            break
        behind = header.next_offset
        if header.is_control:
            continue
        try:
            for record in decode_records(data[start : start + header.size], _EXPANDED_BYTES_MAX):
                found[record.offset] = record
                size += len(record.key or b"") + len(record.value or b"")
        except (KafkaError, ValueError):
            found.update(dict.fromkeys(range(header.base_offset, behind)))
    return SourceRecords(found, behind)
