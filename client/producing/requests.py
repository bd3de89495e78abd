"""Produce requests: what is in them, and in which version a broker is asked."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ...protocol.records.compression import Compression
from ..connections.connection import Connection
from ..failures import VersionUnsupported
from .accumulator import PartitionQueue, ProducerBatch
from .batches import encode_records
from .deliveries import BatchResult
from .transaction_state import TransactionState

BY_NAME = 12
"""The last Produce version that names topics; later ones go by topic id."""
FIRST_THAT_ADDS = 12
"""The first Produce version that makes a partition part of the transaction by being written to (KIP-890)."""


def produce_request(
    batches: Sequence[tuple[PartitionQueue[BatchResult], ProducerBatch[BatchResult]]],
    compression: Compression,
    acks: int,
    timeout_ms: int,
    transaction: TransactionState | None,
) -> ProduceRequest:
    """One batch of each partition. Those that are not encoded yet are now, for good: sent again they are the same."""
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
    """It says who adds partitions to the transaction. Raises VersionUnsupported."""
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
