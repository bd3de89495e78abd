"""Commands to the metadata quorum, and their results.

A command is proposed to the Raft log as `encode_command(session, command)`; the state machine applies it on
every node after commit. A session (broker id, broker epoch, sequence) makes it exactly-once: it is applied iff
its sequence follows the last one, answered with the kept result if it was applied before, refused otherwise.
The Raft leader's own commands and RegisterBroker, which opens a session, carry none.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..codec import MalformedMessage, decode, encode
from ..schema import (
    ZERO_UUID,
    Message,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)
from .metadata_records import BrokerListener

# ---------------------------------------------------------------- what several commands share


@data()
class ReplicaLogEnd(Message):
    """What a replica's broker last said about its log: elections take the member furthest along."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Index in the topic.")
    broker_id: int = int32(about="Replica.")
    leader_epoch: int = int32(default=-1, about="Latest leader epoch in its log.")
    log_end_offset: int = int64(default=-1, about="Its log end offset.")


@data()
class CommandResult(Message):
    """Outcome of a command that has nothing else to say."""

    error_code: int = int16(about="0 if applied.")
    error_message: str | None = string(nullable="0+", default=None, about="Why not.")


# ---------------------------------------------------------------- brokers


@data()
class FormCluster(Message):
    """The first leader's first command."""

    cluster_id: str = string(about="From the nodes' configuration.")


@data()
class RegisterBroker(Message):
    """A broker process joins; a new incarnation replaces the old one in the same entry."""

    broker_id: int = int32(default=-1, about="Its node.id.")
    incarnation: bytes = uuid(default=ZERO_UUID, about="Chosen anew by each process.")
    previous_broker_epoch: int = int64(default=-1, about="Of the last clean stop; -1 if it was not clean.")
    listeners: list[BrokerListener] = array(BrokerListener, about="Where it is reached.")
    rack: str | None = string(nullable="0+", default=None, about="broker.rack; null without.")
    log_dirs: list[bytes] = array(uuid, about="Ids of its log directories.")


@data()
class RegisterBrokerResult(Message):
    """The registration."""

    error_code: int = int16(about="0 if registered.")
    error_message: str | None = string(nullable="0+", default=None, about="Why not.")
    broker_epoch: int = int64(default=-1, about="Epoch of this registration.")


@data()
class UnfenceBroker(Message):
    """The broker has a live session and has caught up: it may lead again."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(default=-1, about="Of which registration.")


@data()
class FenceBroker(Message):
    """The broker is gone or hangs: it leaves all ISRs, and its leaderships move."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(default=-1, about="Of which registration.")
    progress: list[ReplicaLogEnd] = array(ReplicaLogEnd, about="For the partitions that need a new leader.")


@data()
class BeginControlledShutdown(Message):
    """The broker wants to stop: its leaderships move, and it leaves the ISRs that others can hold."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(default=-1, about="Of which registration.")
    progress: list[ReplicaLogEnd] = array(ReplicaLogEnd, about="For the partitions that need a new leader.")


@data()
class UnregisterBroker(Message):
    """Forget a fenced broker."""

    broker_id: int = int32(about="Which.")


# ---------------------------------------------------------------- topics


@data()
class PartitionAssignment(Message):
    """Replicas of one partition, chosen by hand."""

    partition: int = int32(about="Index in the topic.")
    replicas: list[int] = array(int32, about="Brokers, the preferred leader first.")


@data()
class NewTopicConfig(Message):
    """A setting that a new topic starts with."""

    name: str = string(about="Key.")
    value: str | None = string(nullable="0+", default=None, about="Value; null: the broker's default.")


@data()
class NewTopic(Message):
    """A topic to create."""

    name: str = string(about="Its name.")
    num_partitions: int = int32(default=-1, about="-1 with assignments.")
    replication_factor: int = int16(default=-1, about="-1 with assignments.")
    assignments: list[PartitionAssignment] = array(PartitionAssignment, about="Placement by hand.")
    configs: list[NewTopicConfig] = array(NewTopicConfig, about="Settings.")


@data()
class CreateTopics(Message):
    """Create topics; each has its own outcome."""

    topics: list[NewTopic] = array(NewTopic, about="In the order of the results.")
    validate_only: bool = boolean(about="Change nothing, only say whether it would work.")
    seed: int = int64(about="Chance for placement and topic ids: the state machine has none of its own.")


@data()
class CreatedTopic(Message):
    """Outcome for one topic."""

    error_code: int = int16(about="0 if created.")
    error_message: str | None = string(nullable="0+", default=None, about="Why not.")
    topic_id: bytes = uuid(about="Zero if it was only validated.")
    num_partitions: int = int32(default=-1, about="Partitions.")
    replication_factor: int = int16(default=-1, about="Replicas of each.")


@data()
class CreateTopicsResult(Message):
    """Outcomes in the order of the command's topics."""

    topics: list[CreatedTopic] = array(CreatedTopic, about="One for each.")


