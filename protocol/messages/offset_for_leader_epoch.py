"""OffsetForLeaderEpoch (23): the end offset of a leader epoch (KIP-101, KIP-320)."""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int16, int32, int64, request, response, string


@data()
class EpochEndOffset(Message):
    """The end offset of a leader epoch in one partition, or an error."""

    error_code: int = int16(about="Error code, 0 for success.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32("1+", default=-1, ignorable=True, about="Leader epoch; -1 unknown.")
    end_offset: int = int64(default=-1, about="First offset after the epoch; -1 unknown.")


@data()
class OffsetForLeaderTopicResult(Message):
    """Ends of leader epochs in the partitions of one topic."""

    topic: str = string(about="Name of the topic.")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, about="Partitions that were asked for.")


@response(23, "2-4", flexible="4+")
class OffsetForLeaderEpochResponse(Message):
    """Answer to OffsetForLeaderEpochRequest."""

    throttle_time_ms: int = int32("2+", ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, about="Results, by topic.")


@data()
class OffsetForLeaderPartition(Message):
    """A partition and the leader epoch whose end is asked for."""

    partition: int = int32(about="Partition index.")
    current_leader_epoch: int = int32(
        "2+", default=-1, ignorable=True, about="Leader epoch that the client knows; -1 for no check."
    )
    leader_epoch: int = int32(about="Leader epoch whose end is asked for.")


@data()
class OffsetForLeaderTopic(Message):
    """Partitions of one topic for whose leader epochs the end offsets are asked."""

    topic: str = string(about="Name of the topic.")
    partitions: list[OffsetForLeaderPartition] = array(
        OffsetForLeaderPartition, about="Partitions concerned."
    )


@request(23, "2-4", flexible="4+", response=OffsetForLeaderEpochResponse)
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """Request for the ends of leader epochs, by which a follower or a client finds the offset at which logs diverge."""

    replica_id: int = int32(
        "3+", default=-2, ignorable=True, about="Broker id of a follower; -1 for a consumer."
    )
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, about="Partitions, by topic.")
