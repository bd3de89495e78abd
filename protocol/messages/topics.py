"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37)."""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    request,
    response,
    string,
    uuid,
)


@data()
class CreatableTopicConfigs(Message):
    """A configuration entry of a topic that was created."""

    name: str = string("5+", about="Configuration key.")
    value: str | None = string("5+", nullable="5+", about="Value; null for none.")
    read_only: bool = boolean("5+", about="Whether the entry cannot be changed.")
    config_source: int = int8(
        "5+",
        default=-1,
        ignorable=True,
        about="Source of the value: 1 topic, 2 broker, 3 all brokers, 4 static, 5 default.",
    )
    is_sensitive: bool = boolean("5+", about="Whether the value is kept secret.")


@data()
class CreatableTopicResult(Message):
    """Result of the creation of one topic."""

    name: str = string(about="Name of the topic.")
    topic_id: bytes = uuid("7+", ignorable=True, about="Id of the topic.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        "1+", nullable="0+", default=None, ignorable=True, about="Explanation for people; null without one."
    )
    topic_config_error_code: int = int16(
        "5+", tag=0, ignorable=True, about="Reason why the configuration is not shown."
    )
    num_partitions: int = int32(
        "5+", default=-1, ignorable=True, about="Number of partitions; -1 for the default."
    )
    replication_factor: int = int16(
        "5+", default=-1, ignorable=True, about="Number of replicas; -1 for the default."
    )
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True, about="Configuration entries."
    )


@response(19, "2-7", flexible="5+")
class CreateTopicsResponse(Message):
    """Answer to CreateTopicsRequest."""

    throttle_time_ms: int = int32("2+", ignorable=True, about="How long a quota delayed the request, in ms.")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, about="Results, by topic.")


@data()
class CreatableReplicaAssignment(Message):
    """Replicas of one partition of a topic to create."""

    partition_index: int = int32(about="Partition index.")
    broker_ids: list[int] = array(int32, about="Brokers, preferred leader first.")


@data()
class CreatableTopicConfig(Message):
    """A configuration entry of a topic to create."""

    name: str = string(about="Configuration key.")
    value: str | None = string(nullable="0+", about="Value; null for none.")


@data()
class CreatableTopic(Message):
    """A topic to create."""

    name: str = string(about="Name of the topic.")
    num_partitions: int = int32(about="Number of partitions; -1 for the default.")
    replication_factor: int = int16(about="Number of replicas; -1 for the default.")
    assignments: list[CreatableReplicaAssignment] = array(
        CreatableReplicaAssignment, about="Replicas of each partition; empty: the broker places them."
    )
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, about="Configuration entries.")


@request(19, "2-7", flexible="5+", response=CreateTopicsResponse)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Request to create topics."""

    topics: list[CreatableTopic] = array(CreatableTopic, about="Topics to create.")
    timeout_ms: int = int32(default=60000, about="Time within which the broker has to answer, in ms.")
    validate_only: bool = boolean("1+", about="Whether to validate only, without any change.")


@data()
class DeletableTopicResult(Message):
    """Result of the deletion of one topic."""

    name: str | None = string(nullable="6+", about="Name of the topic.")
    topic_id: bytes = uuid("6+", ignorable=True, about="Id of the topic.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        "5+", nullable="5+", default=None, ignorable=True, about="Explanation for people; null without one."
    )


@response(20, "1-6", flexible="4+")
class DeleteTopicsResponse(Message):
    """Answer to DeleteTopicsRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, about="Results, by topic.")


@data()
class DeleteTopicState(Message):
    """A topic to delete, by name or id."""

    name: str | None = string("6+", nullable="6+", default=None, about="Name of the topic.")
    topic_id: bytes = uuid("6+", about="Id of the topic.")


@request(20, "1-6", flexible="4+", response=DeleteTopicsResponse)
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """Request to delete topics, by name or (since version 6) by id."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", about="Topics to delete.")
    topic_names: list[str] = array(string, "0-5", ignorable=True, about="Names of the topics to delete.")
    timeout_ms: int = int32(about="Time within which the broker has to answer, in ms.")


@data()
class CreatePartitionsTopicResult(Message):
    """Result for one topic."""

    name: str = string(about="Name of the topic.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )


@response(37, "0-3", flexible="2+")
class CreatePartitionsResponse(Message):
    """Answer to CreatePartitionsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    results: list[CreatePartitionsTopicResult] = array(
        CreatePartitionsTopicResult, about="Results, by topic."
    )


@data()
class CreatePartitionsAssignment(Message):
    """Replicas of one new partition."""

    broker_ids: list[int] = array(int32, about="Brokers, preferred leader first.")


@data()
class CreatePartitionsTopic(Message):
    """A topic that is to get more partitions."""

    name: str = string(about="Name of the topic.")
    count: int = int32(about="New number of partitions.")
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment,
        nullable="0+",
        about="Replicas of each new partition; null: the broker places them.",
    )


@request(37, "0-3", flexible="2+", response=CreatePartitionsResponse)
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """Request to add partitions to topics."""

    topics: list[CreatePartitionsTopic] = array(
        CreatePartitionsTopic, about="Topics with their new numbers of partitions."
    )
    timeout_ms: int = int32(about="Time within which the broker has to answer, in ms.")
    validate_only: bool = boolean(about="Whether to validate only, without any change.")