@data()
class DeleteTopics(Message):
    """Delete topics; each has its own outcome."""

    topic_ids: list[bytes] = array(uuid, about="In the order of the results.")


@data()
class DeleteTopicsResult(Message):
    """Outcomes in the order of the command's topics."""

    topics: list[CommandResult] = array(CommandResult, about="One for each.")


@data()
class Replicas(Message):
    """Replicas of one added partition."""

    broker_ids: list[int] = array(int32, about="Brokers, the preferred leader first.")


@data()
class MorePartitions(Message):
    """A topic to grow."""

    name: str = string(about="Topic.")
    count: int = int32(about="Partitions that it is to have in all.")
    assignments: list[Replicas] | None = array(
        Replicas, nullable="0+", default=None, about="Placement of the added ones by hand."
    )


@data()
class CreatePartitions(Message):
    """Add partitions to topics; each has its own outcome."""

    topics: list[MorePartitions] = array(MorePartitions, about="In the order of the results.")
    validate_only: bool = boolean(about="Change nothing, only say whether it would work.")
    seed: int = int64(about="Chance for placement.")


@data()
class CreatePartitionsResult(Message):
    """Outcomes in the order of the command's topics."""

    topics: list[CommandResult] = array(CommandResult, about="One for each.")


# ---------------------------------------------------------------- partitions


@data()
class IsrMember(Message):
    """A member of a proposed ISR."""

    broker_id: int = int32(about="Which broker.")
    broker_epoch: int = int64(default=-1, about="The registration that fetched (KIP-903).")


@data()
class PartitionChange(Message):
    """A leader's proposal: compare-and-set on both epochs."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Index in the topic.")
    leader_epoch: int = int32(about="In which the leader proposes.")
    partition_epoch: int = int32(about="That it has seen.")
    new_isr: list[IsrMember] = array(IsrMember, about="The ISR to be.")


@data()
class AlterPartition(Message):
    """A leader changes the ISR of partitions."""

    broker_id: int = int32(about="The leader.")
    broker_epoch: int = int64(default=-1, about="Of which registration.")
    partitions: list[PartitionChange] = array(PartitionChange, about="In the order of the results.")


@data()
class ChangedPartition(Message):
    """Outcome for one partition: the error, or the state as it is now."""

    error_code: int = int16(about="0 if changed.")
    isr: list[int] = array(int32, about="As committed.")
    leader: int = int32(default=-1, about="As committed.")
    leader_epoch: int = int32(default=-1, about="As committed.")
    partition_epoch: int = int32(default=-1, about="As committed.")


@data()
class AlterPartitionResult(Message):
    """Outcomes in the order of the command's partitions."""

    error_code: int = int16(about="Of the whole: STALE_BROKER_EPOCH.")
    partitions: list[ChangedPartition] = array(ChangedPartition, about="One for each.")


PREFERRED_ELECTION: Final = 0
UNCLEAN_ELECTION: Final = 1


@data()
class ElectionTarget(Message):
    """A partition to elect a leader for."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Index in the topic.")


@data()
class ElectLeaders(Message):
    """Elect leaders: the preferred ones, or unclean ones where there is none."""

    election_type: int = int8(about="0 preferred, 1 unclean (Kafka's numbers).")
    partitions: list[ElectionTarget] = array(ElectionTarget, about="In the order of the results.")
    progress: list[ReplicaLogEnd] = array(ReplicaLogEnd, about="For unclean elections.")


@data()
class ElectLeadersResult(Message):
    """Outcomes in the order of the command's partitions."""

    partitions: list[CommandResult] = array(CommandResult, about="One for each.")


# ---------------------------------------------------------------- settings and ids

SET_CONFIG: Final = 0
DELETE_CONFIG: Final = 1
APPEND_CONFIG: Final = 2
SUBTRACT_CONFIG: Final = 3


