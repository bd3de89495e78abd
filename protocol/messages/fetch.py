"""Fetch (1): read record batches, as consumer or follower."""

from __future__ import annotations

from typing import Final

from ..wire.schema import (
    Message,
    Request,
    array,
    data,
    int8,
    int16,
    int32,
    int64,
    nested,
    records_,
    request,
    response,
    string,
    uuid,
)

CONSUMER_REPLICA_ID: Final = -1
"""The replica id of consumers, here and in ListOffsets. Smaller numbers are consumers, too: Kafka's tools that debug
send -2."""
FIRST_WITH_ZSTD: Final = 10
"""First version whose clients read Zstandard (KIP-110)."""
FIRST_WITH_TOPIC_IDS: Final = 13
"""First version that names topics by id (KIP-516)."""


@data()
class EpochEndOffset(Message):
    """The end of the leader epoch at which a follower's log diverges from the leader's."""

    epoch: int = int32("12+", default=-1, about="Leader epoch.")
    end_offset: int = int64("12+", default=-1, about="First offset after the epoch; -1 unknown.")


@data()
class LeaderIdAndEpoch(Message):
    """The current leader of a partition and its leader epoch, sent to a client that asked another broker."""

    leader_id: int = int32("12+", default=-1, about="Broker that leads the partition; -1 for none.")
    leader_epoch: int = int32("12+", default=-1, about="Leader epoch; -1 unknown.")


@data()
class SnapshotId(Message):
    """The end of a snapshot of Kafka's own quorum, which this program never sends."""

    end_offset: int = int64(default=-1, about="First offset after the epoch; -1 unknown.")
    epoch: int = int32(default=-1, about="Leader epoch.")


@data()
class AbortedTransaction(Message):
    """An aborted transaction, whose records among the fetched ones a consumer must skip: producer id and first
    offset."""

    producer_id: int = int64("4+", about="Producer id; -1 for none.")
    first_offset: int = int64("4+", about="First offset of the transaction in the partition.")


@data()
class PartitionData(Message):
    """Fetched records of one partition, with the partition's offsets or an error."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    high_watermark: int = int64(
        about="First offset that is not known to be on every replica of the ISR and of a pending larger ISR."
    )
    last_stable_offset: int = int64(
        "4+",
        default=-1,
        ignorable=True,
        about="The lower of the high watermark and the first offset of an open transaction; -1 unknown.",
    )
    log_start_offset: int = int64(
        "5+", default=-1, ignorable=True, about="First readable offset; -1 unknown."
    )
    diverging_epoch: EpochEndOffset = nested(
        EpochEndOffset,
        "12+",
        tag=0,
        about="Epoch and offset at which the follower's log diverges from the leader's; the follower has to truncate "
        "there.",
    )
    current_leader: LeaderIdAndEpoch = nested(
        LeaderIdAndEpoch,
        "12+",
        tag=1,
        about="Leader of the partition, if the client asked the wrong broker (KIP-951).",
    )
    snapshot_id: SnapshotId = nested(
        SnapshotId, "12+", tag=2, about="Snapshot to fetch instead; used only by Kafka's own quorum."
    )
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction,
        "4+",
        nullable="4+",
        ignorable=True,
        about="Aborted transactions among the records; null if not read committed.",
    )
    preferred_read_replica: int = int32(
        "11+", default=-1, about="Follower to read from instead; -1 for none."
    )
    records: bytes | memoryview | None = records_(nullable="0+", about="Record batches of format v2.")
    goes_on_at: int = int64(
        "12+",
        tag=10000,
        default=-1,
        about="Not in Kafka: offset at which a follower's log has to continue, since the leader's log has nothing "
        "before it; -1 otherwise.",
    )


@data()
class FetchableTopicResponse(Message):
    """Records of one topic, by partition."""

    topic: str = string("0-12", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("13+", ignorable=True, about="Id of the topic.")
    partitions: list[PartitionData] = array(PartitionData, about="Partitions that were fetched.")


@data()
class NodeEndpoint(Message):
    """Address of a broker that leads a partition, sent to a client that asked another broker."""

    node_id: int = int32("16+", about="Broker id.")
    host: str = string("16+", about="Host name or address.")
    port: int = int32("16+", about="TCP port.")
    rack: str | None = string(
        "16+", nullable="16+", default=None, about="Rack of the broker; null without one."
    )


@response(1, "4-18", flexible="12+")
class FetchResponse(Message):
    """Answer to FetchRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16("7+", ignorable=True, about="Error code, 0 for success.")
    session_id: int = int32("7+", about="Fetch session; 0 for none.")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, about="Results, by topic.")
    node_endpoints: list[NodeEndpoint] = array(
        NodeEndpoint, "16+", tag=0, about="Addresses of the leaders named in `current_leader`."
    )


