"""Compression by its configured name, and the encoding of a queued batch."""

from __future__ import annotations

from typing import TypeVar

from ...protocol.records.compression import Compression
from ...protocol.records.record import EncodedRecords, SealedBatch, encode_batch_of
from ...protocol.records.record import encode_records as encode_body
from ...protocol.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from .accumulator import ProducerBatch

ResultT = TypeVar("ResultT")


def compression_named(name: str | None) -> Compression:
    """Return the compression called `name` (none, gzip, snappy, lz4, zstd; None is none). Raises ValueError."""
    try:
        return Compression[(name or "none").upper()]
    except KeyError:
        known = ", ".join(compression.name.lower() for compression in Compression)
        raise ValueError(f"compression_type is one of {known}, not {name!r}") from None


def encode_records(
    batch: ProducerBatch[ResultT], compression: Compression, *, transactional: bool = False
) -> SealedBatch:
    """Encode the batch with its current identity and sequence."""
    identity = batch.identity
    records = batch.body or EncodedRecords(*encode_body(batch.records))
    return encode_batch_of(
        records,
        compression=compression,
        producer_id=NO_PRODUCER_ID if identity is None else identity.id,
        producer_epoch=NO_PRODUCER_EPOCH if identity is None else identity.epoch,
        base_sequence=batch.base_sequence,
        transactional=transactional,
    )
