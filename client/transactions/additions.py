"""Requests that add partitions and offsets to a transaction, and the effect of failed answers on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ..consuming.group_metadata import ConsumerGroupMetadata
from ..failures import cluster_error
from ..producing.accumulator import ProducerIdentity
from ..producing.transaction_state import PartitionName
from ..records import OffsetAndMetadata, TopicPartition

FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors of a coordinator that aborting does not repair, with the exceptions of `Transactions._ends_it`."""


def addition(
    transactional_id: str, identity: ProducerIdentity, places: Sequence[PartitionName]
) -> AddPartitionsToTxnRequest:
    """Return the request that adds partitions to the transaction."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in places:
        topics[topic].append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )


def offset_commit(
    transactional_id: str,
    identity: ProducerIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
) -> TxnOffsetCommitRequest:
    """Return the request that commits a group's offsets with the transaction."""
    topics: defaultdict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), (offset, metadata) in offsets.items():
        topics[topic].append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.id,
        producer_epoch=identity.epoch,
        generation_id_or_member_epoch=group.generation,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=some) for name, some in topics.items()],
    )


def addition_failure(answer: AddPartitionsToTxnResponse) -> KafkaError | None:
    """Return the decisive error of an answer about partitions added to a transaction, or None."""
    return _worst(
        "WRITE",
        (
            (partition.partition_error_code, (topic.name, partition.partition_index))
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ),
    )


def offsets_failure(group_id: str, answer: TxnOffsetCommitResponse) -> KafkaError | None:
    """Return the decisive error of an answer about offsets of a group committed in a transaction, or None."""
    return _worst(
        "READ",
        (
            (partition.error_code, (topic.name, partition.partition_index))
            for topic in answer.topics
            for partition in topic.partitions
        ),
        group_id,
    )


def _worst(
    operation: str, codes: Iterable[tuple[int, PartitionName]], group_id: str = ""
) -> KafkaError | None:
    """Return the decisive error of an answer: fatal errors come first, then other permanent ones, then retriable
    ones."""
    failures = [_failure(ErrorCode.of(code), place, operation, group_id) for code, place in codes if code]
    return min(failures, key=_weight, default=None)


def _failure(code: ErrorCode, place: PartitionName, operation: str, group_id: str) -> KafkaError:
    name = group_id if code is ErrorCode.GROUP_AUTHORIZATION_FAILED else place[0]
    return cluster_error(code, f"{place[0]}-{place[1]}", operation=operation, name=name)


def _weight(error: KafkaError) -> tuple[bool, bool, bool]:
    return error.code is ErrorCode.OPERATION_NOT_ATTEMPTED, error.code.retriable, error.code not in FATAL
