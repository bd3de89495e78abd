"""A record that waits to be sent, and an estimate of its size in a batch. Pure."""

from __future__ import annotations

from ...protocol.records.record_codec import Headers

PendingRecord = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp in ms since 1970, headers: the fields that `protocol.records.record` takes."""
BATCH_OVERHEAD = 61
RECORD_OVERHEAD = 21
"""An upper bound of the bytes that a record takes besides key, value and headers in small batches."""


def estimated_bytes(record: PendingRecord) -> int:
    """Return an upper bound of the bytes that the record takes in a batch before compression."""
    key, value, _, headers = record
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"") + 10
    return size
