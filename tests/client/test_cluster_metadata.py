"""The parts of answers that the client adopts, in any order of the brokers' answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.connections import metadata as module
from ottla.client.connections.metadata import BrokerAddress, ClusterMetadata, PartitionInfo
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.wire.codec import encode
from ottla.protocol.wire.primitives import MalformedMessage

ID, OTHER_ID = b"t" * 16, b"o" * 16


def answer(
    leaders: Sequence[tuple[int, int]],
    *,
    name: str = "t",
    topic_id: bytes = ID,
    brokers: Sequence[int] = (1, 2),
) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index, (leader, epoch) in enumerate(leaders)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=broker, host="localhost", port=broker) for broker in brokers],
        topics=[MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)],
    )


def take(metadata: ClusterMetadata, response: MetadataResponse, version: int = 13) -> int:
    return sum(metadata.read(encode(response, version), version))


def leaders(metadata: ClusterMetadata, name: str = "t") -> list[tuple[int, int]]:
    return [
        (partition.leader, partition.leader_epoch) for partition in metadata.topics[name].partitions.values()
    ]


told = st.one_of(
    st.tuples(
        st.just("answer"),
        st.lists(st.tuples(st.integers(1, 2), st.integers(-1, 3)), max_size=3),
        st.sampled_from([ID, OTHER_ID]),
        st.sampled_from([8, 9, 13]),
    ),
    st.tuples(st.just("learned"), st.integers(0, 2), st.integers(1, 3), st.integers(-1, 4)),
)


@given(st.lists(told, max_size=12))
def test_answers_that_are_read_say_what_decoded_ones_say(steps: list[tuple[object, ...]]) -> None:
    """This includes answers that mostly repeat earlier ones, with leaders named by other answers in between."""
    read, decoded = ClusterMetadata(), ClusterMetadata()
    for step in steps:
        match step:
            case ("answer", list(some), bytes(topic_id), int(version)):
                # Before version 10 there are no ids.
                response = answer(some, topic_id=topic_id if version >= 10 else bytes(16))
                if version < 8:
                    continue
                take(read, response, version)
                decoded.update(response)
            case (_, int(index), int(leader), int(epoch)):
                for metadata in (read, decoded):
                    metadata.learn_leader("t", index, leader, epoch)
        assert read.topics.keys() == decoded.topics.keys()
        for name, topic in read.topics.items():
            assert topic.info() == decoded.topics[name].info()
        assert read.brokers == decoded.brokers


def test_an_answer_of_a_broker_behind_the_others_is_no_news() -> None:
    metadata = ClusterMetadata()
    take(metadata, answer([(1, 5), (1, 5)]))
    take(metadata, answer([(2, 4), (2, 6)]))
    assert leaders(metadata) == [(1, 5), (2, 6)]


def test_partitions_of_which_a_broker_behind_the_others_has_yet_to_hear_stay() -> None:
    metadata = ClusterMetadata()
    take(metadata, answer([(1, 5), (1, 0), (1, 0)]))
    take(metadata, answer([(2, 6)]))
    assert leaders(metadata) == [(2, 6), (1, 0), (1, 0)]
    assert list(metadata.topics["t"].partitions) == [0, 1, 2]
    take(metadata, answer([(2, 0)], topic_id=OTHER_ID))
    assert leaders(metadata) == [(2, 0)]


def test_the_epochs_of_a_topic_that_was_made_anew_begin_again() -> None:
    metadata = ClusterMetadata()
    take(metadata, answer([(1, 5)]))
    take(metadata, answer([(2, 0)], topic_id=OTHER_ID))
    assert leaders(metadata) == [(2, 0)]


def test_a_leader_named_in_passing_outlives_the_same_answer_as_before() -> None:
    metadata = ClusterMetadata()
    take(metadata, answer([(1, 5), (1, 5)]))
    metadata.learn_leader("t", 1, 2, 6)
    take(metadata, answer([(1, 5), (1, 5)]))
    assert leaders(metadata) == [(1, 5), (2, 6)]


def test_one_whose_epoch_no_broker_tells_is_told_of_by_the_last_answer() -> None:
    metadata = ClusterMetadata()
    take(metadata, answer([(1, -1)]))
    metadata.learn_leader("t", 0, 2, 6)
    take(metadata, answer([(1, -1)]))
    assert leaders(metadata) == [(1, -1)]


def test_a_leader_of_which_nobody_knows_where_it_listens_is_not_learned() -> None:
    metadata = ClusterMetadata()
    take(metadata, answer([(1, 5)]))
    metadata.learn_leader("t", 0, 3, 6)
    assert leaders(metadata) == [(1, 5)]
    metadata.learn_broker(BrokerAddress(3, "localhost", 3))
    metadata.learn_leader("t", 0, 3, 6)
    assert leaders(metadata) == [(3, 6)]


def test_a_broker_named_in_passing_keeps_its_rack_while_it_is_where_it_was() -> None:
    """Connections are identified by the whole address: after a coordinator lookup there was a
    second connection to it.
    """
    metadata = ClusterMetadata()
    known = BrokerAddress(3, "localhost", 3, "r")
    metadata.learn_broker(known)
    metadata.learn_broker(BrokerAddress(3, "localhost", 3))
    assert metadata.brokers[3] == known
    metadata.learn_broker(BrokerAddress(3, "localhost", 4))
    assert metadata.brokers[3] == BrokerAddress(3, "localhost", 4)


def test_what_was_read_is_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer differs from all before in its epochs."""
    monkeypatch.setattr(module, "ALIKE_MAX", 10)
    metadata = ClusterMetadata()
    for epoch in range(100):
        take(metadata, answer([(1, epoch)] * 3))
    assert len(metadata._alike) <= 11
    assert leaders(metadata) == [(1, 99)] * 3


def test_topics_before_the_damage_are_taken_over() -> None:
    metadata = ClusterMetadata()
    response = answer([(1, 5)])
    response.topics += answer([(1, 5)], name="u").topics
    body = encode(response, 13)
    with pytest.raises(MalformedMessage):
        list(metadata.read(body[:-20], 13))
    assert list(metadata.topics) == ["t"]


def test_programs_get_partitions_with_their_numbers() -> None:
    metadata = ClusterMetadata()
    take(metadata, answer([(1, 5), (2, 6)]))
    info = metadata.topics["t"].info()
    assert info.partitions == {0: PartitionInfo(0, 1, 5), 1: PartitionInfo(1, 2, 6)}
