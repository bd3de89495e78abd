"""DescribeQuorum as clients see it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.server.handlers.quorum import QuorumHandlers
from ottla.protocol.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.quorum_description import (
    DescribeQuorumRequest,
    QuorumPartitionAsked,
    QuorumPartitionState,
    QuorumTopicAsked,
)

VOTERS = {101: ("127.0.0.1", 9093), 102: ("127.0.0.1", 9094)}


def ask(leader_id: int | None, topic: str = "__cluster_metadata", partition: int = 0) -> QuorumPartitionState:
    image = ClusterImage()
    image.offset = 17
    session: Any = SimpleNamespace(image=image, leader_id=leader_id, term=3, voters=VOTERS)
    asked = QuorumTopicAsked(topic_name=topic, partitions=[QuorumPartitionAsked(partition_index=partition)])
    response = QuorumHandlers(session).describe_quorum(cast(Any, None), DescribeQuorumRequest(topics=[asked]))
    assert {node.node_id: node.listeners[0].port for node in response.nodes} == {101: 9093, 102: 9094}
    return response.topics[0].partitions[0]


def test_the_leader_its_term_and_the_voters_are_told() -> None:
    state = ask(102)
    assert (state.leader_id, state.leader_epoch, state.high_watermark) == (102, 3, 17)
    assert {voter.replica_id: voter.log_end_offset for voter in state.current_voters} == {101: -1, 102: 17}


def test_without_a_leader_nobody_is_named() -> None:
    assert ask(None).leader_id == -1


@pytest.mark.parametrize(("topic", "partition"), [("orders", 0), ("__cluster_metadata", 1)])
def test_other_logs_are_unknown(topic: str, partition: int) -> None:
    assert ask(101, topic, partition).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
