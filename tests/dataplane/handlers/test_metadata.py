"""Metadata, DescribeCluster and FindCoordinator for images of a cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.dataplane.cluster.listed_brokers import ListedBrokers
from ottla.dataplane.cluster.lost_brokers import LostBrokers
from ottla.dataplane.cluster.topic_creation import TopicCreator, TopicDefaults
from ottla.dataplane.handlers.describe_cluster import DescribeClusterHandlers
from ottla.dataplane.handlers.find_coordinator import FindCoordinatorHandlers
from ottla.dataplane.handlers.metadata import MetadataHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.server import ClientRequest
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.metadata_records import (
    BrokerListener,
    BrokerRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.protocol.messages.topic_commands import CreatedTopic, CreateTopics, CreateTopicsResult
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.schema import Message
from tests.dataplane.server.conftest import until


class StubQuorum:
    """An image, and commands that change it or are refused."""

    def __init__(self, *, refusal: ErrorCode | None = None) -> None:
        self.image = ClusterImage()
        self.image.cluster_id = "cluster"
        self.refusal = refusal
        self.submitted: list[Message] = []

    async def submit(self, command: Message, timeout_ms: int | None = None) -> Message:
        self.submitted.append(command)
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        assert isinstance(command, CreateTopics)
        results = []
        for topic in command.topics:
            topic_id = topic.name.encode().ljust(16)[:16]
            self.add_topic(topic.name, topic_id, [[1]] * topic.num_partitions)
            results.append(CreatedTopic(topic_id=topic_id))
        return CreateTopicsResult(topics=results)

    def add_broker(self, broker_id: int, *, fenced: bool = False, listener: str = "CLIENTS") -> None:
        address = BrokerListener(name=listener, host=f"host{broker_id}", port=9000 + broker_id)
        self.image.apply(
            BrokerRecord(broker_id=broker_id, broker_epoch=1, listeners=[address], rack=None, fenced=fenced)
        )

    def add_topic(
        self, name: str, topic_id: bytes, partitions: list[list[int]], leader: int | None = None
    ) -> None:
        self.image.apply(TopicRecord(topic_id=topic_id, name=name))
        for index, replicas in enumerate(partitions):
            self.image.apply(
                PartitionRecord(
                    topic_id=topic_id,
                    partition=index,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0] if leader is None else leader,
                    leader_epoch=5,
                )
            )


def listed(quorum: StubQuorum, *, linger_ms: int = 0) -> ListedBrokers:
    """Return the list of an image's brokers; fenced ones are listed for `linger_ms`."""
    found = ListedBrokers(linger_ms, lambda: 0)
    found.image_changed(quorum.image, ImageDelta(brokers=set(quorum.image.brokers)))
    return found


def lost(quorum: StubQuorum) -> LostBrokers:
    """Return an empty record of lost brokers."""
    return LostBrokers(lambda: quorum.image)


class Replies:
    """A substitute for a request that keeps its replies."""

    def __init__(self, version: int, listener: str = "CLIENTS") -> None:
        self.access = EVERYTHING
        self.api_version = version
        self.listener = listener
        self.replies: list[Message] = []

    def reply(self, message: Message) -> None:
        self.replies.append(message)

    async def reply_when_encoded(self, message: Message) -> None:
        self.reply(message)


TOPIC_ID = b"0123456789abcdef"


@pytest.fixture
def quorum() -> StubQuorum:
    stub = StubQuorum()
    for broker_id in (1, 2):
        stub.add_broker(broker_id)
    stub.add_broker(3, fenced=True)
    stub.add_topic("orders", TOPIC_ID, [[1, 2, 3], [2, 3, 1]])
    return stub


def creator(quorum: StubQuorum, defaults: TopicDefaults | None = None) -> TopicCreator:
    return TopicCreator(quorum, defaults or TopicDefaults(), random.Random(1))


def metadata(
    quorum: StubQuorum, message: MetadataRequest, version: int, *, linger_ms: int = 0
) -> MetadataResponse:
    """Return the answer to a request, passed through the codec."""
    handlers = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum, linger_ms=linger_ms), lost(quorum))
    response = handlers.metadata(cast(ClientRequest, Replies(version)), message)
    assert response is not None
    return through_codec(response, version)


def through_codec(response: Message, version: int) -> MetadataResponse:
    """Return an answer as clients read it, since its topics are encoded already."""
    assert isinstance(response, MetadataResponse)
    return decode(MetadataResponse, encode(response, version), version)


