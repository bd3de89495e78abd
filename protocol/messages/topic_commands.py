"""Commands about topics: their creation, deletion and growth."""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int16, int32, int64, string, uuid
from .command import Command, CommandResult


@data()
class PartitionAssignment(Message):
    """Where one partition's replicas shall be."""

    partition: int = int32(about="Partition index.")
    replicas: list[int] = array(int32, about="Broker ids, preferred leader first.")


@data()
class NewTopicConfig(Message):
    """One configuration value of a new topic."""

    name: str = string(about="Key.")
    value: str | None = string(nullable="0+", default=None, about="Null is refused, as Kafka does.")


@data()
class NewTopic(Message):
    """A topic to be created."""

    name: str = string(about="Name.")
    num_partitions: int = int32(default=-1, about="-1 for the cluster's default, or with assignments.")
    replication_factor: int = int16(default=-1, about="-1 for the cluster's default, or with assignments.")
    assignments: list[PartitionAssignment] = array(
        PartitionAssignment, about="Empty: the controller decides."
    )
    configs: list[NewTopicConfig] = array(NewTopicConfig, about="Configuration.")


@data()
class CreatedTopic(Message):
    """How the creation of one topic went."""

    name: str = string(about="Name.")
    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    topic_id: bytes = uuid(about="Id.")
    num_partitions: int = int32(default=-1, about="Number of partitions.")
    replication_factor: int = int16(default=-1, about="Number of replicas.")


@data()
class CreateTopicsResult(CommandResult):
    """One result per topic, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    topics: list[CreatedTopic] = array(CreatedTopic, about="In the order of the command.")


@data()
class CreateTopics(Command[CreateTopicsResult]):
    """Create topics, each on its own."""

    topics: list[NewTopic] = array(NewTopic, about="Topics.")
    validate_only: bool = boolean(about="Whether only to check.")
    seed: int = int64(about="Random: topic ids and the start of the placement come from it.")


@data()
class TopicResult(Message):
    """How a change of one topic went."""

    name: str = string(about="Name; empty if unknown.")
    topic_id: bytes = uuid(about="Id; zero if unknown.")
    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class DeleteTopicsResult(CommandResult):
    """One result per topic, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    topics: list[TopicResult] = array(TopicResult, about="In the order of the command.")


@data()
class DeleteTopics(Command[DeleteTopicsResult]):
    """Delete topics, by id or by name."""

    topic_ids: list[bytes] = array(uuid, about="By id.")
    names: list[str] = array(string, about="By name; results follow those of the ids.")


@data()
class Replicas(Message):
    """The replicas of one new partition."""

    broker_ids: list[int] = array(int32, about="Preferred leader first.")


@data()
class MorePartitions(Message):
    """A topic that shall have more partitions."""

    name: str = string(about="Topic.")
    count: int = int32(about="The new number of partitions.")
    assignments: list[Replicas] | None = array(
        Replicas, nullable="0+", default=None, about="One per new partition; null: the controller decides."
    )


@data()
class CreatePartitionsResult(CommandResult):
    """One result per topic, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    topics: list[TopicResult] = array(TopicResult, about="In the order of the command.")


@data()
class CreatePartitions(Command[CreatePartitionsResult]):
    """Raise the number of partitions of topics."""

    topics: list[MorePartitions] = array(MorePartitions, about="Topics.")
    validate_only: bool = boolean(about="Whether only to check.")
    seed: int = int64(about="Random: the placement starts from it.")
