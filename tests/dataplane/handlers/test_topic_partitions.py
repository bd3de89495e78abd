"""DescribeTopicPartitions: a client that follows the cursors sees every partition once, in order."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.handlers.describe_topic_partitions import DescribeTopicPartitionsHandlers
from ottla.dataplane.server import ClientRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from ottla.protocol.messages.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

from .test_metadata import Replies, StubQuorum

NAMES = ("a", "b", "c", "d")


def cluster(partitions: dict[str, int]) -> StubQuorum:
    stub = StubQuorum()
    for broker_id in (1, 2):
        stub.add_broker(broker_id)
    for name, count in partitions.items():
        stub.add_topic(name, name.encode().ljust(16), [[1, 2]] * count)
    return stub


def ask(stub: StubQuorum, message: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsHandlers(stub).describe(cast(ClientRequest, Replies(0)), message)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.integers(1, 7)),
    st.lists(st.sampled_from((*NAMES, "missing")), unique=True),
    st.integers(-1, 10),
)
def test_following_the_cursor_shows_everything_once(
    partitions: dict[str, int], wanted: list[str], limit: int
) -> None:
    stub = cluster(partitions)
    cursor: Cursor | None = None
    shown: list[tuple[str, int]] = []
    unknown: list[str] = []
    for _ in range(100):
        response = ask(
            stub,
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in wanted],
                response_partition_limit=limit,
                cursor=cursor,
            ),
        )
        page = [(t.name or "", p.partition_index) for t in response.topics for p in t.partitions]
        assert len(page) <= max(1, limit)
        shown += page
        unknown += [topic.name or "" for topic in response.topics if topic.error_code]
        cursor = response.next_cursor
        if cursor is None:
            break
    names = set(wanted) or set(partitions)
    assert shown == [(n, p) for n in sorted(names & set(partitions)) for p in range(partitions[n])]
    assert set(unknown) == names - set(partitions)


def test_a_topic_deleted_under_the_cursor_is_passed_over() -> None:
    stub = cluster({"a": 1, "c": 3})
    response = ask(stub, DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="b", partition_index=2)))
    assert [(t.name, len(t.partitions)) for t in response.topics] == [("c", 3)]


def test_replicas_that_could_lead_without_loss_are_named() -> None:
    stub = cluster({"a": 1})
    topic = stub.image.topics["a"]
    stub.image.apply(TopicRecord(topic_id=topic.id, name="a"))
    stub.image.apply(
        PartitionRecord(topic_id=topic.id, replicas=[1, 2, 3], isr=[1], elr=[2], last_known_elr=[3], leader=1)
    )
    (partition,) = ask(stub, DescribeTopicPartitionsRequest()).topics[0].partitions
    assert (partition.isr_nodes, partition.eligible_leader_replicas, partition.last_known_elr) == (
        [1],
        [2],
        [3],
    )
    assert partition.offline_replicas == [3]


def test_a_cursor_below_nothing_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        ask(
            cluster({"a": 1}),
            DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="a", partition_index=-1)),
        )
    assert refused.value.code == ErrorCode.INVALID_REQUEST
