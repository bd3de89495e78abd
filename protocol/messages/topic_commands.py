"""Commands about topics: to create and delete topics, and to add partitions."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int16, int32, int64, string, uuid
from .command import Command, CommandResult


@data()
class PartitionAssignment(Message):
    """The brokers of a partition's replicas."""

    partition: int = int32(about="Partition index.")
    replicas: list[int] = array(int32, about="Broker ids, preferred leader first.")


@data()
class NewTopicConfig(Message):
    """A configuration value of a new topic."""

    name: str = string(about="Configuration key.")
    value: str | None = string(nullable="0+", default=None, about="Value; null is refused, as in Kafka.")


@data()
class NewTopic(Message):
    """A topic to create."""

    name: str = string(about="Name of the topic.")
    num_partitions: int = int32(
        default=-1, about="Number of partitions; -1 for the cluster's default, or with assignments."
    )
    replication_factor: int = int16(
        default=-1, about="Number of replicas; -1 for the cluster's default, or with assignments."
    )
    assignments: list[PartitionAssignment] = array(
        PartitionAssignment, about="Replicas of each partition; empty: the controller places them."
    )
    configs: list[NewTopicConfig] = array(NewTopicConfig, about="Configuration of the topic.")


@data()
class CreatedTopic(Message):
    """Result of the creation of one topic."""

    name: str = string(about="Name of the topic.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    topic_id: bytes = uuid(about="Id of the topic.")
    num_partitions: int = int32(default=-1, about="Number of partitions.")
    replication_factor: int = int16(default=-1, about="Number of replicas.")


@data()
class CreateTopicsResult(CommandResult):
    """Results of CreateTopics, one for each topic in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    topics: list[CreatedTopic] = array(CreatedTopic, about="Results, in the order of the command.")


@data()
class CreateTopics(Command[CreateTopicsResult]):
    """Command to create topics, each independently of the others."""

    topics: list[NewTopic] = array(NewTopic, about="Topics to create.")
    validate_only: bool = boolean(about="Whether to validate only, without any change.")
    seed: int = int64(about="Random number from which topic ids and the placement of replicas are computed.")


@data()
class TopicResult(Message):
    """Result of the deletion of one topic, or of the addition of partitions to it."""

    name: str = string(about="Name of the topic; empty if unknown.")
    topic_id: bytes = uuid(about="Id of the topic; zero if unknown.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


@data()
class DeleteTopicsResult(CommandResult):
    """Results of DeleteTopics, one for each topic in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    topics: list[TopicResult] = array(TopicResult, about="Results, in the order of the command.")


@data()
class DeleteTopics(Command[DeleteTopicsResult]):
    """Command to delete topics, by id or by name."""

    topic_ids: list[bytes] = array(uuid, about="Ids of topics to delete.")
    names: list[str] = array(
        string, about="Names of topics to delete; their results follow the results of the ids."
    )


@data()
class Replicas(Message):
    """The broker ids of a new partition's replicas."""

    broker_ids: list[int] = array(int32, about="Broker ids, preferred leader first.")


@data()
class MorePartitions(Message):
    """A topic that is to get more partitions."""

    name: str = string(about="Name of the topic.")
    count: int = int32(about="The new number of partitions.")
    assignments: list[Replicas] | None = array(
        Replicas,
        nullable="0+",
        default=None,
        about="Replicas of each new partition; null: the controller places them.",
    )


@data()
class CreatePartitionsResult(CommandResult):
    """Results of CreatePartitions, one for each topic in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    topics: list[TopicResult] = array(TopicResult, about="Results, in the order of the command.")


@data()
class CreatePartitions(Command[CreatePartitionsResult]):
    """Command to add partitions to topics."""

    topics: list[MorePartitions] = array(MorePartitions, about="Topics with their new numbers of partitions.")
    validate_only: bool = boolean(about="Whether to validate only, without any change.")
    seed: int = int64(about="Random number from which the placement of replicas is computed.")
