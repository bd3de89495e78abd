"""The requests of a transaction, from its first partition to its markers (KIP-98).

AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), WriteTxnMarkers (27), TxnOffsetCommit (28).
"""

from __future__ import annotations

from typing import Final

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    uuid,
)

FIRST_THAT_BUMPS: Final = 5
"""First EndTxn version that raises the producer's epoch (KIP-890)."""


@data()
class AddPartitionsToTxnPartitionResult(Message):
    """Result for one partition."""

    partition_index: int = int32(about="Partition index.")
    partition_error_code: int = int16(about="Error code, 0 for success.")


@data()
class AddPartitionsToTxnTopicResult(Message):
    """Results for one topic."""

    name: str = string(about="Name of the topic.")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult, about="Results, by partition."
    )


@data()
class AddPartitionsToTxnResult(Message):
    """Results for one transaction."""

    transactional_id: str = string("4+", about="Transactional id of the producer.")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "4+", about="Results, by topic."
    )


@response(24, "0-5", flexible="3+")
class AddPartitionsToTxnResponse(Message):
    """Answer to AddPartitionsToTxnRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16("4+", ignorable=True, about="Error code of the whole request, 0 for success.")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, "4+", about="Results, by transaction."
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3", about="Results of the one transaction, by topic."
    )


@data()
class AddPartitionsToTxnTopic(Message):
    """Partitions of a topic, to be added to a transaction."""

    name: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partitions that join the transaction.")


@data()
class AddPartitionsToTxnTransaction(Message):
    """A transaction and the partitions to add."""

    transactional_id: str = string("4+", about="Transactional id of the producer.")
    producer_id: int = int64("4+", about="Producer id that the transactional id has now.")
    producer_epoch: int = int16("4+", about="Producer epoch.")
    verify_only: bool = boolean(
        "4+", about="Whether to check only that the transaction has these partitions, adding none (KIP-890)."
    )
    topics: list[AddPartitionsToTxnTopic] = array(
        AddPartitionsToTxnTopic, "4+", about="Partitions that join the transaction, by topic."
    )


@request(24, "0-5", flexible="3+", response=AddPartitionsToTxnResponse)
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Request to add partitions to an open transaction, or to open it. Since version 4, which brokers send, to several
    transactions."""

    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, "4+", about="Transactions that partitions join."
    )
    v3_and_below_transactional_id: str = string("0-3", about="Transactional id of the producer.")
    v3_and_below_producer_id: int = int64("0-3", about="Producer id that the transactional id has now.")
    v3_and_below_producer_epoch: int = int16("0-3", about="Producer epoch.")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(
        AddPartitionsToTxnTopic, "0-3", about="Partitions that join the transaction, by topic."
    )


@response(25, "0-4", flexible="3+")
class AddOffsetsToTxnResponse(Message):
    """Answer to AddOffsetsToTxnRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")


@request(25, "0-4", flexible="3+", response=AddOffsetsToTxnResponse)
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Request to add the partition of `__consumer_offsets` that holds a group's offsets to a transaction."""

    transactional_id: str = string(about="Transactional id of the producer.")
    producer_id: int = int64(about="Producer id that the transactional id has now.")
    producer_epoch: int = int16(about="Producer epoch.")
    group_id: str = string(about="Group whose offsets the transaction will commit.")


@response(26, "0-5", flexible="3+")
class EndTxnResponse(Message):
    """Answer to EndTxnRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    producer_id: int = int64(
        "5+", default=-1, ignorable=True, about="Producer id of the next transaction; -1 for none."
    )
    producer_epoch: int = int16(
        "5+", default=-1, ignorable=True, about="Producer epoch of the next transaction; -1 for none."
    )


@request(26, "0-5", flexible="3+", response=EndTxnResponse)
class EndTxnRequest(Request[EndTxnResponse]):
    """Request to commit or abort the open transaction of a transactional id. Since version 5 the next transaction has a
    new producer epoch (KIP-890)."""

    transactional_id: str = string(about="Transactional id of the producer.")
    producer_id: int = int64(about="Producer id that the transactional id has now.")
    producer_epoch: int = int16(about="Producer epoch.")
    committed: bool = boolean(about="True to commit, false to abort.")


@data()
class WritableTxnMarkerPartitionResult(Message):
    """Result for one partition."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class WritableTxnMarkerTopicResult(Message):
    """Results for one topic."""

    name: str = string(about="Name of the topic.")
    partitions: list[WritableTxnMarkerPartitionResult] = array(
        WritableTxnMarkerPartitionResult, about="Results, by partition."
    )


