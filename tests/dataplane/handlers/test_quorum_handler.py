"""DescribeQuorum as clients see it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.handlers.describe_quorum import DescribeQuorumHandlers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.quorum_description import (
    DescribeQuorumRequest,
    QuorumPartitionAsked,
    QuorumPartitionState,
    QuorumTopicAsked,
    ReplicaState,
)
from ottla.protocol.messages.quorum_session import QuorumStatus, ReplicaStanding
from ottla.protocol.wire.codec import decode, encode

VOTERS = {101: ("127.0.0.1", 9093), 102: ("127.0.0.1", 9094)}
STATUS = QuorumStatus(
    leader_id=101,
    term=4,
    high_watermark=20,
    voters=[
        ReplicaStanding(node_id=101, log_end_offset=21, heard_at=5000, caught_up_at=5000),
        ReplicaStanding(node_id=102, log_end_offset=20, heard_at=4990, caught_up_at=4980),
    ],
    observers=[ReplicaStanding(node_id=1, log_end_offset=19, heard_at=4900, caught_up_at=4000)],
)


def ask(
    status: QuorumStatus | None,
    topic: str = "__cluster_metadata",
    partition: int = 0,
    leader_id: int | None = 102,
    history_lost: str = "",
) -> QuorumPartitionState:
    async def quorum_status(timeout_s: float) -> QuorumStatus | None:
        return status

    session: Any = SimpleNamespace(
        quorum_status=quorum_status, leader_id=leader_id, term=3, voters=VOTERS, history_lost=history_lost
    )
    asked = QuorumTopicAsked(topic_name=topic, partitions=[QuorumPartitionAsked(partition_index=partition)])
    request = DescribeQuorumRequest(topics=[asked])
    response = asyncio.run(DescribeQuorumHandlers(session).describe_quorum(cast(Any, None), request))
    assert {node.node_id: node.listeners[0].port for node in response.nodes} == {101: 9093, 102: 9094}
    return response.topics[0].partitions[0]


def test_what_the_leader_says_is_told() -> None:
    state = ask(STATUS)
    assert state.error_code == ErrorCode.NONE
    assert (state.leader_id, state.leader_epoch, state.high_watermark) == (101, 4, 20)
    assert state.current_voters == [
        ReplicaState(
            replica_id=101, log_end_offset=21, last_fetch_timestamp=5000, last_caught_up_timestamp=5000
        ),
        ReplicaState(
            replica_id=102, log_end_offset=20, last_fetch_timestamp=4990, last_caught_up_timestamp=4980
        ),
    ]
    assert state.observers == [
        ReplicaState(
            replica_id=1, log_end_offset=19, last_fetch_timestamp=4900, last_caught_up_timestamp=4000
        )
    ]


def test_a_broker_that_does_not_follow_the_quorum_says_why() -> None:
    state = ask(STATUS, leader_id=None, history_lost="the metadata quorum has lost metadata")
    assert state.error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert state.error_message == "the metadata quorum has lost metadata"
    assert [voter.log_end_offset for voter in state.current_voters] == [-1, -1]


def test_voters_that_do_not_vote_are_told_in_a_field_of_our_own() -> None:
    state = ReplicaState(replica_id=101, abstains=True)
    assert decode(ReplicaState, encode(state, 2), 2).abstains
    assert not decode(ReplicaState, encode(ReplicaState(replica_id=101), 0), 0).abstains


@pytest.mark.parametrize(("leader_id", "shown"), [(102, 102), (None, -1)])
def test_without_an_answer_no_offset_is_made_up(leader_id: int | None, shown: int) -> None:
    state = ask(None, leader_id=leader_id)
    assert state.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "no leader of the metadata quorum has answered" in (state.error_message or "")
    assert (state.leader_id, state.leader_epoch, state.high_watermark) == (shown, 3, -1)
    assert {voter.replica_id: voter.log_end_offset for voter in state.current_voters} == {101: -1, 102: -1}


@pytest.mark.parametrize(("topic", "partition"), [("orders", 0), ("__cluster_metadata", 1)])
def test_other_logs_are_unknown(topic: str, partition: int) -> None:
    assert ask(STATUS, topic, partition).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
