"""A record that waits to be sent, and about how much room it takes in a batch. Pure."""

from __future__ import annotations

from ...protocol.records.record_codec import Headers

PendingRecord = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp in ms since 1970, headers: as `protocol.records.record` takes it."""
BATCH_OVERHEAD = 61
RECORD_OVERHEAD = 21
"""An upper bound of what a record's own fields take beside key, value and headers in small batches."""


def estimated_bytes(record: PendingRecord) -> int:
    """At least what the record will take in a batch before compression."""
    key, value, _, headers = record
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"") + 10
    return size
