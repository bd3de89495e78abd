"""Producer ids, each of which is assigned only once."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.broker_commands import AllocateProducerIds, AllocateProducerIdsResult
from ...protocol.messages.metadata_records import ProducerIdsRecord
from . import brokers
from .workspace import Workspace

PRODUCER_ID_BLOCK = 1000
_LAST = 2**63 - 1


def allocate(work: Workspace, command: AllocateProducerIds) -> AllocateProducerIdsResult:
    """Allocate a block of ids for a broker, which assigns them to producers without a transactional id."""
    brokers.current(work, command.broker_id, command.broker_epoch)
    return AllocateProducerIdsResult(first=_take(work, PRODUCER_ID_BLOCK), count=PRODUCER_ID_BLOCK)


def next_producer_id(work: Workspace) -> int:
    """Allocate and return one producer id, for a transactional id or a transaction's writer."""
    return _take(work, 1)


def _take(work: Workspace, count: int) -> int:
    first = work.image.next_producer_id
    if first > _LAST - count:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "producer ids are exhausted")
    work.emit(ProducerIdsRecord(next_producer_id=first + count))
    return first
