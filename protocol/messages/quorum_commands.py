"""Commands to the controller and their results.

An encoded command is `u8 type | envelope | command`; the envelope names the session that it belongs to, or
none (the Raft leader's own commands and registrations). Within a session, (broker id, broker epoch),
sequences rise by one from 1, and each command is applied exactly once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ..codec import MalformedMessage, decode, decode_from, encode, encode_into
from ..schema import Message, array, boolean, data, int8, int16, int32, int64, string, uuid
from .metadata_records import BrokerListener
from .offline_replica_commands import ReportOfflineReplicas
from .quota_commands import (
    AlterClientQuotas,
    AlterClientQuotasResult,
    UpdateFeatures,
    UpdateFeaturesResult,
)
from .reassignment_commands import AlterPartitionReassignments, AlterPartitionReassignmentsResult


class ElectionType(IntEnum):
    """Kafka's election types."""

    PREFERRED = 0
    UNCLEAN = 1


class ConfigOperation(IntEnum):
    """Kafka's operations on one configuration key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ResourceType(IntEnum):
    """Kafka's config resource types, as far as the controller keeps any."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


@data()
class ReplicaLogEnd(Message):
    """How far one replica's log reaches, as its heartbeats told."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    broker_id: int = int32(about="The replica.")
    leader_epoch: int = int32(about="Leader epoch of its last batch.")
    log_end_offset: int = int64(about="Its log end offset.")


@data()
class RegisterBroker(Message):
    """A broker process has started. Idempotent by incarnation."""

    broker_id: int = int32(default=-1, about="node.id.")
    incarnation: bytes = uuid(about="Chosen at each start of the process.")
    previous_broker_epoch: int = int64(
        default=-1, about="As the clean stop left it; -1 after an unclean one."
    )
    listeners: list[BrokerListener] = array(BrokerListener, about="Where clients reach it.")
    rack: str | None = string(nullable="0+", default=None, about="Null without racks.")
    log_dirs: list[bytes] = array(uuid, about="Ids of its log directories.")


@data()
class RegisterBrokerResult(Message):
    """The registration."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    broker_epoch: int = int64(default=-1, about="Fences all earlier registrations of this broker id.")


@data()
class UnfenceBroker(Message):
    """The broker is ready to serve."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(about="Its registration.")


@data()
class FenceBroker(Message):
    """The broker is gone: it leaves its ISRs, and others lead."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(about="Its registration.")
    progress: list[ReplicaLogEnd] = array(ReplicaLogEnd, about="For choosing the member furthest along.")


@data()
class BeginControlledShutdown(Message):
    """The broker wants to stop: others take over what it leads."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(about="Its registration.")
    progress: list[ReplicaLogEnd] = array(
        ReplicaLogEnd, "0+", tag=0, about="For choosing the member furthest along."
    )


@data()
class UnregisterBroker(Message):
    """Forget a broker that will not come back."""

    broker_id: int = int32(about="Which.")


@data()
class CommandResult(Message):
    """The result of commands that have nothing to tell but how they went."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class ControlledShutdownResult(Message):
    """How far the shutdown is."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    remaining_leaderships: int = int32(about="Partitions that the broker still leads.")


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
class CreateTopics(Message):
    """Create topics, each on its own."""

    topics: list[NewTopic] = array(NewTopic, about="Topics.")
    validate_only: bool = boolean(about="Whether only to check.")
    seed: int = int64(about="Random: topic ids and the start of the placement come from it.")


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
class CreateTopicsResult(Message):
    """One result per topic, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    topics: list[CreatedTopic] = array(CreatedTopic, about="In the order of the command.")


@data()
class DeleteTopics(Message):
    """Delete topics, by id or by name."""

    topic_ids: list[bytes] = array(uuid, about="By id.")
    names: list[str] = array(string, about="By name; results follow those of the ids.")


