"""Consumers with KIP-848 (`group.protocol=consumer`): rebalances, patterns, static members, migration."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import socket
import subprocess
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.dataplane.coordinated_log.key_hash import partition_for
from ottla.protocol.messages.consumer_group_description import ConsumerGroupDescribeRequest
from ottla.protocol.messages.headers import decode_response, encode_request
from tests import java
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.conftest import create
from tests.integration.stock_clients import installed

CLOSE_MAX_S = 20.0

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("consumer-protocol"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def group() -> str:
    return f"g{uuid.uuid4().hex[:10]}"


def consumer(
    cluster: RunningCluster, group: str, *, protocol: str = "consumer", **config: object
) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


def owned(member: Consumer) -> set[tuple[str, int]]:
    return {(p.topic, p.partition) for p in member.assignment()}


def leave(member: Consumer) -> None:
    """Close a member.

    librdkafka 2.16 may wait for itself for ever if a rebalance comes while it closes (in assign, on the closing
    thread): the group goes on without the member once its session has ended.
    """
    thread = threading.Thread(target=member.close, daemon=True)
    thread.start()
    thread.join(CLOSE_MAX_S)
    if thread.is_alive():
        warnings.warn(
            f"librdkafka did not close its consumer in {CLOSE_MAX_S:g} s; left behind", stacklevel=2
        )


def settle(members: list[Consumer], condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    """Poll all members until the condition holds; no partition may have two owners meanwhile."""

    def polled() -> bool:
        for member in members:
            message = member.poll(0.02)
            assert message is None or message.error() is None, message.error()
        return condition()

    wait_until(polled, what, timeout_s)


def shared(members: list[Consumer], partitions: int) -> bool:
    """Return whether the members own all partitions, evenly, and none twice."""
    sizes = [len(owned(m)) for m in members]
    everything = set().union(*(owned(m) for m in members))
    return sum(sizes) == len(everything) == partitions and max(sizes) - min(sizes) <= 1


def test_three_members_share_and_one_leaves(cluster: RunningCluster, admin: AdminClient, group: str) -> None:
    topic = create(admin, 6)
    members: list[Consumer] = []
    for count in (1, 2, 3):
        members.append(consumer(cluster, group))
        members[-1].subscribe([topic])
        settle(members, lambda: shared(members, 6), f"{count} members share")
    members.pop().close()
    settle(members, lambda: shared(members, 6), "two members share")
    for member in members:
        member.close()


def _consume_until_killed(
    bootstrap: str, group: str, topic: str, ready: multiprocessing.synchronize.Event
) -> None:
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
    member.subscribe([topic])
    while True:
        member.poll(0.05)
        if member.assignment():
            ready.set()


def test_a_killed_member_is_replaced(cluster: RunningCluster, admin: AdminClient, group: str) -> None:
    topic = create(admin, 4)
    members = [consumer(cluster, group), consumer(cluster, group)]
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    victim = context.Process(target=_consume_until_killed, args=(cluster.bootstrap, group, topic, ready))
    victim.start()
    try:
        for member in members:
            member.subscribe([topic])
        settle(members, ready.is_set, "the third member owns something")
        settle(members, lambda: len(owned(members[0]) | owned(members[1])) < 4, "three members share")
    finally:
        victim.kill()
        victim.join()
    settle(members, lambda: shared(members, 4), "two members share")
    for member in members:
        member.close()


def test_a_pattern_takes_in_new_topics(cluster: RunningCluster, admin: AdminClient, group: str) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    member = consumer(cluster, group)
    admin.create_topics([NewTopic(f"{prefix}-one", 2, 3)])[f"{prefix}-one"].result(60)
    member.subscribe([f"^{prefix}-.*"])
    settle([member], lambda: len(owned(member)) == 2, "the first topic")
    admin.create_topics([NewTopic(f"{prefix}-two", 3, 3)])[f"{prefix}-two"].result(60)
    settle([member], lambda: len(owned(member)) == 5, "the second topic")
    admin.create_partitions([NewPartitions(f"{prefix}-two", 4)])[f"{prefix}-two"].result(60)
    settle([member], lambda: len(owned(member)) == 6, "a partition more")
    member.close()


def test_a_static_member_comes_back_to_its_partitions(
    cluster: RunningCluster, admin: AdminClient, group: str
) -> None:
    topic = create(admin, 4)
    members = [consumer(cluster, group, **{"group.instance.id": f"i{n}"}) for n in range(2)]
    for member in members:
        member.subscribe([topic])
    settle(members, lambda: shared(members, 4), "two members share")
    before = owned(members[0])
    epoch = describe(admin, group)["group_epoch"]
    members[0].close()
    members[0] = consumer(cluster, group, **{"group.instance.id": "i0"})
    members[0].subscribe([topic])
    settle(members, lambda: shared(members, 4), "both are back")
    assert owned(members[0]) == before
    assert describe(admin, group)["group_epoch"] == epoch
    for member in members:
        member.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_groups_change_their_protocol_with_their_members(
    cluster: RunningCluster, admin: AdminClient, group: str, strategy: str
) -> None:
    """Groups of classic members, of a mix, of consumer members only, and back."""
    topic = create(admin, 6)
    classic = [
        consumer(cluster, group, protocol="classic", **{"partition.assignment.strategy": strategy})
        for _ in range(2)
    ]
    for member in classic:
        member.subscribe([topic])
    settle(classic, lambda: shared(classic, 6), "classic members share")
    assert kind(admin, group) == "CLASSIC"
    newer = [consumer(cluster, group)]
    newer[0].subscribe([topic])
    settle([*classic, *newer], lambda: shared([*classic, *newer], 6), "a mix shares")
    assert kind(admin, group) == "CONSUMER"
    leave(classic.pop())
    newer.append(consumer(cluster, group))
    newer[1].subscribe([topic])
    settle([*classic, *newer], lambda: shared([*classic, *newer], 6), "another mix shares")
    for member in newer:
        leave(member)
    settle(classic, lambda: shared(classic, 6), "the classic member has everything")
    assert kind(admin, group) == "CLASSIC"
    leave(classic[0])


def test_every_stock_client_takes_part_in_a_consumer_group(
    cluster: RunningCluster, admin: AdminClient, group: str, tmp_path: Path
) -> None:
    """One group has members of the classic protocol, each a different client, and a member of the new protocol."""
    topic = create(admin, 10)
    clients = installed(tmp_path)
    clients.pop(
        "java", None
    )  # it offers range alone and aiokafka roundrobin alone: they cannot share a group
    newer = consumer(cluster, group)
    with ExitStack() as stack:
        stack.callback(newer.close)
        older = {
            name: stack.enter_context(client.consumer(cluster.bootstrap, topic, group))
            for name, client in clients.items()
        }
        newer.subscribe([topic])

        def everybody_has_a_part() -> bool:
            parts = [{index for _, index in owned(newer)}, *(member.assigned for member in older.values())]
            return all(parts) and sum(map(len, parts)) == len(set().union(*parts)) == 10

        settle([newer], everybody_has_a_part, "all share", 40)
        assert kind(admin, group) == "CONSUMER"
        older.popitem()[1].kill9()
        settle([newer], everybody_has_a_part, "all that are left share", 40)


def test_offsets_and_members_outlive_their_coordinator(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings=SETTINGS) as own, ExitStack() as closing:
        admin = AdminClient({"bootstrap.servers": own.bootstrap})
        topic, group = create(admin, 4), "outlives"
        producer = Producer({"bootstrap.servers": own.bootstrap})
        for number in range(100):
            producer.produce(topic, b"%d" % number, partition=number % 4)
        assert producer.flush(60) == 0
        members = [consumer(own, group) for _ in range(2)]
        for member in members:
            closing.callback(member.close)
            member.subscribe([topic])
        settle(members, lambda: shared(members, 4), "two members share")
        for member in members:
            offsets = [TopicPartition(topic, index, 10 + index) for _, index in owned(member)]
            member.commit(offsets=offsets, asynchronous=False)
        before = [owned(m) for m in members]
        epoch = describe(admin, group)["group_epoch"]
        partition = partition_for(group, 50)
        coordinator = own.leader("__consumer_offsets", partition)
        next(node for node in own.brokers if node.id == coordinator).kill9()
        wait_until(
            lambda: own.leader("__consumer_offsets", partition) not in (None, coordinator), "a coordinator"
        )

        def found() -> bool:
            asked = [TopicPartition(topic, index) for index in range(4)]
            try:
                return [p.offset for p in members[0].committed(asked, timeout=5)] == [10, 11, 12, 13]
            except KafkaException:
                return False

        settle(members, found, "committed offsets")
        assert [owned(m) for m in members] == before
        # A client that has not known the broker that is gone: the other one may wait for it, backing off.
        admin = AdminClient({"bootstrap.servers": own.bootstrap})
        assert describe(admin, group)["group_epoch"] == epoch


@pytest.mark.java
@java.needs_java
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_java_consumer_of_either_protocol_shares_with_one_of_the_new(
    cluster: RunningCluster, admin: AdminClient, group: str, protocol: str, tmp_path: Path
) -> None:
    topic = create(admin, 4)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(200):
        producer.produce(topic, b"%d" % number, partition=number % 4)
    assert producer.flush(60) == 0
    argv = java.command(
        "org.apache.kafka.tools.VerifiableConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group-id", group),
        *("--group-protocol", protocol, "--reset-policy", "earliest"),
    )
    member = consumer(cluster, group)
    member.subscribe([topic])
    settle([member], lambda: len(owned(member)) == 4, "the first one has everything")
    said = tmp_path / "said"

    def both_share() -> bool:
        return len(owned(member)) == 2 and '"partitions_assigned"' in said.read_text()

    with said.open("w") as out:
        reader = subprocess.Popen(argv, stdout=out, stderr=subprocess.DEVNULL)
    try:
        settle([member], both_share, "both share", 60)
        assert kind(admin, group) == "CONSUMER"
    finally:
        reader.terminate()
        reader.wait(timeout=30)
    settle([member], lambda: len(owned(member)) == 4, "the other one has left")
    member.close()
    text = java.run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", cluster.bootstrap, "--describe", "--group", group, "--state", "--verbose"),
    )
    assert "uniform" in text


def describe(admin: AdminClient, group: str) -> dict[str, Any]:
    """Return a consumer group's ConsumerGroupDescribe answer."""
    host, _, port = bootstrap_of(admin, group).rpartition(":")
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(encode_request(request, 1, 1, "test"))
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        frame = connection.recv(size, socket.MSG_WAITALL)
    _, answer = decode_response(ConsumerGroupDescribeRequest, memoryview(frame), 1)
    (found,) = answer.groups
    assert found.error_code == 0, found.error_message
    return {"group_epoch": found.group_epoch, "state": found.group_state, "members": found.members}


def bootstrap_of(admin: AdminClient, group: str) -> str:
    """Return the address of the group's coordinator."""
    node = admin.describe_consumer_groups([group])[group].result(30).coordinator
    return f"{node.host}:{node.port}"


def kind(admin: AdminClient, group: str) -> str:
    """Return a group's protocol according to ListGroups."""
    listed = admin.list_consumer_groups().result(60)
    return next(g.type.name for g in listed.valid if g.group_id == group)
