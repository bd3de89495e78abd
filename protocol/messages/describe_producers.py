"""DescribeProducers (61): the producers that a partition remembers (KIP-664)."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int16, int32, int64, request, response, string


@data()
class ProducerState(Message):
    """A producer that a partition's leader remembers: id, epoch, last sequence and open transaction."""

    producer_id: int = int64(about="Producer id; -1 for none.")
    producer_epoch: int = int32(about="Producer epoch; -1 for none.")
    last_sequence: int = int32(default=-1, about="Last sequence number; -1 for none.")
    last_timestamp: int = int64(
        default=-1, about="Time of the producer's last batch, in ms since 1970; -1 unknown."
    )
    coordinator_epoch: int = int32(about="Epoch of the last marker's coordinator; -1 for none.")
    current_txn_start_offset: int = int64(
        default=-1, about="First offset of the producer's open transaction; -1 for none."
    )


@data()
class PartitionResponse(Message):
    """Producers of one partition."""

    partition_index: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    active_producers: list[ProducerState] = array(
        ProducerState, about="Producers that the partition remembers."
    )


@data()
class TopicResponse(Message):
    """Producers of one topic, by partition."""

    name: str = string(about="Name of the topic.")
    partitions: list[PartitionResponse] = array(PartitionResponse, about="Partitions that were asked for.")


@response(61, "0", flexible="0+")
class DescribeProducersResponse(Message):
    """Answer to DescribeProducersRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    topics: list[TopicResponse] = array(TopicResponse, about="Topics that were asked for.")


@data()
class TopicRequest(Message):
    """Partitions of one topic to describe."""

    name: str = string(about="Name of the topic.")
    partition_indexes: list[int] = array(int32, about="Partition indexes.")


@request(61, "0", flexible="0+", response=DescribeProducersResponse)
class DescribeProducersRequest(Request[DescribeProducersResponse]):
    """Request for the active producers of partitions."""

    topics: list[TopicRequest] = array(TopicRequest, about="Topics to describe.")