def test_a_broker_names_itself_when_all_are_fenced(quorum: StubQuorum) -> None:
    for broker_id in (1, 2, 3):
        quorum.add_broker(broker_id, fenced=True)
    assert [found.node_id for found in metadata(quorum, MetadataRequest(topics=[]), 12).brokers] == [1]


@pytest.mark.parametrize("linger_ms", [0, 9000])
def test_a_fenced_broker_that_is_still_listed_is_no_controller_leader_or_live_replica(
    quorum: StubQuorum, linger_ms: int
) -> None:
    quorum.add_broker(1, fenced=True)
    message = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    response = metadata(quorum, message, 12, linger_ms=linger_ms)
    expected = {1: ("host1", 9001), 2: ("host2", 9002), 3: ("host3", 9003)} if linger_ms else {}
    assert {b.node_id: (b.host, b.port) for b in response.brokers} == expected | {2: ("host2", 9002)}
    assert response.controller_id == 2
    first, second = response.topics[0].partitions
    assert (first.leader_id, first.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert (second.leader_id, second.error_code) == (2, 0)
    assert [partition.offline_replicas for partition in (first, second)] == [[1, 3], [3, 1]]


def test_a_broker_names_itself_beside_those_that_are_still_listed_when_all_are_fenced(
    quorum: StubQuorum,
) -> None:
    for broker_id in (1, 2, 3):
        quorum.add_broker(broker_id, fenced=True)
    response = metadata(quorum, MetadataRequest(topics=[]), 12, linger_ms=9000)
    assert [found.node_id for found in response.brokers] == [1, 2, 3]
    assert response.controller_id == 1


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("linger_ms", [0, 9000])
def test_describe_cluster_lists_as_metadata_does_and_says_who_is_fenced(
    quorum: StubQuorum, linger_ms: int, version: int
) -> None:
    handlers = DescribeClusterHandlers(quorum, 3, listed(quorum, linger_ms=linger_ms))
    request = cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=version, listener="CLIENTS"))
    answer = handlers.describe_cluster(request, DescribeClusterRequest())
    answer = decode(DescribeClusterResponse, encode(answer, version), version)
    still_listed = [(3, version >= 2)] if linger_ms else []
    assert [(broker.broker_id, broker.is_fenced) for broker in answer.brokers] == [
        (1, False),
        (2, False),
        *still_listed,
    ]
    assert answer.controller_id == 1


@pytest.mark.parametrize("version", range(13))
def test_metadata_tells_brokers_leaders_and_offline_replicas(quorum: StubQuorum, version: int) -> None:
    response = metadata(quorum, MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), version)
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, "host1", 9001), (2, "host2", 9002)]
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (0, "orders")
    first, second = topic.partitions
    assert (first.leader_id, second.leader_id) == (1, 2)
    if version == 0:
        assert (first.error_code, first.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1, 2])
    else:
        assert response.controller_id == 1
        assert (first.error_code, first.replica_nodes) == (0, [1, 2, 3])
    if version >= 2:
        assert response.cluster_id == "cluster"
    if version >= 5:
        assert first.offline_replicas == [3]
    if version >= 7:
        assert first.leader_epoch == 5
    if version >= 10:
        assert topic.topic_id == TOPIC_ID


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (12, None)])
def test_all_topics(quorum: StubQuorum, version: int, topics: list[MetadataRequestTopic] | None) -> None:
    assert [t.name for t in metadata(quorum, MetadataRequest(topics=topics), version).topics] == ["orders"]


def test_no_topics_from_version_1_on(quorum: StubQuorum) -> None:
    assert metadata(quorum, MetadataRequest(topics=[]), 1).topics == []


def test_topics_by_id(quorum: StubQuorum) -> None:
    ids = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in (TOPIC_ID, b"x" * 16)]
    known, unknown = metadata(quorum, MetadataRequest(topics=ids), 12).topics
    assert (known.error_code, known.name) == (0, "orders")
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        b"x" * 16,
    )
    with pytest.raises(KafkaError) as refused:
        metadata(quorum, MetadataRequest(topics=ids), 10)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_topics_that_do_not_exist(quorum: StubQuorum, name: str, error: ErrorCode) -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = metadata(quorum, message, 9).topics
    assert topic.error_code == error
    assert not quorum.submitted


