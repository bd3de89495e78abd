"""The page of a quorum's leader counts all partitions of the cluster, in turns that are not long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.metadata_quorum.metrics import quorum_families
from ottla.protocol.cluster.cluster_image import (
    NO_LEADER,
    BrokerState,
    ClusterImage,
    PartitionState,
    TopicState,
)
from ottla.protocol.exposition import Histogram, exposition
from tests.counted_calls import counted_calls

TOPICS, PARTITIONS = 3_000, 10

RAFT = SimpleNamespace(
    is_leader=True,
    term=3,
    leader_id=101,
    applied_index=7,
    commit_times=Histogram((1,)),
    formed=True,
    catching_up=False,
)


def _image() -> ClusterImage:
    image = ClusterImage()
    image.brokers[1] = BrokerState(1, 1, b"1" * 16, fenced=False)
    image.brokers[2] = BrokerState(2, 2, b"2" * 16, fenced=True)
    for number in range(TOPICS):
        partitions = {index: PartitionState((1, 2), (1,), leader=1) for index in range(PARTITIONS)}
        topic = TopicState(number.to_bytes(16, "big"), f"t-{number}", partitions)
        image.topics[topic.name] = image.topics_by_id[topic.id] = topic
    image.topics["t-0"].partitions[0] = PartitionState((1, 2), (), leader=NO_LEADER)
    image.topics["t-1"].partitions[0] = PartitionState((1, 2), (2,), leader=2)
    return image


def test_the_leader_counts_in_turns_that_are_not_long() -> None:
    turns: list[int] = []
    text = ""
    pieces = exposition(quorum_families(cast(Any, RAFT), _image(), None, {}))
    while True:
        with counted_calls() as calls:
            piece = next(pieces, None)
        if piece is None:
            break
        turns.append(calls.count)
        text += piece
    prefix = "kafka_controller_kafkacontroller_"
    for name, count in (
        ("globaltopiccount", TOPICS),
        ("globalpartitioncount", TOPICS * PARTITIONS),
        ("offlinepartitionscount", 1),
        ("preferredreplicaimbalancecount", 2),
        ("activebrokercount", 1),
        ("fencedbrokercount", 1),
    ):
        assert f"{prefix}{name} {count}\n" in text
    assert max(turns) < 10_000


def test_topics_go_while_they_are_counted() -> None:
    image = _image()
    for _ in exposition(quorum_families(cast(Any, RAFT), image, None, {})):
        image.topics.popitem()
