"""Record batches that a coordinator appends to its log."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.records.record import encode_batch

KeyValue = tuple[bytes, bytes | None]
"""Key and value of a record; the value of a tombstone is None."""


def batch_of(records: Iterable[KeyValue], now_ms: int) -> bytearray:
    """Return one uncompressed record batch of these keys and values, ready to append; `now_ms` is their timestamp."""
    return bytearray(encode_batch([(key, value, now_ms) for key, value in records]))
