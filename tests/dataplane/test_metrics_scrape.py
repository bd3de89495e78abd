"""A scrape takes many turns of the loop: objects that vanish meanwhile do not break it, and no turn is long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.dataplane.groups.metrics import GroupMetrics
from ottla.dataplane.groups.offsets import CommittedOffset, OffsetStore
from ottla.dataplane.metrics import BrokerMetrics
from ottla.dataplane.replication.replicas.metrics import ReplicaMetrics
from ottla.dataplane.server import HandlerTable
from ottla.dataplane.server.authentication import AuthenticationCounts, AuthenticationSettings
from ottla.dataplane.server.metrics import ServerMetrics
from ottla.dataplane.server.request_times import RequestTimes
from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState, TopicState
from ottla.protocol.exposition import exposition
from tests.counted_calls import counted_calls

TOPICS, PARTITIONS, GROUPS = 1_000, 10, 2_000


class Held:
    """The replicas and groups of a broker, as metrics see them."""

    broker_id = 1
    loading = 0
    unwritable: tuple[()] = ()

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.partitions: dict[tuple[str, int], Any] = {}
        for number in range(TOPICS):
            state = PartitionState((1,), (1,), leader=1)
            topic = TopicState(
                number.to_bytes(16, "big"), f"t-{number}", dict.fromkeys(range(PARTITIONS), state)
            )
            self.image.topics[topic.name] = self.image.topics_by_id[topic.id] = topic
            for index in range(PARTITIONS):
                self.partitions[topic.name, index] = _partition(topic, index)
        offsets = OffsetStore()
        for number in range(GROUPS):
            for topic_number in range(10):
                offsets.put(f"g-{number}", (f"t-{topic_number}", 0), CommittedOffset(3, -1, "", 0))
        groups = {f"g-{number}": SimpleNamespace(members=[1]) for number in range(GROUPS)}
        self.shard = SimpleNamespace(groups=groups, offsets=offsets)

    def __iter__(self) -> Any:
        return iter(self.partitions.values())

    def holds(self, partition: Any) -> bool:
        return self.partitions.get((partition.topic, partition.index)) is partition

    def find(self, topic: str, index: int) -> Any:
        return self.partitions.get((topic, index))

    def shards(self) -> list[Any]:
        return [self.shard]

    def metrics(self) -> BrokerMetrics:
        replicas, groups = cast(Any, self), cast(Any, self)
        return BrokerMetrics((ReplicaMetrics(replicas, lambda: self.image), GroupMetrics(groups, replicas)))


def _partition(topic: TopicState, index: int) -> Any:
    log = SimpleNamespace(log_start_offset=0, failure=None, size=5, segment_list=[1], log_end_offset=5)
    traffic = SimpleNamespace(messages_in=1, bytes_in=1, bytes_out=1)
    return SimpleNamespace(
        topic=topic.name, topic_id=topic.id, index=index, leader=True, high_watermark=5, traffic=traffic,
        settings=SimpleNamespace(min_in_sync=1), log=log,
    )  # fmt: skip


def test_no_turn_of_a_scrape_is_long() -> None:
    turns: list[int] = []
    lags = 0
    pieces = exposition(Held().metrics().families())
    while True:
        with counted_calls() as calls:
            piece = next(pieces, None)
        if piece is None:
            break
        turns.append(calls.count)
        lags += piece.count("kafka_consumergroup_lag{")
    assert lags == GROUPS * 10
    assert max(turns) < 20_000


def test_logins_are_told_by_listener() -> None:
    server = SimpleNamespace(
        times=RequestTimes(),
        connections=(),
        authentication={"CLIENTS": AuthenticationSettings({}, counts=AuthenticationCounts(3, 2, 1))},
    )
    text = "".join(exposition(ServerMetrics(cast(Any, server), HandlerTable()).metric_families()))
    for name, count in (
        ("successful_authentication_total", 3),
        ("failed_authentication_total", 2),
        ("expired_connections_killed_count", 1),
    ):
        assert f'kafka_server_socketservermetrics_{name}{{listener="CLIENTS"}} {count}\n' in text


def test_what_is_gone_is_not_told_any_more() -> None:
    """A scrape of thousands of partitions takes many turns, in which topics are deleted."""
    held = Held()
    for piece in exposition(held.metrics().families()):
        assert "kafka_log_log_size{" not in piece or held.partitions
        if "kafka_topic_partition_current_offset{" in piece:
            for partition in held.partitions.values():
                partition.leader = None
            held.partitions.clear()
            held.image.topics_by_id.clear()
        else:
            assert "kafka_topic_partition_in_sync_replica{" not in piece
    assert not held.partitions


def test_counts_are_those_of_the_partitions() -> None:
    held = Held()
    of_t0 = held.image.topics["t-0"].partitions
    of_t0[0] = PartitionState((1, 2), (1,), leader=1)
    of_t0[1] = PartitionState((1, 2), (), leader=1)
    held.partitions["t-0", 2].leader = None
    held.partitions["t-0", 3].log.failure = OSError()
    text = "".join(exposition(held.metrics().families()))
    manager, traffic = "kafka_server_replicamanager_", "kafka_server_brokertopicmetrics_"
    for line in (
        f"{manager}leadercount {TOPICS * PARTITIONS - 1}",
        f"{manager}partitioncount {TOPICS * PARTITIONS}",
        f"{manager}underreplicatedpartitions 2",
        f"{manager}underminisrpartitioncount 1",
        f"{manager}offlinereplicacount 1",
        f'{traffic}messagesinpersec{{topic="t-0"}} {PARTITIONS}',
        'kafka_topic_partition_under_replicated_partition{topic="t-0",partition="0"} 1',
        'kafka_topic_partition_leader_is_preferred{topic="t-0",partition="1"} 1',
        'kafka_log_log_size{topic="t-0",partition="2"} 5',
    ):
        assert f"{line}\n" in text
    assert 'kafka_topic_partition_leader{topic="t-0",partition="2"}' not in text


def test_topics_and_groups_go_during_a_scrape() -> None:
    held = Held()
    for number, _ in enumerate(exposition(held.metrics().families())):
        if number % 3 == 0 and held.partitions:
            topic, _ = key = next(iter(held.partitions))
            del held.partitions[key]
            gone = held.image.topics.pop(topic, None)
            if gone is not None:
                del held.image.topics_by_id[gone.id]
            group, _ = held.shard.groups.popitem()
            for partition in held.shard.offsets.of_group(group):
                held.shard.offsets.remove(group, partition)
