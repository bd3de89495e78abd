"""Messages of transactions against bytes that the classes of Kafka 4.4.0 wrote, among them the versions that
kio does not have.
"""

from __future__ import annotations

import pytest

from ottla.protocol.messages.transaction_descriptions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.wire.codec import UnsupportedField, decode, encode
from ottla.protocol.wire.schema import ZERO_UUID, Message

TOPIC_ID = bytes(range(16))
TOPICS = [AddPartitionsToTxnTopic(name="orders", partitions=[0, 2])]


def offsets(name: str = "", topic_id: bytes = ZERO_UUID) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="group",
        producer_id=7000,
        producer_epoch=3,
        generation_id_or_member_epoch=9,
        member_id="m",
        group_instance_id="host",
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=2,
                        committed_offset=1234567890123,
                        committed_leader_epoch=4,
                        committed_metadata="kept",
                    ),
                    TxnOffsetCommitRequestPartition(
                        partition_index=3, committed_offset=5, committed_metadata=None
                    ),
                ],
            )
        ],
    )


def offsets_answer(name: str = "", topic_id: bytes = ZERO_UUID) -> TxnOffsetCommitResponse:
    partitions = [
        TxnOffsetCommitResponsePartition(partition_index=2),
        TxnOffsetCommitResponsePartition(partition_index=3, error_code=100),
    ]
    return TxnOffsetCommitResponse(
        throttle_time_ms=50,
        topics=[TxnOffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)],
    )


def markers(transaction_version: int) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=7000,
                producer_epoch=4,
                transaction_result=True,
                topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 2])],
                coordinator_epoch=11,
                transaction_version=transaction_version,
            )
        ]
    )


ONE_TRANSACTION = AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="tx",
    v3_and_below_producer_id=7000,
    v3_and_below_producer_epoch=3,
    v3_and_below_topics=TOPICS,
)
TWO_TRANSACTIONS = AddPartitionsToTxnRequest(
    transactions=[
        AddPartitionsToTxnTransaction(
            transactional_id="tx", producer_id=7000, producer_epoch=3, verify_only=True, topics=TOPICS
        ),
        AddPartitionsToTxnTransaction(transactional_id="ty", producer_id=7001),
    ]
)
ADDED = AddPartitionsToTxnResponse(
    results_by_transaction=[
        AddPartitionsToTxnResult(
            transactional_id="tx",
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name="orders",
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=2, partition_error_code=3)
                    ],
                )
            ],
        )
    ]
)
MARKED = WriteTxnMarkersResponse(
    markers=[
        WritableTxnMarkerResult(
            producer_id=7000,
            topics=[
                WritableTxnMarkerTopicResult(
                    name="orders",
                    partitions=[WritableTxnMarkerPartitionResult(partition_index=2, error_code=3)],
                )
            ],
        )
    ]
)
DESCRIBED = DescribeTransactionsResponse(
    throttle_time_ms=50,
    transaction_states=[
        DescribedTransaction(
            transactional_id="tx",
            transaction_state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=1_700_000_000_000,
            producer_id=7000,
            producer_epoch=3,
            topics=[DescribedTransactionTopic(topic="orders", partitions=[0, 2])],
        ),
        DescribedTransaction(error_code=105, transactional_id="ty"),
    ],
)
LISTED = ListTransactionsResponse(
    unknown_state_filters=["Gone"],
    transaction_states=[
        ListedTransaction(transactional_id="tx", producer_id=7000, transaction_state="Ongoing")
    ],
)


@pytest.mark.parametrize(
    ("message", "version", "written"),
    [
        (
            offsets(topic_id=TOPIC_ID),
            6,
            "0374780667726f75700000000000001b58000300000009026d05686f7374"
            "02000102030405060708090a0b0c0d0e0f03000000020000011f71fb04cb00000004056b65707400"
            "000000030000000000000005ffffffff00000000",
        ),
        (
            offsets(name="orders"),
            5,
            "0374780667726f75700000000000001b58000300000009026d05686f7374"
            "02076f726465727303000000020000011f71fb04cb00000004056b65707400"
            "000000030000000000000005ffffffff00000000",
        ),
        (
            offsets_answer(topic_id=TOPIC_ID),
            6,
            "0000003202000102030405060708090a0b0c0d0e0f0300000002000000000000030064000000",
        ),
        (
            offsets_answer(name="orders"),
            5,
            "0000003202076f72646572730300000002000000000000030064000000",
        ),
        (
            ONE_TRANSACTION,
            0,
            "000274780000000000001b5800030000000100066f7264657273000000020000000000000002",
        ),
        (ONE_TRANSACTION, 3, "0374780000000000001b58000302076f72646572730300000000000000020000"),
        (
            TWO_TRANSACTIONS,
            5,
            "030374780000000000001b5800030102076f72646572730300000000000000020000"
            "0374790000000000001b59000000010000",
        ),
        (EndTxnResponse(producer_id=7000, producer_epoch=4), 5, "0000000000000000000000001b58000400"),
        (EndTxnResponse(), 4, "00000000000000"),
        (
            markers(transaction_version=2),
            2,
            "020000000000001b5800040102076f7264657273030000000000000002000000000b020000",
        ),
        (
            markers(transaction_version=0),
            1,
            "020000000000001b5800040102076f7264657273030000000000000002000000000b0000",
        ),
        (
            ListTransactionsRequest(
                state_filters=["Ongoing"],
                producer_id_filters=[7000],
                duration_filter=60_000,
                transactional_id_pattern="t.*",
            ),
            2,
            "02084f6e676f696e67020000000000001b58000000000000ea6004742e2a00",
        ),
        (ADDED, 5, "0000000000000203747802076f72646572730200000002000300000000"),
        (MARKED, 2, "020000000000001b5802076f72646572730200000002000300000000"),
        (
            DESCRIBED,
            0,
            "00000032030000037478084f6e676f696e670000ea600000018bcfe568000000000000001b580003"
            "02076f726465727303000000000000000200000069037479010000000000000000000000000000000000"
            "0000000000010000",
        ),
        (LISTED, 2, "0000000000000205476f6e65020374780000000000001b58084f6e676f696e670000"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else None,
)
def test_bytes_are_those_of_kafka(message: Message, version: int, written: str) -> None:
    assert encode(message, version).hex() == written
    assert decode(type(message), bytes.fromhex(written), version) == message


def test_what_an_older_version_cannot_say_is_left_out_or_refused_as_in_kafka() -> None:
    assert encode(markers(transaction_version=2), 1) == encode(markers(transaction_version=0), 1)
    assert encode(EndTxnResponse(producer_id=7000, producer_epoch=4), 4) == encode(EndTxnResponse(), 4)
    both = offsets(name="orders", topic_id=TOPIC_ID)
    assert encode(both, 5) == encode(offsets(name="orders"), 5)
    assert encode(both, 6) == encode(offsets(topic_id=TOPIC_ID), 6)
    for message, version in ((TWO_TRANSACTIONS, 3), (ONE_TRANSACTION, 4), (offsets(name="orders"), 2)):
        with pytest.raises(UnsupportedField):
            encode(message, version)
