"""Dead letters of share groups in a real cluster: one letter for each rejected record, whatever is killed meanwhile."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import AcknowledgeType, Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.dead_letters import WriteDeadLettersRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.producers import InitProducerIdRequest
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.conftest import create
from tests.integration.share_groups import from_the_beginning
from tests.integration.test_share_consumers import consumer, poll, produce
from tests.integration.test_share_states import PlayedBroker
from tests.raw_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ENABLED = {"errors.deadletterqueue.group.enable": "true"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {
        "share.coordinator.state.topic.num.partitions": "3",
        "errors.deadletterqueue.auto.create.topics.enable": "true",
    }
    folder = tmp_path_factory.mktemp("letters")
    with running_cluster(folder, quorum=3, brokers=3, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def topic_for_letters(
    cluster: RunningCluster, admin: AdminClient, *, replicas: int = 3, **config: str
) -> str:
    name = f"dlq.{uuid.uuid4().hex[:10]}"
    values = ENABLED | {key.replace("__", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 3, replicas, config=values)])[name].result(60)
    cluster.wait_until_in_sync(name)
    return name


def group_with(cluster: RunningCluster, topic: str, **settings: str) -> str:
    letters = {
        "errors__deadletterqueue__topic__name": topic,
        "errors__deadletterqueue__copy__record__enable": "true",
    }
    return from_the_beginning(cluster.bootstrap, f"g{uuid.uuid4().hex[:8]}", **(letters | settings))


def reject(cluster: RunningCluster, group: str, topic: str, values: set[bytes]) -> None:
    """Take records until all were rejected, or taken by a member whose rejection counts."""
    seen: set[bytes] = set()
    with consumer(cluster, group, topic, "explicit") as member:

        def taken(record: object) -> None:
            seen.add(record.value())  # type: ignore[attr-defined]
            member.acknowledge(record, AcknowledgeType.REJECT)

        poll(member, lambda: seen >= values, taken)
        member.commit_sync()


def letters_of(cluster: RunningCluster, topic: str) -> list[tuple[bytes | None, dict[str, bytes]]]:
    """Return values and headers of the committed letters."""
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
        }
    )
    found = []
    reader.assign([TopicPartition(topic, index, 0) for index in range(3)])
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < 3:
        assert time.monotonic() < deadline, "the topic for letters cannot be read"
        message = reader.poll(1.0)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found.append((message.value(), dict(message.headers() or [])))
    reader.close()
    return found


def places(letters: list[tuple[bytes | None, dict[str, bytes]]]) -> Counter[tuple[bytes, bytes]]:
    return Counter(
        (headers["__dlq.errors.partition"], headers["__dlq.errors.offset"]) for _, headers in letters
    )


def wait_for_letters(cluster: RunningCluster, topic: str, values: set[bytes]) -> None:
    """Wait until each value has a letter, and check that it has no second."""
    wait_until(
        lambda: {value for value, _ in letters_of(cluster, topic)} >= values, "letters of all records", 90
    )
    letters = letters_of(cluster, topic)
    assert Counter(value for value, _ in letters) == Counter(values)
    assert set(places(letters).values()) == {1}


def test_each_rejected_record_has_a_letter_on_any_leader(cluster: RunningCluster, admin: AdminClient) -> None:
    topic, letters = create(admin, 3), topic_for_letters(cluster, admin)
    group = group_with(cluster, letters)
    values = produce(cluster, topic, 300)
    reject(cluster, group, topic, values)
    wait_for_letters(cluster, letters, values)
    _, headers = letters_of(cluster, letters)[0]
    assert headers["__dlq.errors.topic"] == topic.encode()
    assert headers["__dlq.errors.group"] == group.encode()
    assert headers["__dlq.errors.delivery.count"] == b"1"
    assert headers["__dlq.errors.message"] == b"Offset rejected by client."


def test_the_topic_is_created_if_brokers_may_create_it(cluster: RunningCluster, admin: AdminClient) -> None:
    topic, letters = create(admin, 3), f"dlq.{uuid.uuid4().hex[:10]}"
    values = produce(cluster, topic, 3)
    reject(cluster, group_with(cluster, letters), topic, values)
    wait_until(lambda: letters in admin.list_topics(timeout=60).topics, "the topic for letters", 60)
    resource = ConfigResource(ResourceType.TOPIC, letters)
    (found,) = admin.describe_configs([resource]).values()
    assert found.result(60)["errors.deadletterqueue.group.enable"].value == "true"


def test_records_wait_for_a_topic_that_takes_no_letters(cluster: RunningCluster, admin: AdminClient) -> None:
    """A name with another prefix, a topic that does not allow letters, and then one that does."""
    topic = create(admin, 3)
    closed = topic_for_letters(cluster, admin, errors__deadletterqueue__group__enable="false")
    group = group_with(cluster, closed)
    values = produce(cluster, topic, 30)
    reject(cluster, group, topic, values)
    assert letters_of(cluster, closed) == []
    entry = ConfigEntry(*next(iter(ENABLED.items())), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, closed, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
    wait_for_letters(cluster, closed, values)


def test_records_wait_while_the_topic_is_below_its_min_isr(
    cluster: RunningCluster, admin: AdminClient
) -> None:
    topic = create(admin, 3)
    letters = topic_for_letters(cluster, admin, min__insync__replicas="3")
    group = group_with(cluster, letters)
    values = produce(cluster, topic, 30)
    victim = cluster.brokers[0]
    victim.kill9()
    reject(cluster, group, topic, values)
    assert letters_of(cluster, letters) == []
    victim.restart()
    wait_for_letters(cluster, letters, values)


def test_only_brokers_write_letters_and_only_where_a_topic_allows_them(
    cluster: RunningCluster, admin: AdminClient
) -> None:
    closed = topic_for_letters(cluster, admin, errors__deadletterqueue__group__enable="false")
    asked = Peer(cluster.brokers[0].port)
    topic = asked.ask(MetadataRequest(topics=[MetadataRequestTopic(name=closed)]), 12).topics[0]
    request = WriteDeadLettersRequest(
        transactional_id="__share_dead_letters-x",
        producer_id=1,
        producer_epoch=0,
        topic_id=topic.topic_id,
        partition=0,
        records=b"",
    )
    assert asked.ask(request, 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    reserved = InitProducerIdRequest(transactional_id="__share_dead_letters-x", transaction_timeout_ms=1_000)
    assert asked.ask(reserved, 4).error_code == ErrorCode.INVALID_REQUEST
    asked.close()
    played = PlayedBroker(cluster)
    refused = played.ask(topic.partitions[0].leader_id, request, 0)
    played.close()
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert "errors.deadletterqueue.group.enable=true" in refused.error_message


@pytest.mark.parametrize("victim", ["leader of the records", "leader of the letters", "leader of the states"])
def test_a_killed_broker_costs_no_letter_and_doubles_none(
    cluster: RunningCluster, admin: AdminClient, victim: str
) -> None:
    topic, letters = create(admin, 3), topic_for_letters(cluster, admin)
    group = group_with(cluster, letters)
    values = produce(cluster, topic, 600)
    seen: set[bytes] = set()
    killed = None
    place = {"records": topic, "letters": letters, "states": "__share_group_state"}[victim.split()[-1]]
    with consumer(cluster, group, topic, "explicit") as member:

        def taken(record: object) -> None:
            seen.add(record.value())  # type: ignore[attr-defined]
            member.acknowledge(record, AcknowledgeType.REJECT)

        poll(member, lambda: len(seen) >= 50, taken)
        member.commit_sync()
        node = cluster.broker(cluster.leader(place, 0) or 0)
        killed = node
        node.kill9()
        deadline = time.monotonic() + 120
        while True:
            for record in member.poll(1.0) or ():
                if record.error() is None:
                    taken(record)
            if seen >= values and {value for value, _ in letters_of(cluster, letters)} >= values:
                break
            assert time.monotonic() < deadline, "letters are missing"
    killed.restart()
    wait_for_letters(cluster, letters, values)
