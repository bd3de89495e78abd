"""What brokers and quorum nodes say to each other: additions must not disturb nodes that do not know them."""

from __future__ import annotations

import pytest

from ottla.protocol.codec import decode
from ottla.protocol.messages.quorum_session import (
    PartitionProgress,
    QuorumStatus,
    ReplicaStanding,
    SessionHeartbeat,
    decode_session_message,
    encode_session_message,
)
from ottla.protocol.schema import Message, array, boolean, data, int32, int64

HEARTBEAT = SessionHeartbeat(
    broker_epoch=7,
    metadata_offset=100,
    loop_age_ms=2,
    heartbeat_port=4000,
    wants_unfence=True,
    progress=[PartitionProgress(topic_id=b"t" * 16, partition=1, leader_epoch=2, log_end_offset=3)],
)


@data()
class FirstHeartbeat(Message):
    """A heartbeat as it was before it could ask anything."""

    broker_epoch: int = int64(default=-1, about="")
    metadata_offset: int = int64(about="")
    loop_age_ms: int = int32(about="")
    heartbeat_port: int = int32(about="")
    wants_unfence: bool = boolean(about="")
    wants_shutdown: bool = boolean(about="")
    progress: list[PartitionProgress] = array(PartitionProgress, about="")


def test_a_status_survives_the_channel() -> None:
    status = QuorumStatus(
        question=2**40,
        leader_id=102,
        term=9,
        high_watermark=1000,
        voters=[
            ReplicaStanding(node_id=101),
            ReplicaStanding(node_id=102, log_end_offset=1001, heard_at=1_700_000_000_000, caught_up_at=5),
        ],
        observers=[ReplicaStanding(node_id=1, log_end_offset=990, heard_at=1, caught_up_at=-1)],
    )
    assert decode_session_message(encode_session_message(status)) == status


@pytest.mark.parametrize(("number", "answered"), [(0, -1), (1, 0), (2**40, 2**40 - 1)])
@pytest.mark.parametrize("question", [0, 1, 2**40])
def test_a_node_that_knows_no_questions_and_no_answers_reads_the_heartbeat(
    question: int, number: int, answered: int
) -> None:
    asking = decode_session_message(encode_session_message(HEARTBEAT))
    assert isinstance(asking, SessionHeartbeat)
    asking.question, asking.number, asking.answered = question, number, answered
    payload = encode_session_message(asking)
    assert decode_session_message(payload) == asking
    first = decode(FirstHeartbeat, payload, 0, 1)
    for name in FirstHeartbeat.__annotations__:
        assert getattr(first, name) == getattr(HEARTBEAT, name)


def test_the_heartbeat_of_a_broker_that_knows_no_answers_asks_for_none() -> None:
    heartbeat = decode_session_message(encode_session_message(HEARTBEAT))
    assert isinstance(heartbeat, SessionHeartbeat)
    assert (heartbeat.number, heartbeat.answered) == (0, -1)
