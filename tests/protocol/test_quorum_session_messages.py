"""Messages between brokers and quorum nodes: additions must not disturb nodes that do not know them."""

from __future__ import annotations

import pytest

from ottla.protocol.messages.app_version_questions import (
    AppVersionsTold,
    AppVersionTold,
    AskAppVersions,
)
from ottla.protocol.messages.quorum_session import (
    LeaderChanged,
    PartitionProgress,
    QuorumStatus,
    ReplicaStanding,
    SessionHeartbeat,
    decode_session_message,
    encode_session_message,
)
from ottla.protocol.messages.transaction_questions import (
    AskCut,
    AskTransactionIds,
    AskTransactions,
    CutTold,
    TransactionAnswer,
    TransactionIdsTold,
    TransactionIdTold,
    TransactionQuestion,
    TransactionsTold,
    TransactionTold,
    WriterTold,
)
from ottla.protocol.messages.transaction_records import WriterPartitions
from ottla.protocol.wire.codec import decode
from ottla.protocol.wire.schema import Message, array, boolean, data, int32, int64

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
    """The first version of a heartbeat, before it could ask anything."""

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
    asking.question, asking.number, asking.answered, asking.told_offset = question, number, answered, number
    payload = encode_session_message(asking)
    assert decode_session_message(payload) == asking
    first = decode(FirstHeartbeat, payload, 0, 1)
    for name in FirstHeartbeat.__annotations__:
        assert getattr(first, name) == getattr(HEARTBEAT, name)


def test_the_heartbeat_of_a_broker_that_knows_no_answers_asks_for_none() -> None:
    heartbeat = decode_session_message(encode_session_message(HEARTBEAT))
    assert isinstance(heartbeat, SessionHeartbeat)
    assert (heartbeat.number, heartbeat.answered, heartbeat.told_offset) == (0, -1, -1)


@data()
class FirstLeaderChanged(Message):
    """The first announcement of a leader, before there were questions about transactions."""

    term: int = int64(about="")
    leader_id: int = int32(default=-1, about="")


@pytest.mark.parametrize("knows", [False, True])
def test_a_broker_that_asks_nothing_passes_over_what_may_be_asked(knows: bool) -> None:
    said = LeaderChanged(
        term=4, leader_id=102, knows_transactions=knows, knows_app_versions=knows, takes_pieces=knows
    )
    encoded = encode_session_message(said)
    assert decode_session_message(encoded) == said
    assert decode(FirstLeaderChanged, encoded, 0, 1) == FirstLeaderChanged(term=4, leader_id=102)


def test_a_node_of_an_earlier_version_cannot_be_asked() -> None:
    before = encode_session_message(LeaderChanged(term=4, leader_id=102))
    assert decode_session_message(before) == LeaderChanged(
        term=4, leader_id=102, knows_transactions=False, knows_app_versions=False, takes_pieces=False
    )


PLACES = [WriterPartitions(topic_id=b"t" * 16, partitions=[0, 7])]


@pytest.mark.parametrize(
    "message",
    [
        AskCut(question=2**40, topics=PLACES),
        AskAppVersions(question=2, listing=1, position=3, cut=2**40, told_offset=5),
        AppVersionsTold(
            question=2,
            position=4,
            is_whole=True,
            next_offset=6,
            versions=[AppVersionTold(transactional_id="a", app_version=2**40)],
        ),
        CutTold(question=1, commit_index=2**50),
        AskTransactions(question=2, transactional_ids=["a", "b"], number=3, writers_known=4),
        TransactionsTold(
            question=2,
            answered=1,
            transactions=[
                TransactionTold(
                    transactional_id="a",
                    producer_id=2**60,
                    producer_epoch=7,
                    phase=2,
                    timeout_ms=60_000,
                    started_ms=1_700_000_000_000,
                    number=3,
                    app_version=9,
                    commit_index=8,
                    writers=[WriterTold(producer_id=5, producer_epoch=1, topics=PLACES)],
                    first_writer=4,
                    more_writers=True,
                )
            ],
        ),
        AskTransactionIds(
            question=9, listing=8, position=1000, phases=[1], producer_ids=[2**40], started_before_ms=5
        ),
        TransactionIdsTold(
            question=9,
            position=2000,
            transactions=[TransactionIdTold(transactional_id="a", producer_id=3, phase=1)],
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_questions_and_answers_survive_the_channel(message: TransactionQuestion | TransactionAnswer) -> None:
    assert decode_session_message(encode_session_message(message)) == message
