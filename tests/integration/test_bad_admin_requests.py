"""Invalid requests of operators: each is refused with Kafka's code, if that names the fault, and
nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import client_quotas as quotas
from ottla.protocol.messages import leaders
from ottla.protocol.messages import reassignments as moves
from ottla.protocol.messages.broker_removal import UnregisterBrokerRequest
from ottla.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.wire.schema import Message
from tests.cluster import RunningCluster, running_cluster
from tests.raw_peer import Peer

pytestmark = pytest.mark.cluster

E = ErrorCode
Codes = Callable[[Any], list[int]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("bad"), quorum=1, brokers=1) as cluster:
        peer = Peer(cluster.brokers[0].port)
        orders = CreatableTopic(name="or_ders", num_partitions=2, replication_factor=1)
        assert _topic_codes(peer.ask(CreateTopicsRequest(topics=[orders], timeout_ms=15_000), 7, 20)) == [0]
        peer.close()
        yield cluster


def _topic_codes(answer: Any) -> list[int]:
    return [topic.error_code for topic in answer.topics]


def _result_codes(answer: Any) -> list[int]:
    return [result.error_code for result in answer.results]


def _response_codes(answer: Any) -> list[int]:
    return [response.error_code for response in answer.responses]


def _partition_codes(answer: Any) -> list[int]:
    return [p.error_code for topic in answer.responses for p in topic.partitions]


def _own_code(answer: Any) -> list[int]:
    return [answer.error_code]


def create(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    replicas: list[list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas or ())
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


CREATIONS = [
    (create(""), E.INVALID_TOPIC_EXCEPTION),
    (create(".."), E.INVALID_TOPIC_EXCEPTION),
    (create("../../tmp/x"), E.INVALID_TOPIC_EXCEPTION),
    (create("a\nlevel=error msg=forged"), E.INVALID_TOPIC_EXCEPTION),
    (create("a\x00b"), E.INVALID_TOPIC_EXCEPTION),
    (create("x" * 30_000), E.INVALID_TOPIC_EXCEPTION),
    (create("or.ders"), E.INVALID_TOPIC_EXCEPTION),
    (create("or_ders"), E.TOPIC_ALREADY_EXISTS),
    (create("t", 0), E.INVALID_PARTITIONS),
    (create("t", -7), E.INVALID_PARTITIONS),
    (create("t", 2**31 - 1), E.POLICY_VIOLATION),
    (create("t", 1, 0), E.INVALID_REPLICATION_FACTOR),
    (create("t", 1, 32_767), E.INVALID_REPLICATION_FACTOR),
    (create("t", -1, -1, [[99]]), E.INVALID_REPLICA_ASSIGNMENT),
    (create("t", -1, -1, [[-1]]), E.INVALID_REPLICA_ASSIGNMENT),
    (create("t", -1, -1, [[1, 1]]), E.INVALID_REPLICA_ASSIGNMENT),
    (create("t", -1, -1, [[]]), E.INVALID_REPLICA_ASSIGNMENT),
    (create("t", 1, -1, [[1]]), E.INVALID_REQUEST),
    (create("t", -1, -1, [[1]] * 10_001), E.POLICY_VIOLATION),
    (create("t", retention_ms="soon"), E.INVALID_CONFIG),
    (create("t", retention_ms="9" * 5_000), E.INVALID_CONFIG),
    (create("t", retention_ms=None), E.INVALID_CONFIG),
    (create("t", no_such="1"), E.INVALID_CONFIG),
]


def alter(kind: int, name: str, key: str, value: str | None, operation: int = 0) -> AlterConfigsResource:
    config = AlterableConfig(name=key, config_operation=operation, value=value)
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])


ALTERATIONS = [
    (alter(2, "", "retention.ms", "1"), E.INVALID_REQUEST),
    (alter(2, "missing", "retention.ms", "1"), E.UNKNOWN_TOPIC_OR_PARTITION),
    (alter(2, "or_ders", "retention.ms", "x"), E.INVALID_CONFIG),
    (alter(2, "or_ders", "retention.ms", None), E.INVALID_REQUEST),
    (alter(2, "or_ders", "retention.ms", "1", 2), E.INVALID_CONFIG),
    (alter(2, "or_ders", "retention.ms", "1", 77), E.INVALID_REQUEST),
    (alter(2, "or_ders", "\x1b[31m", "1"), E.INVALID_CONFIG),
    (alter(4, "99", "max.connections", "1"), E.BROKER_ID_NOT_REGISTERED),
    (alter(4, "one", "max.connections", "1"), E.INVALID_REQUEST),
    (alter(4, "", "node.id", "1"), E.INVALID_REQUEST),
    (alter(8, "99", "root", "INFO"), E.INVALID_REQUEST),
    (alter(8, "", "root", "INFO"), E.INVALID_REQUEST),
    (alter(16, "", "interval.ms", "100"), E.INVALID_REQUEST),
    (alter(16, "m", "match", "client_id=" + "(" * 10_000), E.INVALID_CONFIG),
    (alter(16, "m", "match", "client_id=a{1001}"), E.INVALID_CONFIG),
    (alter(32, "", "consumer.session.timeout.ms", "45000"), E.INVALID_REQUEST),
    (alter(32, "g", "consumer.session.timeout.ms", "1"), E.INVALID_CONFIG),
    (alter(99, "x", "y", "z"), E.INVALID_REQUEST),
]


def more(
    count: int, assignments: list[list[int]] | None = None, name: str = "or_ders"
) -> CreatePartitionsTopic:
    given = (
        None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    )
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


ENLARGEMENTS = [
    (more(2), E.INVALID_PARTITIONS),
    (more(1), E.INVALID_PARTITIONS),
    (more(-1), E.INVALID_PARTITIONS),
    (more(2**31 - 1), E.POLICY_VIOLATION),
    (more(3, name="missing"), E.UNKNOWN_TOPIC_OR_PARTITION),
    (more(3, [[1], [1]]), E.INVALID_REPLICA_ASSIGNMENT),
    (more(3, [[99]]), E.INVALID_REPLICA_ASSIGNMENT),
    (more(3, [[1, 1]]), E.INVALID_REPLICA_ASSIGNMENT),
    (more(3, [[]]), E.INVALID_REPLICA_ASSIGNMENT),
]


def move(partition: int, replicas: list[int] | None, topic: str = "or_ders") -> moves.ReassignableTopic:
    wanted = moves.ReassignablePartition(partition_index=partition, replicas=replicas)
    return moves.ReassignableTopic(name=topic, partitions=[wanted])


MOVES = [
    (move(0, [1], "missing"), E.UNKNOWN_TOPIC_OR_PARTITION),
    (move(-1, [1]), E.UNKNOWN_TOPIC_OR_PARTITION),
    (move(2, [1]), E.UNKNOWN_TOPIC_OR_PARTITION),
    (move(0, []), E.INVALID_REPLICA_ASSIGNMENT),
    (move(0, [1, 1]), E.INVALID_REPLICA_ASSIGNMENT),
    (move(0, [99]), E.INVALID_REPLICA_ASSIGNMENT),
    (move(0, [-1]), E.INVALID_REPLICA_ASSIGNMENT),
    (move(0, list(range(20_000))), E.INVALID_REPLICA_ASSIGNMENT),
    (move(0, None), E.NO_REASSIGNMENT_IN_PROGRESS),
]


def quota(kind: str, name: str | None, key: str, value: float) -> quotas.AlterClientQuotasRequestEntryData:
    return quotas.AlterClientQuotasRequestEntryData(
        entity=[quotas.EntityData(entity_type=kind, entity_name=name)],
        ops=[quotas.OpData(key=key, value=value)],
    )


QUOTAS = [
    quota("", "a", "producer_byte_rate", 1),
    quota("group", "a", "producer_byte_rate", 1),
    quota("user", "", "producer_byte_rate", 1),
    quota("ip", "nowhere", "connection_creation_rate", 1),
    quota("user", "a", "no.such", 1),
    quota("user", "a", "producer_byte_rate", -1),
    quota("user", "a", "request_percentage", float("nan")),
    quotas.AlterClientQuotasRequestEntryData(),
]


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_topics_that_cannot_be(cluster: RunningCluster, version: int) -> None:
    for topic, code in CREATIONS:
        check(cluster, CreateTopicsRequest(topics=[topic], timeout_ms=9_000), version, _topic_codes, [code])


def test_one_topic_too_many_and_none_is_created(cluster: RunningCluster) -> None:
    topics = [create("fits", 6_000), create("fits-not", 6_000)]
    both = [E.POLICY_VIOLATION, E.POLICY_VIOLATION]
    check(cluster, CreateTopicsRequest(topics=topics, timeout_ms=9_000), 7, _topic_codes, both)


def test_names_that_come_twice(cluster: RunningCluster) -> None:
    twice = [E.INVALID_REQUEST]
    request = CreateTopicsRequest(topics=[create("t"), create("t")], timeout_ms=9_000)
    check(cluster, request, 7, _topic_codes, twice)
    enlarge = CreatePartitionsRequest(topics=[more(3), more(4)], timeout_ms=9_000)
    check(cluster, enlarge, 3, _result_codes, twice)
    both = [alter(2, "or_ders", "retention.ms", "1"), alter(2, "or_ders", "retention.bytes", "1")]
    check(cluster, IncrementalAlterConfigsRequest(resources=both), 1, _response_codes, twice * 2)
    entries = [quota("user", "a", "producer_byte_rate", 1)] * 2
    check(
        cluster, quotas.AlterClientQuotasRequest(entries=entries), 1,
        lambda answer: [entry.error_code for entry in answer.entries], twice * 2,
    )  # fmt: skip


def test_settings_that_cannot_be(cluster: RunningCluster) -> None:
    for resource, code in ALTERATIONS:
        check(cluster, IncrementalAlterConfigsRequest(resources=[resource]), 1, _response_codes, [code])


def test_partitions_that_cannot_be(cluster: RunningCluster) -> None:
    for topic, code in ENLARGEMENTS:
        check(cluster, CreatePartitionsRequest(topics=[topic], timeout_ms=9_000), 3, _result_codes, [code])


def test_moves_that_cannot_be(cluster: RunningCluster) -> None:
    for topic, code in MOVES:
        request = moves.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=9_000)
        check(cluster, request, 1, _partition_codes, [code])


def test_quotas_that_cannot_be(cluster: RunningCluster) -> None:
    for entry in QUOTAS:
        request = quotas.AlterClientQuotasRequest(entries=[entry])
        check(cluster, request, 1, lambda answer: [e.error_code for e in answer.entries], [E.INVALID_REQUEST])


def test_other_nonsense(cluster: RunningCluster) -> None:
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=None)], timeout_ms=9_000)
    check(cluster, delete, 6, _response_codes, [E.INVALID_REQUEST])
    check(cluster, UnregisterBrokerRequest(broker_id=99), 0, _own_code, [E.BROKER_ID_NOT_REGISTERED])
    check(cluster, UnregisterBrokerRequest(broker_id=-1), 0, _own_code, [E.BROKER_ID_NOT_REGISTERED])
    elect = leaders.ElectLeadersRequest(election_type=9, topic_partitions=[], timeout_ms=9_000)
    check(cluster, elect, 2, _own_code, [E.INVALID_REQUEST])
    update = FeatureUpdateKey(feature="no.such", max_version_level=1, upgrade_type=1)
    features = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=9_000)
    check(cluster, features, 2, _own_code, [E.INVALID_UPDATE_VERSION])
    trim = DeleteRecordsTopic(
        name="or_ders",
        partitions=[
            DeleteRecordsPartition(partition_index=i, offset=o) for i, o in ((0, 9), (0, -2), (7, 0))
        ],
    )
    check(
        cluster, DeleteRecordsRequest(topics=[trim], timeout_ms=900), 2,
        lambda answer: [p.error_code for t in answer.topics for p in t.partitions],
        [E.OFFSET_OUT_OF_RANGE, E.OFFSET_OUT_OF_RANGE, E.UNKNOWN_TOPIC_OR_PARTITION],
    )  # fmt: skip
    pages = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="or_ders")], cursor=Cursor(topic_name="or_ders", partition_index=-1)
    )
    check(cluster, pages, 0, _topic_codes, [E.INVALID_REQUEST])
    nameless = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
    check(cluster, nameless, 13, _topic_codes, [E.INVALID_REQUEST])


def test_asking_for_the_same_thing_twenty_thousand_times_is_answered_once(cluster: RunningCluster) -> None:
    resource = DescribeConfigsResource(
        resource_type=4, resource_name=str(cluster.brokers[0].id), configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource] * 20_000)
    check(cluster, request, 4, _result_codes, [E.NONE])


def check(
    cluster: RunningCluster, message: Message, version: int, codes: Codes, expected: list[ErrorCode]
) -> None:
    """Check the error codes, and that the topics, their partitions and their settings are unchanged."""
    peer = Peer(cluster.brokers[0].port)
    before = state(peer)
    found = codes(peer.ask(message, version, 15))
    named = [ErrorCode.of(code).name for code in found]
    assert found == expected, f"{named} for version {version} of {str(message)[:500]}"
    assert state(peer) == before
    peer.close()


def state(peer: Peer) -> Any:
    topics = peer.ask(MetadataRequest(topics=None), 12).topics
    configs = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name=topic.name, configuration_keys=None)
            for topic in topics
        ]
    )
    return topics, peer.ask(configs, 4)
