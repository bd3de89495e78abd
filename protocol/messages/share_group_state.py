"""States of share groups, as brokers read and write them (KIP-932).

InitializeShareGroupState (83), ReadShareGroupState (84), WriteShareGroupState (85), DeleteShareGroupState (86),
ReadShareGroupStateSummary (87). Only brokers send these requests, to the coordinator of the share-partition.
"""

from __future__ import annotations

from ..wire.schema import Message, Request, array, data, int16, int32, int64, request, response, string, uuid
from .share_state_records import UNKNOWN_COUNT, StateBatch


@data()
class StateResult(Message):
    """Result of the change of one share-partition's state."""

    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )


@data()
class TopicStateResults(Message):
    """Results of the changes of one topic's states, by partition."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[StateResult] = array(StateResult, about="Results, by partition.")


@response(83, "0", flexible="0+")
class InitializeShareGroupStateResponse(Message):
    """Answer to InitializeShareGroupStateRequest."""

    results: list[TopicStateResults] = array(TopicStateResults, about="Results, by topic.")


@data()
class InitialState(Message):
    """The first state of a share-partition."""

    partition: int = int32(about="Partition index.")
    state_epoch: int = int32(about="Epoch of the state.")
    start_offset: int = int64(about="First offset to deliver; -1 if the leader has to choose it.")


@data()
class InitialTopicStates(Message):
    """The first states of one topic's partitions."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[InitialState] = array(InitialState, about="States, by partition.")


@request(83, "0", flexible="0+", response=InitializeShareGroupStateResponse)
class InitializeShareGroupStateRequest(Request[InitializeShareGroupStateResponse]):
    """Request to create the states of share-partitions, or to replace them by states with another start offset."""

    group_id: str = string(about="Id of the group.")
    topics: list[InitialTopicStates] = array(InitialTopicStates, about="States to create, by topic.")


@data()
class PendingState(Message):
    """States of offsets that count once a transaction commits."""

    producer_id: int = int64(about="Producer id in the transaction.")
    producer_epoch: int = int16(about="Producer epoch in the transaction.")
    state_batches: list[StateBatch] = array(StateBatch, about="States of the offsets after a commit.")


@data()
class ReadState(Message):
    """The state of a share-partition, or an error."""

    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    state_epoch: int = int32(about="Epoch of the state.")
    start_offset: int = int64(
        about="First offset whose delivery is not complete; -1 if the leader has to choose it."
    )
    state_batches: list[StateBatch] = array(StateBatch, about="States of offsets from the start offset on.")
    pending: list[PendingState] = array(
        PendingState,
        tag=10000,
        about="Not in Kafka: states that count once their transactions commit, which have not ended.",
    )


@data()
class ReadTopicStates(Message):
    """The states of one topic's partitions."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[ReadState] = array(ReadState, about="States, by partition.")


@response(84, "0", flexible="0+")
class ReadShareGroupStateResponse(Message):
    """Answer to ReadShareGroupStateRequest."""

    results: list[ReadTopicStates] = array(ReadTopicStates, about="States, by topic.")


@data()
class WantedState(Message):
    """A share-partition whose state is asked for."""

    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="Leader epoch of the partition; older leaders may not write afterwards.")


@data()
class WantedTopicStates(Message):
    """Share-partitions of one topic whose states are asked for."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[WantedState] = array(WantedState, about="Partitions.")


@request(84, "0", flexible="0+", response=ReadShareGroupStateResponse)
class ReadShareGroupStateRequest(Request[ReadShareGroupStateResponse]):
    """Request of a partition's leader for the states of share-partitions, before it serves them."""

    group_id: str = string(about="Id of the group.")
    topics: list[WantedTopicStates] = array(WantedTopicStates, about="States wanted, by topic.")


@response(85, "0-1", flexible="0+")
class WriteShareGroupStateResponse(Message):
    """Answer to WriteShareGroupStateRequest."""

    results: list[TopicStateResults] = array(TopicStateResults, about="Results, by topic.")