@data()
class TopicResult(Message):
    """How a change of one topic went."""

    name: str = string(about="Name; empty if unknown.")
    topic_id: bytes = uuid(about="Id; zero if unknown.")
    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class DeleteTopicsResult(Message):
    """One result per topic, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    topics: list[TopicResult] = array(TopicResult, about="In the order of the command.")


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
class CreatePartitions(Message):
    """Raise the number of partitions of topics."""

    topics: list[MorePartitions] = array(MorePartitions, about="Topics.")
    validate_only: bool = boolean(about="Whether only to check.")
    seed: int = int64(about="Random: the placement starts from it.")


@data()
class CreatePartitionsResult(Message):
    """One result per topic, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    topics: list[TopicResult] = array(TopicResult, about="In the order of the command.")


@data()
class IsrMember(Message):
    """A proposed member of an ISR (KIP-903)."""

    broker_id: int = int32(about="Replica.")
    broker_epoch: int = int64(default=-1, about="Registration that its fetches named; -1 if unknown.")
    log_end_offset: int = int64(
        "0+", tag=0, default=-1, about="Where its log ended, as the leader knew; -1 if it did not."
    )


@data()
class AlterPartitionChange(Message):
    """A leader's new ISR, valid only if nothing else has changed the partition."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    leader_epoch: int = int32(about="The leader's.")
    partition_epoch: int = int32(about="Of the state that is to be replaced.")
    new_isr: list[IsrMember] = array(IsrMember, about="The whole new ISR.")


@data()
class AlterPartition(Message):
    """A leader changes ISRs, by compare-and-set."""

    broker_id: int = int32(about="Who asks.")
    broker_epoch: int = int64(about="Its registration.")
    partitions: list[AlterPartitionChange] = array(AlterPartitionChange, about="Changes.")


@data()
class AlteredPartition(Message):
    """How one change went, and the state there is now (if the partition is known)."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="0 for success.")
    leader: int = int32(default=-1, about="Leader.")
    leader_epoch: int = int32(default=-1, about="Leader epoch.")
    isr: list[int] = array(int32, about="In-sync replicas.")
    partition_epoch: int = int32(default=-1, about="Partition epoch.")


@data()
class AlterPartitionResult(Message):
    """One result per change, in order."""

    error_code: int = int16(about="About the whole command: STALE_BROKER_EPOCH.")
    error_message: str = string(about="For people.")
    partitions: list[AlteredPartition] = array(AlteredPartition, about="In the order of the command.")


@data()
class ConfigChange(Message):
    """One change of one key."""

    name: str = string(about="Key.")
    operation: int = int8(about="A ConfigOperation.")
    value: str | None = string(nullable="0+", default=None, about="Null for DELETE.")


@data()
class ConfigResource(Message):
    """What changes about one topic or broker: all or nothing."""

    resource_type: int = int8(about="A ResourceType.")
    resource_name: str = string(about="Topic, broker id, or empty for all brokers.")
    changes: list[ConfigChange] = array(ConfigChange, about="Changes.")


@data()
class AlterConfigs(Message):
    """Change dynamic configurations, each resource on its own."""

    resources: list[ConfigResource] = array(ConfigResource, about="Resources.")
    validate_only: bool = boolean(about="Whether only to check.")


@data()
class AlteredConfig(Message):
    """How the change of one resource went."""

    resource_type: int = int8(about="As in the command.")
    resource_name: str = string(about="As in the command.")
    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class AlterConfigsResult(Message):
    """One result per resource, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    resources: list[AlteredConfig] = array(AlteredConfig, about="In the order of the command.")


@data()
class AllocateProducerIds(Message):
    """A broker needs producer ids to give out."""

    broker_id: int = int32(about="Who asks.")
    broker_epoch: int = int64(about="Its registration.")


@data()
class AllocateProducerIdsResult(Message):
    """A block of producer ids, for this broker alone."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    first: int = int64(default=-1, about="First of the block.")
    count: int = int32(about="Size of the block.")


