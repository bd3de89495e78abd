"""Creation and deletion of topics, and addition of partitions, by Kafka's rules."""

from __future__ import annotations

import re
from hashlib import blake2b

from ...protocol.cluster.broker_lists import broker_list
from ...protocol.cluster.cluster_image import PartitionState, TopicState
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import PLACEMENT, PLACEMENT_IN_TURNS, finalized
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.metadata_records import ConfigRecord, TopicRecord, TopicRemovedRecord
from ...protocol.messages.mirror_records import MirrorTopicRecord
from ...protocol.messages.topic_commands import (
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsResult,
    CreateTopics,
    CreateTopicsResult,
    DeleteTopics,
    DeleteTopicsResult,
    MorePartitions,
    NewTopic,
    TopicResult,
)
from ...protocol.settings.config_keys import ConfigError, check_topic_config, check_topic_configs
from ...protocol.wire.schema import ZERO_UUID
from .copies import check_is_no_copy
from .placement import Placement, check_replicas
from .refusal import message_of
from .transaction_markers import topic_goes
from .workspace import Workspace

NAME_LENGTH_MAX = 249
PARTITIONS_PER_COMMAND_MAX = 10_000
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def create_topics(work: Workspace, command: CreateTopics) -> CreateTopicsResult:
    """Create each topic of the command independently; with `validate_only` only check that it could be created."""
    results: list[CreatedTopic] = []
    budget = PARTITIONS_PER_COMMAND_MAX
    names = _CollidingNames(work)
    for topic in command.topics:
        try:
            _check_new_name(work, names, topic.name)
            created = _created(work, topic, command.seed, budget, validate_only=command.validate_only)
            budget -= created.num_partitions
            if not command.validate_only:
                names.add(topic.name)
            results.append(created)
        except KafkaError as error:
            results.append(
                CreatedTopic(name=topic.name, error_code=error.code, error_message=message_of(error))
            )
    return CreateTopicsResult(topics=results)


def create_copy(
    work: Workspace, topic: NewTopic, seed: int, budget: int, copy: MirrorTopicRecord
) -> CreatedTopic:
    """Create the copy of a topic, with the id of its source if that is free. Raises KafkaError.

    Brokers learn that the topic is a copy before they learn of its partitions.
    """
    _check_new_name(work, _CollidingNames(work), topic.name)
    source_id = copy.source_topic_id
    taken = source_id in work.image.topics_by_id or source_id in work.image.mirrors.retired_ids
    is_free = source_id != ZERO_UUID and not taken
    copy.topic_id = source_id if is_free else _topic_id(work, seed, topic.name)
    return _created(work, topic, seed, budget, copy)


def _created(
    work: Workspace,
    topic: NewTopic,
    seed: int,
    budget: int,
    copy: MirrorTopicRecord | None = None,
    *,
    validate_only: bool = False,
) -> CreatedTopic:
    configs = _checked_configs(topic)
    assignments = _assignments(work, topic, seed, budget)
    topic_id = _topic_id(work, seed, topic.name) if copy is None else copy.topic_id
    if not validate_only:
        work.emit(TopicRecord(topic_id=topic_id, name=topic.name))
        if copy is not None:
            work.emit(copy)
        _configure_and_place(work, topic.name, topic_id, configs, assignments)
    return CreatedTopic(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
    )


class _CollidingNames:
    """A search for topics whose names differ only in `.` and `_`, which metrics could not distinguish.

    The names are scanned at most once for a command, and only if one of its topics has either character.
    """

    def __init__(self, work: Workspace) -> None:
        self._image = work.image
        self._present: dict[str, str] | None = None

    def find(self, name: str) -> str | None:
        """Return the existing topic whose name collides with the name of a new topic; None if there is none."""
        key = name.replace(".", "_")
        if "_" not in key:
            return None
        if self._present is None:
            self._present = {
                other.replace(".", "_"): other for other in sorted(self._image.topics, reverse=True)
            }
        return self._present.get(key)

    def add(self, name: str) -> None:
        """Add the name of a topic that the command has just created."""
        if self._present is not None:
            self._present[name.replace(".", "_")] = name


