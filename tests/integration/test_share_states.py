"""States of share-partitions in a real cluster: a broker that the test plays writes and reads them over failovers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ottla.dataplane.cluster.internal_topics import SHARE_STATE_TOPIC
from ottla.dataplane.coordinated_log.key_hash import partition_for
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.find_coordinator import SHARE_KEY, FindCoordinatorRequest, SharePartition
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.share_group_state import (
    DeletedState,
    DeletedTopicStates,
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    InitialState,
    InitialTopicStates,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WantedState,
    WantedTopicStates,
    WriteShareGroupStateRequest,
    WrittenState,
    WrittenTopicStates,
)
from ottla.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from ottla.protocol.messages.share_state_records import DeliveryState, StateBatch
from ottla.protocol.wire.schema import Message
from tests.cluster import RunningCluster, running_cluster
from tests.integration.conftest import create
from tests.node_credentials import credentials_in, prove
from tests.raw_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

DEADLINE_S = 60.0
PLAYED = 99
"""Id of the broker that the test plays. It is no member of the cluster, but has the cluster secret."""
TEMPORARY = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
BATCH = StateBatch(first_offset=3, last_offset=9, delivery_state=DeliveryState.ACKNOWLEDGED, delivery_count=1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"share.coordinator.state.topic.num.partitions": "3"}
    folder = tmp_path_factory.mktemp("states")
    with running_cluster(folder, quorum=1, brokers=3, settings=settings) as cluster:
        yield cluster


class PlayedBroker:
    """A connection to each broker of a cluster, on which the test has proved to be a broker."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._peers: dict[int, Peer] = {}

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    def ask(self, broker_id: int, message: Message, version: int) -> Any:
        """Send a request. Raises OSError."""
        try:
            if broker_id not in self._peers:
                node = self._cluster.broker(broker_id)
                peer = self._peers[broker_id] = Peer(node.port)
                prove(peer, credentials_in(Path(self._cluster.directory), PLAYED), broker_id)
            return self._peers[broker_id].ask(message, version)
        except OSError:
            peer = self._peers.pop(broker_id, None)
            if peer is not None:
                peer.close()
            raise

    def coordinator(self, key: SharePartition) -> int:
        """Return the coordinator of a share-partition."""
        request = FindCoordinatorRequest(key_type=SHARE_KEY, coordinator_keys=[key.key])
        return int(self._until(lambda node: self.ask(node, request, 6).coordinators[0]).node_id)

    def settled(self, key: SharePartition, message: Message, version: int) -> Any:
        """Ask the coordinator of a share-partition until it answers, and return the result of the partition."""
        return self._until(
            lambda _: self.ask(self.coordinator(key), message, version).results[0].partitions[0]
        )

    def _until(self, ask: Any) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for node in self._cluster.brokers:
                if not node.alive:
                    continue
                with suppress(OSError):
                    row = ask(node.id)
                    if row.error_code not in TEMPORARY:
                        return row
            assert time.monotonic() < deadline, "no broker coordinates the share-partition"
            time.sleep(0.02)


@pytest.fixture
def played(cluster: RunningCluster) -> Iterator[PlayedBroker]:
    broker = PlayedBroker(cluster)
    yield broker
    broker.close()


@pytest.fixture
def key(cluster: RunningCluster) -> SharePartition:
    """Return a share-partition of a new topic, which has one partition."""
    name = create(AdminClient({"bootstrap.servers": cluster.bootstrap}), 1)
    peer = Peer(cluster.brokers[0].port)
    answer = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
    peer.close()
    return SharePartition("mailers", bytes(answer.topics[0].topic_id), 0)