@data()
class ConfigChange(Message):
    """One change of one setting."""

    name: str = string(about="Key.")
    operation: int = int8(about="0 set, 1 delete, 2 append, 3 subtract (Kafka's numbers).")
    value: str | None = string(nullable="0+", default=None, about="Not for delete.")


@data()
class ResourceChanges(Message):
    """Changes of one resource, all or none."""

    resource_type: int = int8(about="2 topic, 4 broker (Kafka's numbers).")
    resource_name: str = string(about="Topic or broker id; empty: all brokers.")
    changes: list[ConfigChange] = array(ConfigChange, about="Applied in this order.")
    replace: bool = boolean(about="Remove every setting that is not named (the old AlterConfigs).")


@data()
class AlterConfigs(Message):
    """Change dynamic settings; each resource has its own outcome."""

    resources: list[ResourceChanges] = array(ResourceChanges, about="In the order of the results.")
    validate_only: bool = boolean(about="Change nothing, only say whether it would work.")


@data()
class AlterConfigsResult(Message):
    """Outcomes in the order of the command's resources."""

    resources: list[CommandResult] = array(CommandResult, about="One for each.")


@data()
class AllocateProducerIds(Message):
    """A broker needs a block of producer ids."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(default=-1, about="Of which registration.")


@data()
class AllocateProducerIdsResult(Message):
    """The block."""

    error_code: int = int16(about="0 if allocated.")
    first_producer_id: int = int64(default=-1, about="The first of the block.")
    count: int = int32(about="Its length.")


# ---------------------------------------------------------------- encoding

Command: TypeAlias = (
    FormCluster
    | RegisterBroker
    | UnfenceBroker
    | FenceBroker
    | BeginControlledShutdown
    | UnregisterBroker
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterPartition
    | ElectLeaders
    | AlterConfigs
    | AllocateProducerIds
)

# Numbers are for ever: a new command gets a new one.
_COMMANDS: dict[int, type[Command]] = {
    1: FormCluster,
    2: RegisterBroker,
    3: UnfenceBroker,
    4: FenceBroker,
    5: BeginControlledShutdown,
    6: UnregisterBroker,
    7: CreateTopics,
    8: DeleteTopics,
    9: CreatePartitions,
    10: AlterPartition,
    11: ElectLeaders,
    12: AlterConfigs,
    13: AllocateProducerIds,
}
_NUMBERS = {cls: number for number, cls in _COMMANDS.items()}
_RESULTS: dict[type[Command], type[Message]] = {
    RegisterBroker: RegisterBrokerResult,
    CreateTopics: CreateTopicsResult,
    DeleteTopics: DeleteTopicsResult,
    CreatePartitions: CreatePartitionsResult,
    AlterPartition: AlterPartitionResult,
    ElectLeaders: ElectLeadersResult,
    AlterConfigs: AlterConfigsResult,
    AllocateProducerIds: AllocateProducerIdsResult,
}

_PREFIX = struct.Struct(">BiqqB")
_NO_SESSION = (-1, -1, -1)


@dataclass(frozen=True, slots=True)
class Session:
    """Whose command, of which registration, and which in their order (from 0 on)."""

    broker_id: int
    broker_epoch: int
    sequence: int


SessionKey: TypeAlias = tuple[int, int, int] | None


def result_class(command: Command | type[Command]) -> type[Message]:
    """The class of a command's result."""
    cls = command if isinstance(command, type) else type(command)
    return _RESULTS.get(cls, CommandResult)


def encode_command(session: SessionKey, command: Command) -> bytes:
    """What is proposed: a format byte, the session (broker id, broker epoch, sequence), and the command."""
    return _PREFIX.pack(0, *(session or _NO_SESSION), _NUMBERS[type(command)]) + encode(command, 0)


def decode_command(data: bytes | memoryview) -> tuple[Session | None, Command]:
    """Whose command, and the command. Raises MalformedMessage."""
    if len(data) < _PREFIX.size:
        raise MalformedMessage(f"a command of {len(data)} bytes")
    version, broker_id, broker_epoch, sequence, number = _PREFIX.unpack_from(data)
    cls = _COMMANDS.get(number)
    if version != 0 or cls is None:
        raise MalformedMessage(f"unknown command {number} in format {version}")
    session = None if broker_id == -1 else Session(broker_id, broker_epoch, sequence)
    return session, decode(cls, data, 0, _PREFIX.size)


def decode_result(command: Command, data: bytes | memoryview) -> Message:
    """The result of a command. Raises MalformedMessage."""
    return decode(result_class(command), data, 0)