def _check_new_name(work: Workspace, names: _CollidingNames, name: str) -> None:
    check_name(name)
    if name in work.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    colliding = names.find(name)
    if colliding is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding}"
        )


def _assignments(work: Workspace, topic: NewTopic, seed: int, budget: int) -> list[list[int]]:
    """Return the replicas of each partition. Raises KafkaError."""
    if topic.assignments:
        _check_budget(len(topic.assignments), budget)
        return _given_assignments(work, topic)
    if topic.num_partitions < 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    if topic.replication_factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    _check_budget(topic.num_partitions, budget)
    return _placed(work, topic.name, range(topic.num_partitions), topic.replication_factor, seed)


def check_name(name: str) -> None:
    """Raise KafkaError for an invalid topic name."""
    reason = ""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def _checked_configs(topic: NewTopic) -> dict[str, str]:
    """Return a new topic's settings in the form in which they are stored. Raises KafkaError."""
    values: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}"
            )
        try:
            values[config.name] = check_topic_config(config.name, config.value)
            check_topic_configs(values)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return values


def _check_budget(partitions: int, budget: int) -> None:
    if partitions > budget:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: at most {PARTITIONS_PER_COMMAND_MAX}",
        )


def _given_assignments(work: Workspace, topic: NewTopic) -> list[list[int]]:
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    given = {assignment.partition: assignment.replicas for assignment in topic.assignments}
    if len(given) != len(topic.assignments) or sorted(given) != list(range(len(given))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    replicas = [given[index] for index in range(len(given))]
    for assignment in replicas:
        _check_assignment(work, assignment, len(replicas[0]))
    return replicas


def _check_assignment(work: Workspace, replicas: list[int], factor: int) -> None:
    check_replicas(work.image.brokers, replicas)
    reason = ""
    if len(replicas) != factor:
        reason = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
            f"not consistent with previous partitions, which have {factor} replica(s)."
        )
    elif not any(broker_id in work.usable for broker_id in replicas):
        reason = "All brokers of the manual partition assignment are fenced or in controlled shutdown."
    if reason:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _placed(work: Workspace, name: str, partitions: range, factor: int, seed: int) -> list[list[int]]:
    reason = ""
    if factor > len(work.image.brokers):
        reason = (
            f"The target replication factor of {factor} cannot be reached because only "
            f"{len(work.image.brokers)} broker(s) are registered."
        )
    elif not work.usable:
        reason = "All brokers are currently fenced or in controlled shutdown."
    if reason:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): {reason}",
        )
    racks = {broker_id: broker.rack for broker_id, broker in work.image.brokers.items()}
    hosts = {
        broker.broker_id: broker.host for broker in work.image.brokers.values() if broker.host is not None
    }
    in_turns = finalized(work.image.features)[PLACEMENT] >= PLACEMENT_IN_TURNS
    return Placement(racks, work.usable, seed, name, hosts, in_turns=in_turns).replicas(partitions, factor)


def _topic_id(work: Workspace, seed: int, name: str) -> bytes:
    """Return a version 4 UUID that depends on the command only and is not in use.

    Folders of replicas are named by it, so a later version that applies the same journal must compute the same id.
    """
    attempt = 0
    while True:
        text = f"{seed}/{attempt}/{name}".encode()
        digest = bytearray(blake2b(text, digest_size=16, person=b"topic id").digest())
        digest[6] = digest[6] & 0x0F | 0x40
        digest[8] = digest[8] & 0x3F | 0x80
        if bytes(digest) not in work.image.topics_by_id:
            return bytes(digest)
        attempt += 1


def _configure_and_place(
    work: Workspace, name: str, topic_id: bytes, configs: dict[str, str], assignments: list[list[int]]
) -> None:
    for key, value in configs.items():
        work.emit(
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, config_name=key, value=value)
        )
    for index, replicas in enumerate(assignments):
        work.set_partition(topic_id, index, _new_partition(work, replicas))


