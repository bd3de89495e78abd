"""The decision about each batch of a Produce request: append it now, defer it, or refuse it."""

from __future__ import annotations

import struct
from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING, Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.compression import Compression
from ...protocol.records.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    parse_header,
)
from ..cluster.internal_topics import is_internal
from .answers import ALL
from .validation_queue import UNCOMPRESSED_ON_LOOP_MAX

if TYPE_CHECKING:
    from ..replication.replica.partition import Partition
    from ..server.handler import ClientRequest
    from ..transactions.pending_writes import PendingTransactionWrites
    from .validation_queue import ValidationQueue

HELD_BYTES_MAX = 128 << 20
"""Maximum bytes of batches that wait for their transactions. More are refused, and the producer retries."""
_MUTED_BYTES = HELD_BYTES_MAX // 4
_MUTED_MS = 100
"""Waiting bytes, and the milliseconds for which a connection that brings more batches is not read."""
_ON_LOOP_S: Final = 0.01
"""The time in which the event loop expands batches of one request; threads expand the rest."""
_ZSTD: Final = Compression.ZSTD.value
_FIRST_WITH_ZSTD: Final = 7
_BATCH_START = struct.Struct(">8xi4xb4xh")
"""Batch length, magic and attributes at the beginning of a record batch."""


class BatchDecision(Enum):
    """The decision about the time of a produced batch's append. A refused batch is an error instead."""

    APPEND = 1
    """Append it in this turn of the event loop."""
    DEFER = 2
    """Wait for its validation, or until the image has its transaction."""
    DEFER_TO_THREAD = 3
    """Validate it in a thread, since the request has used the event loop for long enough."""


APPEND, DEFER, DEFER_TO_THREAD = BatchDecision.APPEND, BatchDecision.DEFER, BatchDecision.DEFER_TO_THREAD


class TransactionalBatches:
    """The transactional batches of Produce requests: whether they may be appended now, and how many bytes of them wait
    for their transaction.

    Owned by the event loop.
    """

    def __init__(self, pending_writes: PendingTransactionWrites) -> None:
        self.pending_writes = pending_writes
        self._held_bytes = 0

    def admits(self, partition: Partition, records: memoryview, transactional_id: str) -> bool:
        """Return whether a transactional batch goes to the append now, which may still refuse it. False: it has to
        wait. Raises KafkaError."""
        if partition.leader is None:
            return True
        header = parse_header(records)
        self.pending_writes.check_owner(header.producer_id, transactional_id)
        if partition.log.producers.is_duplicate(header):
            return False  # `pending_writes` finds out whether the original belongs to this transaction.
        return self.pending_writes.admits(partition, header.producer_id, header.producer_epoch)

    def hold(self, request: ClientRequest, size: int) -> None:
        """Reserve memory for a batch that waits. Raises KafkaError: REQUEST_TIMED_OUT if too many bytes wait
        already."""
        if self._held_bytes + size > HELD_BYTES_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{self._held_bytes} bytes wait for their transactions already"
            )
        self._held_bytes += size
        if self._held_bytes > _MUTED_BYTES:
            request.connection.mute(_MUTED_MS)

    def let_go(self, size: int) -> None:
        """Release the memory of a batch that no longer waits."""
        self._held_bytes -= size


class Admission:
    """The decisions about produced batches (append, defer or refuse), in the order of their requests. Owned by the
    event loop."""

    def __init__(self, validation: ValidationQueue, transactional: TransactionalBatches) -> None:
        self._validation = validation
        self._transactional = transactional

    def decide(
        self,
        partition: Partition,
        records: memoryview | None,
        request: ClientRequest,
        transactional_id: str | None,
        acks: int,
    ) -> BatchDecision:
        """Decide about one batch by its header. Call it in the turn of the append (rule T2).

        Raises KafkaError for a batch that no producer may send, or that does not belong to an open transaction.
        """
        # Most names of topics are known for clients' topics by their first letter, without a call.
        if partition.topic[0] == "_" and is_internal(partition.topic):
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by brokers only"
            )
        if not records:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "a produce request needs one record batch for each partition"
            )
        size = len(records)
        attributes = 0
        if size >= HEADER_SIZE:
            batch_length, magic, flags = _BATCH_START.unpack_from(records)
            if magic == MAGIC:  # the append refuses every other magic
                if HEADER_SIZE - LOG_OVERHEAD <= batch_length < size - LOG_OVERHEAD:
                    raise KafkaError(
                        ErrorCode.INVALID_RECORD,
                        "a produce request may hold one record batch for each partition",
                    )
                attributes = flags
        compressed = attributes & COMPRESSION_MASK
        if compressed == _ZSTD and request.api_version < _FIRST_WITH_ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"zstd needs Produce version {_FIRST_WITH_ZSTD} or above, the request has {request.api_version}",
            )
        if attributes & TRANSACTIONAL_FLAG:
            _check_transactional(transactional_id, acks)
            partition.check_is_no_copy()
        if compressed and perf_counter() - request.began_s > _ON_LOOP_S:
            return DEFER_TO_THREAD
        if (
            compressed
            or size > UNCOMPRESSED_ON_LOOP_MAX
            or partition.settings.stored is not None
            or self._validation.waiting
        ) and self._validation.takes(partition, records):
            return DEFER
        if attributes & TRANSACTIONAL_FLAG and not self._transactional.admits(
            partition, records, transactional_id or ""
        ):
            return DEFER
        return APPEND


def _check_transactional(transactional_id: str | None, acks: int) -> None:
    if transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a request with transactional batches names the transactional id",
        )
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    if acks != ALL:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"transactional batches need acks=all, not {acks}")