@pytest.mark.parametrize(
    ("leader", "listener", "version", "error"),
    [
        (-1, "CLIENTS", 9, ErrorCode.LEADER_NOT_AVAILABLE),
        (3, "CLIENTS", 9, ErrorCode.LEADER_NOT_AVAILABLE),
        (1, "OTHER", 9, ErrorCode.LISTENER_NOT_FOUND),
        (1, "OTHER", 5, ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_leaders_that_cannot_be_reached(
    quorum: StubQuorum, leader: int, listener: str, version: int, error: ErrorCode
) -> None:
    quorum.add_topic("other", b"y" * 16, [[1, 2, 3]], leader=leader)
    handlers = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum), lost(quorum))
    message = MetadataRequest(topics=[MetadataRequestTopic(name="other")])
    response = handlers.metadata(cast(ClientRequest, Replies(version, listener)), message)
    assert response is not None
    (partition,) = through_codec(response, version).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (error, -1)


async def wait_for(condition: Callable[[], object]) -> None:
    await until(lambda: bool(condition()))


async def test_missing_topics_are_created_and_answered_with_their_leaders(quorum: StubQuorum) -> None:
    handlers = MetadataHandlers(
        quorum, 1, creator(quorum, TopicDefaults(num_partitions=3)), listed(quorum), lost(quorum)
    )
    replies = [Replies(9), Replies(9)]
    for request in replies:
        message = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        assert handlers.metadata(cast(ClientRequest, request), message) is None
    await wait_for(lambda: all(request.replies for request in replies))
    assert len(quorum.submitted) == 1, "two requests for one topic create it once"
    for request in replies:
        (topic,) = through_codec(request.replies[0], 9).topics
        assert [partition.leader_id for partition in topic.partitions] == [1, 1, 1]


async def test_a_refused_creation_leaves_the_topic_unknown() -> None:
    quorum = StubQuorum(refusal=ErrorCode.REQUEST_TIMED_OUT)
    handlers = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum), lost(quorum))
    request = Replies(9)
    handlers.metadata(
        cast(ClientRequest, request), MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    )
    await wait_for(lambda: request.replies)
    (topic,) = through_codec(request.replies[0], 9).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_describe_cluster(quorum: StubQuorum) -> None:
    handlers = DescribeClusterHandlers(quorum, 1, listed(quorum))
    request = cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=2, listener="CLIENTS"))
    response = handlers.describe_cluster(request, DescribeClusterRequest(include_fenced_brokers=True))
    assert [(broker.broker_id, broker.is_fenced) for broker in response.brokers] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    response = handlers.describe_cluster(request, DescribeClusterRequest())
    assert [broker.broker_id for broker in response.brokers] == [1, 2]
    assert (response.cluster_id, response.controller_id) == ("cluster", 1)
    with pytest.raises(KafkaError) as refused:
        handlers.describe_cluster(request, DescribeClusterRequest(endpoint_type=2))
    assert refused.value.code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", range(5))
async def test_find_coordinator_creates_the_offsets_topic_and_names_the_leader(
    quorum: StubQuorum, version: int
) -> None:
    handlers = FindCoordinatorHandlers(quorum, creator(quorum))
    message = FindCoordinatorRequest(key="group", coordinator_keys=[])
    if version >= 4:
        message = FindCoordinatorRequest(coordinator_keys=["group", "other"])
    response = await handlers.find_coordinator(cast(ClientRequest, Replies(version)), message)
    response = decode(FindCoordinatorResponse, encode(response, version), version)
    assert len(quorum.image.topics[OFFSETS_TOPIC].partitions) == 50
    if version < 4:
        assert (response.error_code, response.node_id, response.host) == (0, 1, "host1")
    else:
        assert [(c.key, c.node_id, c.port) for c in response.coordinators] == [
            ("group", 1, 9001),
            ("other", 1, 9001),
        ]