def _new_partition(work: Workspace, replicas: list[int]) -> PartitionState:
    isr = broker_list(broker_id for broker_id in replicas if broker_id in work.usable)
    return PartitionState(replicas=broker_list(replicas), isr=isr, leader=isr[0])


def delete_topics(work: Workspace, command: DeleteTopics) -> DeleteTopicsResult:
    """Delete topics by id, then by name."""
    found: list[tuple[TopicState | None, TopicResult]] = []
    for topic_id in command.topic_ids:
        missing = TopicResult(
            topic_id=topic_id,
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            error_message="There is no such topic id.",
        )
        found.append((work.image.topics_by_id.get(topic_id), missing))
    for name in command.names:
        missing = TopicResult(
            name=name,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="There is no such topic.",
        )
        found.append((work.image.topics.get(name), missing))
    return DeleteTopicsResult(topics=[_delete(work, topic, missing) for topic, missing in found])


def _delete(work: Workspace, topic: TopicState | None, missing: TopicResult) -> TopicResult:
    if topic is None or topic.id not in work.image.topics_by_id:
        return missing
    try:
        check_is_no_copy(work.image, topic)
    except KafkaError as error:
        return TopicResult(
            name=topic.name, topic_id=topic.id, error_code=error.code, error_message=message_of(error)
        )
    remove(work, topic)
    return TopicResult(name=topic.name, topic_id=topic.id)


def remove(work: Workspace, topic: TopicState) -> None:
    """Remove a topic, its partitions and its settings from the image, without a check of permissions."""
    for key in sorted(work.image.configs.get((ResourceType.TOPIC, topic.name), ())):
        work.emit(
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name=topic.name, config_name=key, value=None
            )
        )
    topic_goes(work, topic.id, topic.partitions)
    work.emit(TopicRemovedRecord(topic_id=topic.id))


def create_partitions(work: Workspace, command: CreatePartitions) -> CreatePartitionsResult:
    """Add partitions to each topic independently."""
    results: list[TopicResult] = []
    budget = PARTITIONS_PER_COMMAND_MAX
    for wanted in command.topics:
        try:
            topic = work.image.topics.get(wanted.name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{wanted.name}'.")
            check_is_no_copy(work.image, topic)
            added = _more(work, topic, wanted, command.seed, budget)
            budget -= len(added)
            if not command.validate_only:
                _add(work, topic, added)
            results.append(TopicResult(name=topic.name, topic_id=topic.id))
        except KafkaError as error:
            results.append(
                TopicResult(name=wanted.name, error_code=error.code, error_message=message_of(error))
            )
    return CreatePartitionsResult(topics=results)


def grow(work: Workspace, topic: TopicState, count: int, seed: int, budget: int) -> int:
    """Grow a topic to at least `count` partitions, and return the number of new ones. Raises KafkaError."""
    if count <= len(topic.partitions):
        return 0
    wanted = MorePartitions(name=topic.name, count=count)
    return _add(work, topic, _more(work, topic, wanted, seed, budget))


def _add(work: Workspace, topic: TopicState, added: list[list[int]]) -> int:
    for index, replicas in enumerate(added, len(topic.partitions)):
        work.set_partition(topic.id, index, _new_partition(work, replicas))
    return len(added)


def _more(
    work: Workspace, topic: TopicState, wanted: MorePartitions, seed: int, budget: int
) -> list[list[int]]:
    present = len(topic.partitions)
    if wanted.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {wanted.count} would not be an increase.",
        )
    _check_budget(wanted.count - present, budget)
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return _placed(work, topic.name, range(present, wanted.count), factor, seed)
    if len(wanted.assignments) != wanted.count - present:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {wanted.count - present} additional partition(s), but only "
            f"{len(wanted.assignments)} assignment(s) were specified.",
        )
    for assignment in wanted.assignments:
        _check_assignment(work, assignment.broker_ids, factor)
    return [assignment.broker_ids for assignment in wanted.assignments]