def initialize(key: SharePartition, state_epoch: int, start_offset: int) -> Message:
    state = InitialState(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
    topic = InitialTopicStates(topic_id=key.topic_id, partitions=[state])
    return InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def write(key: SharePartition, leader_epoch: int, *batches: StateBatch, state_epoch: int = 1) -> Message:
    state = WrittenState(
        partition=key.partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=3,
        delivery_complete_count=7,
        state_batches=list(batches),
    )
    topic = WrittenTopicStates(topic_id=key.topic_id, partitions=[state])
    return WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def wanted(key: SharePartition, leader_epoch: int) -> list[WantedTopicStates]:
    state = WantedState(partition=key.partition, leader_epoch=leader_epoch)
    return [WantedTopicStates(topic_id=key.topic_id, partitions=[state])]


def read(key: SharePartition, leader_epoch: int) -> Message:
    return ReadShareGroupStateRequest(group_id=key.group_id, topics=wanted(key, leader_epoch))


def test_a_state_outlives_its_coordinator(
    cluster: RunningCluster, played: PlayedBroker, key: SharePartition
) -> None:
    assert played.settled(key, initialize(key, 1, 3), 0).error_code == 0
    assert played.settled(key, read(key, 5), 0).start_offset == 3
    assert played.settled(key, write(key, 5, BATCH), 1).error_code == 0
    cluster.wait_until_in_sync(SHARE_STATE_TOPIC)
    first = played.coordinator(key)
    assert first == cluster.leader(SHARE_STATE_TOPIC, partition_for(key.key, 3))
    other = next(node.id for node in cluster.brokers if node.id != first)
    refused = played.ask(other, read(key, 5), 0).results[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    cluster.broker(first).kill9()
    found = played.settled(key, read(key, 6), 0)
    assert played.coordinator(key) != first
    assert (found.error_code, found.state_epoch, found.start_offset) == (0, 1, 3)
    assert found.state_batches == [BATCH]
    assert played.settled(key, write(key, 5, BATCH), 1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    refused = played.settled(key, write(key, 6, BATCH, state_epoch=0), 1)
    assert refused.error_code == ErrorCode.FENCED_STATE_EPOCH
    cluster.broker(first).restart()
    cluster.wait_until_in_sync(SHARE_STATE_TOPIC)
    summary = ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=wanted(key, 0))
    found = played.settled(key, summary, 1)
    assert (found.leader_epoch, found.start_offset, found.delivery_complete_count) == (6, 3, 7)
    deleted = DeletedTopicStates(topic_id=key.topic_id, partitions=[DeletedState(partition=0)])
    delete = DeleteShareGroupStateRequest(group_id=key.group_id, topics=[deleted])
    assert played.settled(key, delete, 0).error_code == 0
    assert played.settled(key, read(key, 6), 0).error_code == ErrorCode.INVALID_REQUEST


def test_groups_of_all_coordinators_get_states_of_all_coordinators(cluster: RunningCluster) -> None:
    """The coordinator of a group initializes the states by its persister, on its broker and on others."""
    name = create(AdminClient({"bootstrap.servers": cluster.bootstrap}), 6)
    for number in range(6):
        assigned = _assigned(cluster, f"group-{number}", name)
        assert sorted(assigned) == list(range(6))


def _assigned(cluster: RunningCluster, group: str, topic: str) -> list[int]:
    """Join a share group, and return the partitions that it assigns; these have states."""
    deadline = time.monotonic() + DEADLINE_S
    member, epoch, assigned = str(uuid.uuid4()), 0, list[int]()
    peer: Peer | None = None
    while not assigned:
        assert time.monotonic() < deadline, "no partition is assigned"
        if peer is None:
            peer = Peer(cluster.brokers[0].port)
            found = peer.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0]
            peer.close()
            peer = Peer(found.port) if found.error_code == 0 else None
            time.sleep(0.02)
            continue
        beat = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=[topic] if epoch == 0 else None,
        )
        answer = peer.ask(beat, 1)
        if answer.error_code in TEMPORARY:
            peer.close()
            peer = None
            continue
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned = [index for found in answer.assignment.topic_partitions for index in found.partitions]
        time.sleep(0.02)
    assert peer is not None
    peer.close()
    return assigned


def test_clients_neither_see_the_apis_nor_write_the_topic(
    cluster: RunningCluster, played: PlayedBroker, key: SharePartition
) -> None:
    assert played.settled(key, initialize(key, 1, 0), 0).error_code == 0
    client = Peer(cluster.brokers[0].port)
    listed = {api.api_key for api in client.ask(ApiVersionsRequest(), 0).api_keys}
    assert not listed & {83, 84, 85, 86, 87}
    refused = client.ask(read(key, 9), 0).results[0].partitions[0]
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    find = FindCoordinatorRequest(key_type=SHARE_KEY, coordinator_keys=[key.key])
    refused = client.ask(find, 6).coordinators[0]
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    described = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=SHARE_STATE_TOPIC)]), 12)
    assert described.topics[0].is_internal
    client.close()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    outcomes: list[object] = []
    producer.produce(SHARE_STATE_TOPIC, b"x", on_delivery=lambda error, _: outcomes.append(error))
    with suppress(KafkaException):
        producer.flush(60)
    assert outcomes
    assert outcomes[0] is not None