async def test_without_an_offsets_topic_the_coordinator_is_not_available() -> None:
    quorum = StubQuorum(refusal=ErrorCode.INVALID_REPLICATION_FACTOR)
    handlers = FindCoordinatorHandlers(quorum, creator(quorum))
    for version in (0, 1):
        with pytest.raises(KafkaError) as refused:
            await handlers.find_coordinator(
                cast(ClientRequest, Replies(version)), FindCoordinatorRequest(key="group")
            )
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    message = FindCoordinatorRequest(coordinator_keys=["group"])
    response = await handlers.find_coordinator(cast(ClientRequest, Replies(4)), message)
    response = decode(FindCoordinatorResponse, encode(response, 4), 4)
    assert [c.error_code for c in response.coordinators] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_replica_lost_by_a_live_broker_is_shown_as_offline(quorum: StubQuorum) -> None:
    quorum.image.apply(
        PartitionRecord(
            topic_id=TOPIC_ID, partition=0, replicas=[1, 2, 3], isr=[2], leader=2, offline_replicas=[1]
        )
    )
    answer = metadata(quorum, MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12)
    assert [partition.offline_replicas for partition in answer.topics[0].partitions] == [[1, 3], [3]]


async def test_thousands_of_missing_topics_are_few_commands_and_each_is_answered_once(
    quorum: StubQuorum,
) -> None:
    handlers = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum), lost(quorum))
    names = [f"new-{n}" for n in range(1_000)]
    replies = Replies(9)
    topics = [MetadataRequestTopic(name=name) for name in [*names, *names, "orders", "orders"]]
    assert handlers.metadata(cast(ClientRequest, replies), MetadataRequest(topics=topics)) is None
    while not replies.replies:
        await asyncio.sleep(0)
    response = through_codec(replies.replies[0], 9)
    assert [topic.name for topic in response.topics] == [*names, "orders"]
    assert len(quorum.submitted) < 10


@pytest.mark.parametrize("version", [10, 12, 13])
def test_a_topic_without_name_and_id_is_refused(quorum: StubQuorum, version: int) -> None:
    handlers = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum), lost(quorum))
    with pytest.raises(KafkaError) as refused:
        handlers.metadata(
            cast(ClientRequest, Replies(version)), MetadataRequest(topics=[MetadataRequestTopic(name=None)])
        )
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("topics", [None, [MetadataRequestTopic(name="orders")]])
async def test_what_a_lost_broker_led_is_told_once_there_is_news_of_it(
    quorum: StubQuorum, topics: list[MetadataRequestTopic] | None
) -> None:
    of_dead = lost(quorum)
    handlers = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum), of_dead)
    of_dead.lost(2)
    replies = Replies(12)
    assert handlers.metadata(cast(ClientRequest, replies), MetadataRequest(topics=topics)) is None
    await asyncio.sleep(0)
    assert replies.replies == []
    quorum.add_broker(2, fenced=True)
    of_dead.image_changed(quorum.image, ImageDelta(brokers={2}))
    quorum.add_topic("orders", TOPIC_ID, [[1, 2, 3], [1, 3, 2]])
    await wait_for(lambda: replies.replies)
    (topic,) = through_codec(replies.replies[0], 12).topics
    assert [partition.leader_id for partition in topic.partitions] == [1, 1]


async def test_what_others_lead_is_told_at_once_beside_a_lost_broker(quorum: StubQuorum) -> None:
    quorum.add_topic("other", b"y" * 16, [[1, 2]])
    of_dead = lost(quorum)
    handlers = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum), of_dead)
    of_dead.lost(2)
    for topics in ([MetadataRequestTopic(name="other")], [MetadataRequestTopic(name="none")], []):
        message = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        assert handlers.metadata(cast(ClientRequest, Replies(12)), message) is not None
    of_dead.close()


@pytest.mark.parametrize(
    ("version", "names"), [(12, None), (12, [f"wide-{number}" for number in range(9)]), (0, [])]
)
async def test_others_have_turns_while_a_few_topics_of_many_partitions_are_told(
    quorum: StubQuorum, version: int, names: list[str] | None
) -> None:
    """Topics were counted, so thirty topics of a thousand partitions each were one turn.

    In version 0 an empty list of names means all.
    """
    for number in range(9):
        quorum.add_topic(f"wide-{number}", bytes([number]) * 16, [[1, 2]] * 1_000)
    handlers = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum), lost(quorum))
    request = Replies(version)
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    assert handlers.metadata(cast(ClientRequest, request), asked) is None
    turns = 0
    async with asyncio.timeout(20):
        while not request.replies:
            turns += 1
            await asyncio.sleep(0)
    assert turns > 3
    response = through_codec(request.replies[0], version)
    assert [len(topic.partitions) for topic in response.topics if "wide" in (topic.name or "")] == [1_000] * 9