@data()
class WrittenState(Message):
    """A change of a share-partition's state."""

    partition: int = int32(about="Partition index.")
    state_epoch: int = int32(about="Epoch of the state, as the leader has read it.")
    leader_epoch: int = int32(about="Leader epoch of the partition.")
    start_offset: int = int64(about="First offset whose delivery is not complete; -1 if unchanged.")
    delivery_complete_count: int = int32(
        "1+",
        default=UNKNOWN_COUNT,
        ignorable=True,
        about="Number of offsets from the start offset on whose delivery is complete; -1 unknown (KIP-1226).",
    )
    state_batches: list[StateBatch] = array(StateBatch, about="States that have changed.")
    transactional_id: str = string(
        tag=10000,
        default="",
        about="Not in Kafka: transactional id of the transaction with whose commit the states change; empty: they "
        "change at once.",
    )
    producer_id: int = int64(
        tag=10001, default=-1, about="Not in Kafka: producer id in that transaction; -1 without one."
    )
    producer_epoch: int = int16(
        tag=10002, default=-1, about="Not in Kafka: producer epoch in that transaction; -1 without one."
    )


@data()
class WrittenTopicStates(Message):
    """Changes of the states of one topic's partitions."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[WrittenState] = array(WrittenState, about="Changes, by partition.")


@request(85, "0-1", flexible="0+", response=WriteShareGroupStateResponse)
class WriteShareGroupStateRequest(Request[WriteShareGroupStateResponse]):
    """Request of a partition's leader to store changes of the states of share-partitions."""

    group_id: str = string(about="Id of the group.")
    topics: list[WrittenTopicStates] = array(WrittenTopicStates, about="Changes, by topic.")


@response(86, "0", flexible="0+")
class DeleteShareGroupStateResponse(Message):
    """Answer to DeleteShareGroupStateRequest."""

    results: list[TopicStateResults] = array(TopicStateResults, about="Results, by topic.")


@data()
class DeletedState(Message):
    """A share-partition whose state is no longer needed."""

    partition: int = int32(about="Partition index.")


@data()
class DeletedTopicStates(Message):
    """Share-partitions of one topic whose states are no longer needed."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[DeletedState] = array(DeletedState, about="Partitions.")


@request(86, "0", flexible="0+", response=DeleteShareGroupStateResponse)
class DeleteShareGroupStateRequest(Request[DeleteShareGroupStateResponse]):
    """Request to delete the states of share-partitions."""

    group_id: str = string(about="Id of the group.")
    topics: list[DeletedTopicStates] = array(DeletedTopicStates, about="States to delete, by topic.")


@data()
class StateSummary(Message):
    """Epochs and start offset of a share-partition, or an error."""

    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    state_epoch: int = int32(about="Epoch of the state.")
    leader_epoch: int = int32(about="Leader epoch of the partition.")
    start_offset: int = int64(
        about="First offset whose delivery is not complete; -1 if the leader has to choose it."
    )
    delivery_complete_count: int = int32(
        "1+",
        default=UNKNOWN_COUNT,
        ignorable=True,
        about="Number of offsets from the start offset on whose delivery is complete; -1 unknown (KIP-1226).",
    )


@data()
class TopicStateSummaries(Message):
    """Epochs and start offsets of one topic's share-partitions."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[StateSummary] = array(StateSummary, about="Summaries, by partition.")


@response(87, "0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse(Message):
    """Answer to ReadShareGroupStateSummaryRequest."""

    results: list[TopicStateSummaries] = array(TopicStateSummaries, about="Summaries, by topic.")


@request(87, "0-1", flexible="0+", response=ReadShareGroupStateSummaryResponse)
class ReadShareGroupStateSummaryRequest(Request[ReadShareGroupStateSummaryResponse]):
    """Request of a group's coordinator for the start offsets of share-partitions."""

    group_id: str = string(about="Id of the group.")
    topics: list[WantedTopicStates] = array(WantedTopicStates, about="Summaries wanted, by topic.")
