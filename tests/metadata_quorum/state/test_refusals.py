"""The controller's refusals have the codes and meanings with which Apache Kafka 4.4 answers the same mistakes."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_commands import (
    AllocateProducerIds,
    AllocateProducerIdsResult,
    BeginControlledShutdown,
    ControlledShutdownResult,
    FenceBroker,
    RegisterBroker,
    RegisterBrokerResult,
    UnfenceBroker,
    UnregisterBroker,
)
from ottla.protocol.messages.cluster_commands import FormCluster
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.config_commands import (
    AlterConfigs,
    AlterConfigsResult,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
)
from ottla.protocol.messages.metadata_records import encode_record
from ottla.protocol.messages.partition_commands import (
    AlterPartition,
    AlterPartitionChange,
    AlterPartitionResult,
    ElectionPartition,
    ElectLeaders,
    ElectLeadersResult,
    IsrMember,
)
from ottla.protocol.messages.topic_commands import (
    CreatePartitions,
    CreatePartitionsResult,
    DeleteTopics,
    DeleteTopicsResult,
    MorePartitions,
    NewTopic,
    NewTopicConfig,
    PartitionAssignment,
    Replicas,
)
from tests.counted_calls import counted_calls

from .harness import ControllerWithBrokers, assigned, topic

CREATIONS = [
    (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
    (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'.' is not allowed"),
    (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
    (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "longer than the max allowed length 249"),
    (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics, '.', '_' and '-'"),
    (topic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
    (topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
    (topic("a.b"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists."),
    (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b"),
    (topic("t", factor=4), ErrorCode.INVALID_REPLICATION_FACTOR, "only 3 broker(s) are registered"),
    (topic("t", factor=0), ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0, or -1"),
    (topic("t", 0), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
    (topic("t", -2), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
    (topic("t", 10_001), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions"),
    (topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG, "Invalid value 'soon' for configuration"),
    (topic("t", retention_ms="-5"), ErrorCode.INVALID_CONFIG, "at least -1"),
    (topic("t", retention_mss="5"), ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
    (topic("t", preallocate="yes"), ErrorCode.INVALID_CONFIG, "true or false"),
    (topic("t", cleanup_policy="shrink"), ErrorCode.INVALID_CONFIG, "any of delete, compact"),
    (
        topic("t", min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
        ErrorCode.INVALID_CONFIG,
        "min.compaction.lag.ms (10)",
    ),
    (
        NewTopic(name="t", num_partitions=1, replication_factor=1, configs=[NewTopicConfig(name="x")]),
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: x",
    ),
    (assigned("t", [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9, but no such broker is registered"),
    (assigned("t", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "more than once"),
    (assigned("t", [1, 2], [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not consistent with previous"),
    (assigned("t", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
    (
        NewTopic(name="t", assignments=[PartitionAssignment(partition=1, replicas=[1])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "consecutive 0-based integer sequence",
    ),
    (
        NewTopic(name="t", num_partitions=1, assignments=assigned("t", [1]).assignments),
        ErrorCode.INVALID_REQUEST,
        "numPartitions was not set to -1",
    ),
    (
        NewTopic(name="t", replication_factor=1, assignments=assigned("t", [1]).assignments),
        ErrorCode.INVALID_REQUEST,
        "replication factor was not set to -1",
    ),
]


@pytest.mark.parametrize(("wanted", "code", "meaning"), CREATIONS)
def test_topics_that_are_not_created(wanted: NewTopic, code: ErrorCode, meaning: str) -> None:
    cluster = ControllerWithBrokers()
    cluster.create(topic("a.b"))
    before = list(cluster.machine.image.records())
    for validate_only in (True, False):
        good, bad = cluster.create(topic("good"), wanted, validate_only=validate_only)
        assert good.error_code == ErrorCode.NONE
        assert bad.error_code == code
        assert meaning in bad.error_message
        if validate_only:
            assert list(cluster.machine.image.records()) == before
    assert cluster.machine.image.topics.keys() == {"a.b", "good"}


def test_partitions_per_request_are_bounded_over_all_topics() -> None:
    cluster = ControllerWithBrokers(1)
    first, second, third = cluster.create(
        topic("a", 6000), topic("b", 6000), topic("c", 4000), validate_only=True
    )
    assert (first.error_code, third.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert second.error_code == ErrorCode.POLICY_VIOLATION


def test_without_a_usable_broker_nothing_is_placed_but_a_fenced_one_is_better_than_none() -> None:
    cluster = ControllerWithBrokers()
    cluster.fence(3)
    (created,) = cluster.create(topic("t", 2, 3))
    assert (created.error_code, created.replication_factor) == (ErrorCode.NONE, 3)
    for state in cluster.machine.image.topics["t"].partitions.values():
        assert state.replicas[2] == 3
        assert state.isr == state.replicas[:2]
    cluster.fence(1)
    cluster.fence(2)
    (refused,) = cluster.create(topic("u"))
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "All brokers are currently fenced" in refused.error_message
    (refused,) = cluster.create(assigned("u", [1, 2]))
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


PARTITIONS = [
    ("t", 2, None, ErrorCode.INVALID_PARTITIONS, "currently has 3 partition(s); 2 would not be an increase"),
    ("t", 3, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
    ("nope", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'nope'"),
    ("t", 20_000, None, ErrorCode.POLICY_VIOLATION, "Excessively large number"),
    ("t", 5, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "add 2 additional partition(s), but only 1"),
    ("t", 4, [[9, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker is registered"),
    ("t", 4, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "more than once"),
    ("t", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not consistent with previous"),
]


@pytest.mark.parametrize(("name", "count", "given", "code", "meaning"), PARTITIONS)
def test_partitions_that_are_not_added(
    name: str, count: int, given: list[list[int]] | None, code: ErrorCode, meaning: str
) -> None:
    cluster = ControllerWithBrokers()
    cluster.create(topic("t", 3, 2), topic("other"))
    assignments = None if given is None else [Replicas(broker_ids=ids) for ids in given]
    command = CreatePartitions(
        topics=[
            MorePartitions(name=name, count=count, assignments=assignments),
            MorePartitions(name="other", count=2),
        ]
    )
    refused, added = cluster.do(command, CreatePartitionsResult).topics
    assert refused.error_code == code
    assert meaning in refused.error_message
    assert added.error_code == ErrorCode.NONE
    assert len(cluster.machine.image.topics["t"].partitions) == 3
    assert len(cluster.machine.image.topics["other"].partitions) == 2


def test_deleting_what_is_not_there() -> None:
    cluster = ControllerWithBrokers()
    cluster.create(topic("t", retention_ms="5"))
    known = cluster.topic_id("t")
    command = DeleteTopics(topic_ids=[bytes(16), known, known], names=["t", "nope"])
    results = cluster.do(command, DeleteTopicsResult).topics
    assert [result.error_code for result in results] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert not cluster.machine.image.topics
    assert not cluster.machine.image.configs


SET, DELETE, APPEND, SUBTRACT = ConfigOperation
CONFIGS = [
    (2, "nope", ("retention.ms", SET, "5"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
    (2, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG, "Invalid value 'soon'"),
    (2, "t", ("retention.mss", SET, "5"), ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
    (2, "t", ("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms"),
    (2, "t", ("retention.ms", SUBTRACT, "5"), ErrorCode.INVALID_CONFIG, "Can't SUBTRACT to key retention.ms"),
    (2, "t", ("cleanup.policy", APPEND, "zzz"), ErrorCode.INVALID_CONFIG, "any of delete, compact"),
    (2, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "Null value not supported"),
    (2, "t", ("retention.ms", 7, "5"), ErrorCode.INVALID_REQUEST, "Unknown operation 7"),
    (2, "t", ("min.compaction.lag.ms", SET, str(2**63 - 1)), ErrorCode.NONE, ""),
    (2, "t", ("retention.mss", DELETE, None), ErrorCode.NONE, ""),
    (2, "t", ("cleanup.policy", SUBTRACT, "zzz"), ErrorCode.NONE, ""),
    (4, "", ("min.insync.replicas", SET, "2"), ErrorCode.NONE, ""),
    (4, "1", ("min.insync.replicas", SET, "2"), ErrorCode.INVALID_CONFIG, "for a single broker"),
    (
        4,
        "1",
        ("num.partitions", SET, "3"),
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs dynamically: [num.partitions]",
    ),
    (4, "1", ("log.retention.ms", SET, "zz"), ErrorCode.INVALID_REQUEST, "Invalid value 'zz'"),
    (4, "1", ("no.such.key", APPEND, "3"), ErrorCode.INVALID_CONFIG, "Can't APPEND to key no.such.key"),
    (4, "1", ("no.such.password", SET, "3"), ErrorCode.INVALID_REQUEST, "looks like a secret"),
    (
        4,
        "abc",
        ("log.retention.ms", SET, "5"),
        ErrorCode.INVALID_REQUEST,
        "Node id must be an integer, but it is: abc",
    ),
    (4, "9" * 5000, ("log.retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST, "Node id must be an integer"),
    (4, "77", ("log.retention.ms", SET, "5"), ErrorCode.BROKER_ID_NOT_REGISTERED, "No broker with id 77"),
    (8, "x", ("log.retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
]


@pytest.mark.parametrize(("kind", "name", "change", "code", "meaning"), CONFIGS)
def test_configurations_that_are_not_changed(
    kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode, meaning: str
) -> None:
    cluster = ControllerWithBrokers()
    cluster.create(topic("t"))
    before = list(cluster.machine.image.records())
    key, operation, value = change
    resource = ConfigResource(
        resource_type=kind,
        resource_name=name,
        changes=[
            ConfigChange(name="segment.ms" if kind == 2 else "log.roll.ms", operation=SET, value="7"),
            ConfigChange(name=key, operation=operation, value=value),
        ],
    )
    checked = cluster.do(AlterConfigs(resources=[resource], validate_only=True), AlterConfigsResult)
    assert list(cluster.machine.image.records()) == before
    (result,) = cluster.do(AlterConfigs(resources=[resource]), AlterConfigsResult).resources
    assert checked.resources == [result]
    assert result.error_code == code
    assert meaning in result.error_message
    if code != ErrorCode.NONE:
        assert list(cluster.machine.image.records()) == before


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("99", ErrorCode.INVALID_REQUEST),
        ("-5", ErrorCode.INVALID_REQUEST),
        ("--5", ErrorCode.INVALID_CONFIG),
        ("-" * 20 + "5", ErrorCode.INVALID_CONFIG),
        ("-", ErrorCode.INVALID_CONFIG),
        ("9" * 5_000, ErrorCode.INVALID_CONFIG),
    ],
)
def test_an_interval_that_is_refused_is_so_whatever_is_in_it(text: str, code: ErrorCode) -> None:
    """An exception would end every quorum node, and each of its starts."""
    changes = [ConfigChange(name="interval.ms", operation=SET, value=text)]
    resource = ConfigResource(resource_type=16, resource_name="m", changes=changes)
    (result,) = ControllerWithBrokers(1).do(AlterConfigs(resources=[resource]), AlterConfigsResult).resources
    assert result.error_code == code


def test_lists_are_appended_to_and_subtracted_from() -> None:
    cluster = ControllerWithBrokers()
    cluster.create(topic("t"))

    def change(operation: int, value: str) -> str | None:
        changes = [ConfigChange(name="cleanup.policy", operation=operation, value=value)]
        resource = ConfigResource(resource_type=2, resource_name="t", changes=changes)
        cluster.do(AlterConfigs(resources=[resource]), AlterConfigsResult)
        return cluster.machine.image.configs.get((2, "t"), {}).get("cleanup.policy")

    assert change(APPEND, "compact") == "delete,compact"
    assert change(APPEND, "compact") == "delete,compact"
    assert change(SUBTRACT, "delete") == "compact"
    assert change(DELETE, "") is None


def test_no_list_outgrows_what_a_record_can_carry() -> None:
    """Each part fits into a request; their sum would be a record that no node could write."""
    cluster = ControllerWithBrokers()
    cluster.create(topic("t"))
    codes = []
    for broker in range(3):
        replicas = ",".join(f"{partition}:{broker}" for partition in range(2_500))
        changes = [
            ConfigChange(name="leader.replication.throttled.replicas", operation=APPEND, value=replicas)
        ]
        resource = ConfigResource(resource_type=2, resource_name="t", changes=changes)
        (result,) = cluster.do(AlterConfigs(resources=[resource]), AlterConfigsResult).resources
        codes.append(result.error_code)
        for record in cluster.machine.image.records():
            encode_record(record)
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_CONFIG]


def test_isr_changes_are_compare_and_set() -> None:
    cluster = ControllerWithBrokers()
    cluster.create(assigned("t", [1, 2, 3]))
    known = cluster.topic_id("t")

    def alter(
        *members: tuple[int, int],
        by: int = 1,
        leader: int = 0,
        epoch: int = 0,
        of: bytes = known,
        index: int = 0,
    ) -> ErrorCode:
        change = AlterPartitionChange(
            topic_id=of,
            partition=index,
            leader_epoch=leader,
            partition_epoch=epoch,
            new_isr=[IsrMember(broker_id=broker, broker_epoch=known_as) for broker, known_as in members],
        )
        command = AlterPartition(broker_id=by, broker_epoch=cluster.epoch(by), partitions=[change])
        (result,) = cluster.do(command, AlterPartitionResult).partitions
        state = cluster.machine.image.topics["t"].partitions[0]
        if result.error_code not in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            assert (result.leader, result.leader_epoch) == (state.leader, state.leader_epoch)
            assert (tuple(result.isr), result.partition_epoch) == (state.isr, state.partition_epoch)
        return ErrorCode(result.error_code)

    own = (1, cluster.epoch(1))
    assert alter(own, of=bytes(16)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert alter(own, index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(own, leader=1) == ErrorCode.NOT_CONTROLLER
    assert alter(own, epoch=1) == ErrorCode.NOT_CONTROLLER
    assert alter(own, leader=-1) == ErrorCode.FENCED_LEADER_EPOCH
    assert alter((2, -1), by=2) == ErrorCode.INVALID_REQUEST
    assert alter(own, (4, -1)) == ErrorCode.INVALID_REQUEST
    assert alter(own, own) == ErrorCode.INVALID_REQUEST
    assert alter((2, -1)) == ErrorCode.INVALID_REQUEST
    assert alter() == ErrorCode.INVALID_REQUEST
    assert alter(own, (2, cluster.epoch(2) - 1)) == ErrorCode.INELIGIBLE_REPLICA
    assert alter(own, (2, cluster.epoch(2))) == ErrorCode.NONE
    assert alter(own) == ErrorCode.INVALID_UPDATE_VERSION
    assert alter(own, (2, -1), (3, -1), epoch=1) == ErrorCode.NONE
    cluster.fence(2)
    assert alter(own, (2, -1), (3, -1), epoch=3) == ErrorCode.INELIGIBLE_REPLICA
    stale = AlterPartition(broker_id=1, broker_epoch=0)
    assert cluster.do(stale, AlterPartitionResult).error_code == ErrorCode.STALE_BROKER_EPOCH
    strange = AlterPartition(broker_id=9, broker_epoch=0)
    assert cluster.do(strange, AlterPartitionResult).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_elections_that_were_asked_for() -> None:
    cluster = ControllerWithBrokers()
    cluster.create(assigned("t", [1, 2], [2, 1]), assigned("u", [3]))
    known, lonely = cluster.topic_id("t"), cluster.topic_id("u")
    cluster.fence(1)
    cluster.unfence(1)
    cluster.fence(3)

    def elect(kind: int, index: int, of: bytes = known) -> ErrorCode:
        command = ElectLeaders(
            election_type=kind, partitions=[ElectionPartition(topic_id=of, partition=index)]
        )
        (result,) = cluster.do(command, ElectLeadersResult).partitions
        return ErrorCode(result.error_code)

    assert elect(0, 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(0, 1) == ErrorCode.ELECTION_NOT_NEEDED
    assert elect(1, 0) == ErrorCode.ELECTION_NOT_NEEDED
    assert elect(1, 0, lonely) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elect(0, 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(0, 0, bytes(16)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    every = cluster.do(ElectLeaders(election_type=0), ElectLeadersResult)
    assert [(entry.topic_id, entry.partition, entry.error_code) for entry in every.partitions] == [
        (known, 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (lonely, 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    unknown = cluster.do(ElectLeaders(election_type=5), ElectLeadersResult)
    assert unknown.error_code == ErrorCode.INVALID_REQUEST


def test_commands_about_brokers() -> None:
    cluster = ControllerWithBrokers(1)
    for command in (
        FenceBroker(broker_id=9, broker_epoch=1),
        UnfenceBroker(broker_id=9, broker_epoch=1),
        UnregisterBroker(broker_id=9),
    ):
        assert cluster.do(command, PlainResult).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    for command in (FenceBroker(broker_id=1, broker_epoch=0), UnfenceBroker(broker_id=1, broker_epoch=0)):
        assert cluster.do(command, PlainResult).error_code == ErrorCode.STALE_BROKER_EPOCH
    shutdown = cluster.do(BeginControlledShutdown(broker_id=1), ControlledShutdownResult)
    assert shutdown.error_code == ErrorCode.STALE_BROKER_EPOCH
    allocated = cluster.do(AllocateProducerIds(broker_id=1), AllocateProducerIdsResult)
    assert (allocated.error_code, allocated.count) == (ErrorCode.STALE_BROKER_EPOCH, 0)
    negative = cluster.do(RegisterBroker(broker_id=-5), RegisterBrokerResult)
    assert negative.error_code == ErrorCode.INVALID_REGISTRATION


def test_a_cluster_is_formed_once() -> None:
    cluster = ControllerWithBrokers(0)
    form = FormCluster(cluster_id="c")
    assert cluster.do(form, PlainResult).error_code == ErrorCode.NONE
    assert cluster.apply(form).records == ()
    for other in ("d", ""):
        refused = cluster.do(FormCluster(cluster_id=other), PlainResult)
        assert refused.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert cluster.machine.image.cluster_id == "c"


def test_answers_do_not_grow_with_what_was_sent() -> None:
    cluster = ControllerWithBrokers()
    huge = "\U000e0001" * 8000
    for wanted in (topic(huge), topic("t", retention_ms=huge), topic("t", **{huge: "1"})):
        (refused,) = cluster.create(wanted)
        assert refused.error_code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_CONFIG)
        assert len(refused.error_message) == 1000
    form = FormCluster(cluster_id=huge)
    cluster.do(form, PlainResult)
    refused_form = cluster.do(FormCluster(cluster_id="other"), PlainResult)
    assert len(refused_form.error_message) == 1000
    resource = ConfigResource(
        resource_type=4, resource_name="", changes=[ConfigChange(name=huge, operation=SET, value=huge)]
    )
    (result,) = cluster.do(AlterConfigs(resources=[resource]), AlterConfigsResult).resources
    assert result.error_code
    assert len(result.error_message) <= 1000
    deleted = cluster.do(DeleteTopics(names=[huge]), DeleteTopicsResult).topics
    grown = cluster.do(
        CreatePartitions(topics=[MorePartitions(name=huge, count=2)]), CreatePartitionsResult
    ).topics
    assert [result.error_code for result in (*deleted, *grown)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert all(len(result.error_message) <= 1000 for result in (*deleted, *grown))


def test_given_assignments_count_against_the_limit_of_a_command() -> None:
    cluster = ControllerWithBrokers(1)
    (refused,) = cluster.create(assigned("t", *[[1]] * 10_001))
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert not cluster.machine.image.topics


def test_names_collide_with_those_created_by_the_same_command() -> None:
    codes = [
        result.error_code
        for result in ControllerWithBrokers(1).create(topic("a.b"), topic("a_b"), topic("b_c"), topic("b.c"))
    ]
    assert codes == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_many_changes_of_what_elections_go_by_cost_no_more_than_their_topics() -> None:
    cluster = ControllerWithBrokers(1)
    cluster.create(*(topic(f"with_{n}") for n in range(2_000)))
    resources = [
        ConfigResource(resource_type=2, resource_name=f"with_{n}", changes=[change])
        for n in range(2_000)
        for change in [ConfigChange(name="min.insync.replicas", operation=0, value="2")]
    ]
    with counted_calls() as calls:
        cluster.do(AlterConfigs(resources=resources), AlterConfigsResult)
    assert calls.count < 500_000