@data()
class ReplicaState(Message):
    """The broker id and broker epoch of a follower that fetches; -1 for a consumer."""

    replica_id: int = int32("15+", default=-1, about="Broker id of a follower; -1 for a consumer.")
    replica_epoch: int = int64("15+", default=-1, about="Broker epoch of the follower; -1 unknown.")


@data()
class FetchPartition(Message):
    """A partition to read, the offset to read from, and the most bytes to return."""

    partition: int = int32(about="Partition index.")
    current_leader_epoch: int = int32(
        "9+", default=-1, ignorable=True, about="Leader epoch that the client knows; -1 for no check."
    )
    fetch_offset: int = int64(about="Offset to read from.")
    last_fetched_epoch: int = int32(
        "12+", default=-1, about="Leader epoch of the last record the follower has; -1 for none."
    )
    log_start_offset: int = int64(
        "5+", default=-1, ignorable=True, about="First readable offset; -1 unknown."
    )
    partition_max_bytes: int = int32(
        about="Bytes to read from this partition; the first batch may exceed the limit."
    )
    replica_directory_id: bytes = uuid("17+", tag=0, ignorable=True, about="Log directory of the follower.")
    high_watermark: int = int64(
        "18+",
        default=9223372036854775807,
        tag=1,
        ignorable=True,
        about="High watermark that the follower knows.",
    )


@data()
class FetchTopic(Message):
    """Partitions of one topic to read."""

    topic: str = string("0-12", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("13+", ignorable=True, about="Id of the topic.")
    partitions: list[FetchPartition] = array(FetchPartition, about="Partitions to read.")


@data()
class ForgottenTopic(Message):
    """Partitions of one topic to drop from the fetch session."""

    topic: str = string("7-12", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("13+", ignorable=True, about="Id of the topic.")
    partitions: list[int] = array(int32, "7+", about="Partitions to drop.")


@request(1, "4-18", flexible="12+", response=FetchResponse)
class FetchRequest(Request[FetchResponse]):
    """Request to read record batches; with sessions since version 7 (KIP-227), with topic ids since version 13."""

    cluster_id: str | None = string(
        "12+", nullable="12+", default=None, tag=0, ignorable=True, about="Id of the cluster; null unknown."
    )
    replica_id: int = int32("0-14", default=-1, about="Broker id of a follower; -1 for a consumer.")
    replica_state: ReplicaState = nested(
        ReplicaState, "15+", tag=1, about="Follower that fetches, in versions that carry its broker epoch."
    )
    max_wait_ms: int = int32(about="Time to wait for `min_bytes`, in ms.")
    min_bytes: int = int32(about="Number of bytes after which the broker answers without waiting further.")
    max_bytes: int = int32(
        "3+",
        default=2147483647,
        ignorable=True,
        about="Bytes of the answer over all partitions; the first batch may exceed the limit.",
    )
    isolation_level: int = int8("4+", ignorable=True, about="0 read uncommitted, 1 read committed.")
    session_id: int = int32("7+", ignorable=True, about="Fetch session; 0 for none.")
    session_epoch: int = int32(
        "7+",
        default=-1,
        ignorable=True,
        about="Epoch of the fetch session; 0 opens a session, -1 closes the session or fetches without one.",
    )
    topics: list[FetchTopic] = array(FetchTopic, about="Partitions to read, by topic.")
    forgotten_topics_data: list[ForgottenTopic] = array(
        ForgottenTopic, "7+", about="Partitions to drop from the fetch session."
    )
    rack_id: str = string("11+", ignorable=True, about="Rack of the client.")
