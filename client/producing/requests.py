"""Produce requests: their content and their version."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.messages.produce import (
    FIRST_THAT_ADDS,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ...protocol.records.compression import Compression
from ..connections.connection import Connection
from ..failures import VersionUnsupported
from .accumulator import PartitionQueue, ProducerBatch
from .batches import encode_records
from .deliveries import BatchResult
from .transaction_state import TransactionState

BY_NAME = 12
"""The last Produce version that names topics; later ones go by topic id."""


def produce_request(
    batches: Sequence[tuple[PartitionQueue[BatchResult], ProducerBatch[BatchResult]]],
    compression: Compression,
    acks: int,
    timeout_ms: int,
    transaction: TransactionState | None,
) -> ProduceRequest:
    """Return a request with one batch of each partition. Batches are encoded once, so a repeated request has the same
    bytes."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for queue, batch in batches:
        if batch.encoded is None:
            batch.encoded = encode_records(batch, compression, transactional=transaction is not None)
        data = PartitionProduceData(
            index=queue.partition,
            records=batch.encoded,  # type: ignore[arg-type]  # the codec leaves it out, as it does slices of files
        )
        topics.setdefault(queue.topic, []).append(data)
    return ProduceRequest(
        transactional_id=None if transaction is None else transaction.transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
    )


def produce_version(connection: Connection, transaction: TransactionState | None) -> int:
    """Return the version to use, which decides whether a write adds the partition to the transaction. Raises
    VersionUnsupported."""
    if transaction is None:
        return connection.version_for(ProduceRequest, at_most=BY_NAME)
    if not transaction.adds_by_writing:
        return connection.version_for(ProduceRequest, at_most=FIRST_THAT_ADDS - 1)
    version = connection.version_for(ProduceRequest, at_most=BY_NAME)
    if version < FIRST_THAT_ADDS:
        raise VersionUnsupported(
            f"{connection.address} speaks Produce up to version {version}; transactions of this kind need "
            f"{FIRST_THAT_ADDS}"
        )
    return version
