"""The bytes of a batch that lost records: offsets, order, producer, sequence and codec stay unchanged.

Apache Kafka's cleaner leaves the same records, offsets, timestamps and headers of the same batches, but for one field.
Kafka rewrites the records that stay, with the first one's timestamp as the base timestamp. Here they are copied, and
the base timestamp stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.checksum import crc32c
from ....protocol.records.compression import Compression, compress
from ....protocol.records.record import BATCH_BODY, BATCH_HEAD
from ....protocol.records.record_batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from ....protocol.wire.primitives import read_varlong, zigzag
from .record_scan import Span

_FLAGS_OF_EMPTY = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch's header without records. A producer's last batch stays in this form, so that its sequence is
    known."""
    return _seal(header, header.attributes & _FLAGS_OF_EMPTY, NO_TIMESTAMP, header.max_timestamp, 0, b"")


def reduced_batch(
    header: BatchHeader, body: bytes, kept: Sequence[Span], new_horizon_ms: int | None
) -> bytes:
    """Return the batch with the `kept` records of its uncompressed `body`, one or more.

    Records are copied unchanged. If a delete horizon is set, it replaces the base timestamp, and only then the
    timestamp deltas are rewritten.
    """
    base_ms = header.base_timestamp
    attributes = header.attributes
    max_ms = header.max_timestamp
    if not header.is_log_append_time:
        max_ms = base_ms + max(span[3] for span in kept)
    if new_horizon_ms is None:
        body = b"".join([body[start:stop] for start, _, stop, *_ in kept])
    else:
        shift = base_ms - new_horizon_ms
        body = b"".join([_restamped(body, span, shift) for span in kept])
        base_ms = new_horizon_ms
        attributes |= DELETE_HORIZON_FLAG
    if header.compression:
        body = compress(Compression(header.compression), body)
    return _seal(header, attributes, base_ms, max_ms, len(kept), body)


def _restamped(body: bytes, span: Span, shift: int) -> bytes:
    """Return the encoded record with its timestamp delta changed by `shift` ms, since the base timestamp of its batch
    changes."""
    _, fields, stop, later_ms, *_ = span
    _, rest = read_varlong(body, fields + 1)
    changed = b"".join((body[fields : fields + 1], zigzag(later_ms + shift), body[rest:stop]))
    return zigzag(len(changed)) + changed


def _seal(header: BatchHeader, attributes: int, base_ms: int, max_ms: int, count: int, body: bytes) -> bytes:
    fields = BATCH_BODY.pack(
        attributes,
        header.last_offset_delta,
        base_ms,
        max_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    head = BATCH_HEAD.pack(
        header.base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(body),
        header.partition_leader_epoch,
        header.magic,
        crc32c(body, crc32c(fields)),
    )
    return b"".join((head, fields, body))
