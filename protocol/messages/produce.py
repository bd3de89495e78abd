"""Produce (0): appends record batches."""

from __future__ import annotations

from typing import Final

from ..wire.schema import (
    Message,
    Request,
    array,
    data,
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

FIRST_THAT_ADDS: Final = 12
"""First version that adds a partition to the transaction by a write to it (KIP-890)."""
FIRST_WITH_TOPIC_IDS: Final = 13
"""First version that names topics by id (KIP-516)."""


@data()
class BatchIndexAndErrorMessage(Message):
    """A record that is the reason for refusing its batch: its index in the batch, and a text."""

    batch_index: int = int32("8+", about="Position of the record in the batch.")
    batch_index_error_message: str | None = string(
        "8+", nullable="8+", default=None, about="Reason why the record was refused."
    )


@data()
class LeaderIdAndEpoch(Message):
    """The current leader of a partition and its leader epoch, sent to a producer that asked another broker."""

    leader_id: int = int32("10+", default=-1, about="Broker that leads the partition; -1 for none.")
    leader_epoch: int = int32("10+", default=-1, about="Leader epoch; -1 unknown.")


@data()
class PartitionProduceResponse(Message):
    """Result of the append to one partition."""

    index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    base_offset: int = int64(about="Offset that the first record got.")
    log_append_time_ms: int = int64(
        "2+",
        default=-1,
        ignorable=True,
        about="Broker's time of the append, if the topic uses it for timestamps; else -1.",
    )
    log_start_offset: int = int64(
        "5+", default=-1, ignorable=True, about="First readable offset; -1 unknown."
    )
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage,
        "8+",
        ignorable=True,
        about="Records because of which the whole batch was refused.",
    )
    error_message: str | None = string(
        "8+", nullable="8+", default=None, ignorable=True, about="Explanation for people; null without one."
    )
    current_leader: LeaderIdAndEpoch = nested(
        LeaderIdAndEpoch,
        "10+",
        tag=0,
        about="Leader of the partition, if the client asked the wrong broker (KIP-951).",
    )


@data()
class TopicProduceResponse(Message):
    """Results of the appends to one topic."""

    name: str = string("0-12", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("13+", ignorable=True, about="Id of the topic.")
    partition_responses: list[PartitionProduceResponse] = array(
        PartitionProduceResponse, about="Results, by partition."
    )


@data()
class NodeEndpoint(Message):
    """Address of a broker that leads a partition, sent to a producer that asked another broker."""

    node_id: int = int32("10+", about="Broker id.")
    host: str = string("10+", about="Host name or address.")
    port: int = int32("10+", about="TCP port.")
    rack: str | None = string(
        "10+", nullable="10+", default=None, about="Rack of the broker; null without one."
    )


@response(0, "0-13", flexible="9+")
class ProduceResponse(Message):
    """Answer to ProduceRequest."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse, about="Results, by topic.")
    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    node_endpoints: list[NodeEndpoint] = array(
        NodeEndpoint, "10+", tag=0, about="Addresses of the leaders named in `current_leader`."
    )


@data()
class PartitionProduceData(Message):
    """Record batches for one partition."""

    index: int = int32(about="Partition index.")
    records: bytes | memoryview | None = records_(nullable="0+", about="Record batches of format v2.")


@data()
class TopicProduceData(Message):
    """Record batches for one topic."""

    name: str = string("0-12", ignorable=True, about="Name of the topic.")
    topic_id: bytes = uuid("13+", ignorable=True, about="Id of the topic.")
    partition_data: list[PartitionProduceData] = array(
        PartitionProduceData, about="Record batches, by partition."
    )


@request(0, "0-13", flexible="9+", response=ProduceResponse)
class ProduceRequest(Request[ProduceResponse]):
    """Request to append record batches."""

    transactional_id: str | None = string(
        "3+",
        nullable="3+",
        default=None,
        about="Transactional id of the producer; null without transactions.",
    )
    acks: int = int16(
        about="Replicas that must have the records before the answer: 0 none (and no answer is sent), 1 the leader, "
        "-1 the ISR."
    )
    timeout_ms: int = int32(about="Time within which the broker has to answer, in ms.")
    topic_data: list[TopicProduceData] = array(TopicProduceData, about="Record batches, by topic.")