@data()
class WritableTxnMarkerResult(Message):
    """Results for the transaction of one producer."""

    producer_id: int = int64(about="Producer id of the transaction.")
    topics: list[WritableTxnMarkerTopicResult] = array(
        WritableTxnMarkerTopicResult, about="Results, by topic."
    )


@response(27, "1-2", flexible="1+")
class WriteTxnMarkersResponse(Message):
    """Answer to WriteTxnMarkersRequest."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, about="Results, by marker.")


@data()
class WritableTxnMarkerTopic(Message):
    """Partitions of a topic, to be given a marker."""

    name: str = string(about="Name of the topic.")
    partition_indexes: list[int] = array(int32, about="Partitions that get the marker.")


@data()
class WritableTxnMarker(Message):
    """A transaction marker to write into partitions: producer id and epoch, commit or abort."""

    producer_id: int = int64(about="Producer id of the transaction.")
    producer_epoch: int = int16(about="Producer epoch that the marker carries.")
    transaction_result: bool = boolean(about="True for a commit, false for an abort.")
    topics: list[WritableTxnMarkerTopic] = array(
        WritableTxnMarkerTopic, about="Partitions that get the marker, by topic."
    )
    coordinator_epoch: int = int32(about="Epoch of the transaction's coordinator.")
    transaction_version: int = int8(
        "2+",
        ignorable=True,
        about="Level of the transaction.version feature: from 2 on each transaction has its own epoch (KIP-1228).",
    )


@request(27, "1-2", flexible="1+", response=WriteTxnMarkersResponse)
class WriteTxnMarkersRequest(Request[WriteTxnMarkersResponse]):
    """Request to end transactions in the logs of partitions. Coordinators send it, and operators to end a hanging
    transaction."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker, about="Markers to write.")


@data()
class TxnOffsetCommitResponsePartition(Message):
    """Result for one partition."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")


@data()
class TxnOffsetCommitResponseTopic(Message):
    """Results for one topic."""

    name: str = string("0-5", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("6+", ignorable=True, about="Id of the topic.")
    partitions: list[TxnOffsetCommitResponsePartition] = array(
        TxnOffsetCommitResponsePartition, about="Partitions concerned."
    )


@response(28, "0-6", flexible="3+")
class TxnOffsetCommitResponse(Message):
    """Answer to TxnOffsetCommitRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    topics: list[TxnOffsetCommitResponseTopic] = array(
        TxnOffsetCommitResponseTopic, about="Results, by topic."
    )


@data()
class TxnOffsetCommitRequestPartition(Message):
    """An offset to commit."""

    partition_index: int = int32(about="Partition index.")
    committed_offset: int = int64(about="Next offset to consume.")
    committed_leader_epoch: int = int32(
        "2+", default=-1, ignorable=True, about="Leader epoch of the last consumed record; -1 unknown."
    )
    committed_metadata: str | None = string(
        nullable="0+", about="Metadata that the client stores with the offset; opaque."
    )


@data()
class TxnOffsetCommitRequestTopic(Message):
    """Offsets to commit in one topic."""

    name: str = string("0-5", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("6+", ignorable=True, about="Id of the topic.")
    partitions: list[TxnOffsetCommitRequestPartition] = array(
        TxnOffsetCommitRequestPartition, about="Offsets to commit, by partition."
    )


@request(28, "0-6", flexible="3+", response=TxnOffsetCommitResponse)
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Request to store offsets of a group once the transaction commits. Since version 5 it may open or extend the
    transaction."""

    transactional_id: str = string(about="Transactional id of the producer.")
    group_id: str = string(about="Id of the group.")
    producer_id: int = int64(about="Producer id that the transactional id has now.")
    producer_epoch: int = int16(about="Producer epoch.")
    generation_id_or_member_epoch: int = int32(
        "3+", default=-1, about="Generation of a classic group, or the member's epoch; -1 without membership."
    )
    member_id: str = string("3+", about="Member of the group; empty for none.")
    group_instance_id: str | None = string(
        "3+",
        nullable="3+",
        default=None,
        about="Static member's lasting id; null for a dynamic member (KIP-345).",
    )
    topics: list[TxnOffsetCommitRequestTopic] = array(
        TxnOffsetCommitRequestTopic, about="Offsets to commit, by topic."
    )
