"""A client that claims to be a node of the cluster causes no acknowledgement, write or loss."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.records.record import encode_batch
from tests.cluster import Node, RunningCluster, running_cluster, wait_for, wait_until
from tests.commands import run_ottla
from tests.integration.history import read_all
from tests.integration.raw_transactions import RawTransactions, Who
from tests.node_credentials import credentials_in, prove
from tests.raw_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

TOPIC = "attacked"
INVENTED_EPOCH = 1 << 40
SESSION_TIMEOUT_MS = 9_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run a cluster in which a paused follower stays in the ISR for the duration of the attack."""
    settings = {"min.insync.replicas": "2", "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
    directory = tmp_path_factory.mktemp("cluster")
    with running_cluster(directory, quorum=1, brokers=2, settings=settings) as cluster:
        yield cluster


def write_abort_marker(peer: Peer, topic: str, who: Who) -> ErrorCode:
    """Request an abort marker like `kafka-transactions.sh abort`."""
    marker = WritableTxnMarker(
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
    )
    answer = peer.ask(WriteTxnMarkersRequest(markers=[marker]), 1, 20)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def test_only_who_has_the_cluster_secret_writes_markers(cluster: RunningCluster, tmp_path: Path) -> None:
    topic = "marked"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 2)])[topic].result(30)
    leader = cluster.broker(wait_for(lambda: cluster.leader(topic, 0), "a leader"))
    (other,) = (node for node in cluster.brokers if node.id != leader.id)
    wrong = tmp_path / "wrong.secret"
    wrong.write_text("guessed, and guessed wrongly")

    def abort_hanging(secret: Path, code: int) -> str:
        words = ["txn", "abort-hanging", f"{topic}:0", "--producer-id", str(who.producer_id)]
        options = ["--secret-file", str(secret), "--yes", "-b", cluster.bootstrap, "-o", "json"]
        done = run_ottla(*words, *options)
        assert done.returncode == code, done
        return done.stderr if code else done.stdout

    with RawTransactions(cluster.bootstrap) as raw:
        who = raw.init("held-open")
        assert raw.add(who, topic, [0]) == [ErrorCode.NONE]
        assert raw.produce(who, topic, 0, b"open") is ErrorCode.NONE
        with closing(Peer(leader.port)) as stranger:
            assert write_abort_marker(stranger, topic, who) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "refuses the proof: the secret is not that of cluster" in abort_hanging(wrong, 1)
        with closing(Peer(leader.port)) as broker:
            prove(broker, credentials_in(cluster.directory, other.id), leader.id)
            assert write_abort_marker(broker, topic, who.but(epoch=7)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert raw.produce(who, topic, 0, b"still open", sequence=1) is ErrorCode.NONE
        said = json.loads(abort_hanging(cluster.directory / "cluster.secret", 0))
        assert said == [{"topic": topic, "partition": 0, "producer_id": who.producer_id, "result": "aborted"}]
        assert raw.produce(who, topic, 0, b"fenced", sequence=2) is not ErrorCode.NONE
    assert "has no open transaction in marked-0" in abort_hanging(cluster.directory / "cluster.secret", 1)


def topic_id(port: int) -> bytes:
    with closing(Peer(port)) as peer:
        answer = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
    found: bytes = answer.topics[0].topic_id
    return found


def produce(port: int, value: bytes, timeout_ms: int) -> ErrorCode:
    """Produce a value with acks=all."""
    records = encode_batch([(None, value, int(time.time() * 1000))])
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
    with closing(Peer(port)) as peer:
        answer = peer.ask(ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data]), 9, 20)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def fetch(peer: Peer, topic: bytes, replica_id: int, offset: int) -> PartitionData:
    """Fetch as the follower `replica_id`, or with -1 as a consumer."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    message = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        session_epoch=-1 if replica_id < 0 else 0,
        topics=[FetchTopic(topic_id=topic, partitions=[wanted])],
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=INVENTED_EPOCH),
    )
    answer = peer.ask(message, 17)
    assert answer.error_code == ErrorCode.NONE
    (part,) = answer.responses[0].partitions
    assert isinstance(part, PartitionData)
    return part


def led(cluster: RunningCluster) -> tuple[Node, Node]:
    """Return leader and follower of a new topic with one acknowledged record."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC].result(30)
    cluster.wait_until_in_sync(TOPIC)
    leader_id = wait_for(lambda: cluster.leader(TOPIC, 0), "a leader")
    (follower,) = (node for node in cluster.brokers if node.id != leader_id)
    leader = cluster.broker(leader_id)
    assert produce(leader.port, b"acknowledged", 10_000) is ErrorCode.NONE
    return leader, follower


def test_a_client_that_poses_as_a_replica_has_nothing_acknowledged_nor_lost(cluster: RunningCluster) -> None:
    leader, follower = led(cluster)
    topic = topic_id(leader.port)
    outcome: list[ErrorCode] = []
    follower.pause()
    producing = Thread(target=lambda: outcome.append(produce(leader.port, b"on one disk", 1500)))
    producing.start()
    with closing(Peer(leader.port)) as stranger, closing(Peer(leader.port)) as consumer:
        deadline = time.monotonic() + 1.2
        answers = set()
        while time.monotonic() < deadline:
            for offset in (1, 2):
                answers.add(fetch(stranger, topic, follower.id, offset).error_code)
            time.sleep(0.01)
        watermark = fetch(consumer, topic, -1, 0).high_watermark
    producing.join()
    leader.kill9()
    follower.resume()
    wait_until(lambda: cluster.leader(TOPIC, 0) == follower.id, "the other replica leads")
    leader.restart()
    cluster.wait_until_in_sync(TOPIC)
    kept = {record.value for record in read_all(cluster.bootstrap, TOPIC)}
    acknowledged = {b"acknowledged"} | ({b"on one disk"} if outcome == [ErrorCode.NONE] else set())
    assert acknowledged <= kept, "an acknowledged record is lost"
    assert (answers, watermark) == ({ErrorCode.TOPIC_AUTHORIZATION_FAILED}, 1)
    assert outcome != [ErrorCode.NONE], "acknowledged, though only the leader has it"