@data()
class ElectionPartition(Message):
    """A partition to elect a leader for."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")


@data()
class ElectLeaders(Message):
    """Elect preferred leaders, or any leader where there is none."""

    election_type: int = int8(about="An ElectionType.")
    partitions: list[ElectionPartition] | None = array(
        ElectionPartition, nullable="0+", default=None, about="Null: all partitions."
    )
    progress: list[ReplicaLogEnd] = array(ReplicaLogEnd, about="For choosing the member furthest along.")


@data()
class ElectedPartition(Message):
    """How one election went."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class ElectLeadersResult(Message):
    """One result per partition; with null partitions, only of those that needed an election."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    partitions: list[ElectedPartition] = array(ElectedPartition, about="Results.")


@data()
class FormCluster(Message):
    """Name the cluster, once."""

    cluster_id: str = string(about="Chosen once, for ever.")


Command = (
    RegisterBroker
    | UnfenceBroker
    | FenceBroker
    | BeginControlledShutdown
    | UnregisterBroker
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterPartition
    | AlterConfigs
    | AllocateProducerIds
    | ElectLeaders
    | FormCluster
    | ReportOfflineReplicas
    | AlterClientQuotas
    | UpdateFeatures
    | AlterPartitionReassignments
)

_TYPES: dict[int, tuple[type[Command], type[Message]]] = {
    1: (RegisterBroker, RegisterBrokerResult),
    2: (UnfenceBroker, CommandResult),
    3: (FenceBroker, CommandResult),
    4: (BeginControlledShutdown, ControlledShutdownResult),
    5: (UnregisterBroker, CommandResult),
    6: (CreateTopics, CreateTopicsResult),
    7: (DeleteTopics, DeleteTopicsResult),
    8: (CreatePartitions, CreatePartitionsResult),
    9: (AlterPartition, AlterPartitionResult),
    10: (AlterConfigs, AlterConfigsResult),
    11: (AllocateProducerIds, AllocateProducerIdsResult),
    12: (ElectLeaders, ElectLeadersResult),
    13: (FormCluster, CommandResult),
    14: (AlterPartitionReassignments, AlterPartitionReassignmentsResult),
    18: (ReportOfflineReplicas, CommandResult),
    20: (AlterClientQuotas, AlterClientQuotasResult),
    21: (UpdateFeatures, UpdateFeaturesResult),
}
_NUMBERS: dict[type[Message], int] = {cls: number for number, (cls, _) in _TYPES.items()}
_RESULTS: dict[type[Message], type[Message]] = dict(_TYPES.values())


class Session(NamedTuple):
    """Whose command it is. `acknowledged`: results up to this sequence have arrived and need not be kept."""

    broker_id: int
    broker_epoch: int
    sequence: int
    acknowledged: int = 0


@data()
class _Envelope(Message):
    broker_id: int = int32(default=-1, about="-1: outside of any session.")
    broker_epoch: int = int64(default=-1, about="The session's registration.")
    sequence: int = int64(about="Rises by one from 1.")
    acknowledged: int = int64(about="Results up to here need not be kept.")


def encode_command(session: Session | tuple[int, int, int] | None, command: Command) -> bytes:
    """One command as it goes into the log."""
    envelope = _Envelope()
    if session is not None:
        whose = Session(*session)
        envelope = _Envelope(**whose._asdict())
    out = bytearray((_NUMBERS[type(command)],))
    encode_into(envelope, 0, out)
    encode_into(command, 0, out)
    return bytes(out)


def decode_command(encoded: bytes) -> tuple[Session | None, Command]:
    """Raises MalformedMessage for anything that is not one whole command."""
    if not encoded or encoded[0] not in _TYPES:
        raise MalformedMessage(f"unknown command type {encoded[:1].hex() or '(empty)'}")
    envelope, position = decode_from(_Envelope, encoded, 0, 1)
    command, end = decode_from(_TYPES[encoded[0]][0], encoded, 0, position)
    if end != len(encoded):
        raise MalformedMessage(f"{len(encoded) - end} bytes follow the {type(command).__name__} command")
    return _session(envelope), command


def _session(envelope: _Envelope) -> Session | None:
    if envelope.broker_id < 0:
        return None
    return Session(envelope.broker_id, envelope.broker_epoch, envelope.sequence, envelope.acknowledged)


def encode_result(result: Message) -> bytes:
    """A result as it travels in a reply."""
    return encode(result, 0)


def result_type(command: Command) -> type[Message]:
    """The class of this command's results; all have an error code and message about the whole command."""
    return _RESULTS[type(command)]


def decode_result(command: Command, encoded: bytes) -> Message:
    """The result of this command. Raises MalformedMessage."""
    return decode(result_type(command), encoded, 0)
