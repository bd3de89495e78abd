"""Messages of APIs that Kafka does not have, and an addition to one of Kafka's."""

from __future__ import annotations

import importlib
import pkgutil
from random import Random

import pytest
from kafka.protocol.producer import InitProducerIdResponse as KafkaPythonInitProducerIdResponse
from kio.schema.api_versions.v4.response import ApiVersionsResponse as KioApiVersionsResponse

from ottla.protocol import messages
from ottla.protocol.messages.aborts import AbortTransactionRequest, AbortTransactionResponse
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.cuts import (
    AppVersion,
    CutOffset,
    CutOffsetsTopic,
    CutTopic,
    FindCutRequest,
    FindCutResponse,
    ListAppVersionsRequest,
    ListAppVersionsResponse,
    ListCutOffsetsRequest,
    ListCutOffsetsResponse,
)
from ottla.protocol.messages.dead_letters import WriteDeadLettersRequest, WriteDeadLettersResponse
from ottla.protocol.messages.failback import (
    DescribedLineage,
    DescribeLineagesRequest,
    DescribeLineagesResponse,
    FailBackMirrorRequest,
    FailBackMirrorResponse,
    FailedBackPartition,
    FailedBackTopic,
    LineageTopic,
)
from ottla.protocol.messages.headers import decode_request_header, encode_request, response_header
from ottla.protocol.messages.mirror_records import MirrorOption, SourceEpoch
from ottla.protocol.messages.mirrors import (
    AlterMirrorRequest,
    AlterMirrorResponse,
    CreateMirrorRequest,
    CreateMirrorResponse,
    DescribedMirror,
    DescribedMirrorPartition,
    DescribedMirrorTopic,
    DescribeMirrorsRequest,
    DescribeMirrorsResponse,
    MirrorAction,
    SkippedTopic,
)
from ottla.protocol.messages.node_authentication import AuthenticateNodeRequest, AuthenticateNodeResponse
from ottla.protocol.messages.producers import InitProducerIdResponse
from ottla.protocol.messages.share_fetch import (
    AcknowledgedPartition,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeTopicResponse,
)
from ottla.protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse
from ottla.protocol.messages.shared_transactions import (
    BeginTransactionRequest,
    BeginTransactionResponse,
    CommittedWriter,
    CommitTransactionRequest,
    CommitTransactionResponse,
    JoinTransactionRequest,
    JoinTransactionResponse,
)
from ottla.protocol.messages.transactional_ids import (
    DeleteTransactionalIdRequest,
    DeleteTransactionalIdResponse,
)
from ottla.protocol.wire.codec import MalformedMessage, decode, decode_from, encode
from ottla.protocol.wire.schema import Message
from tests.protocol.kio_bridge import kio_decode

TOPICS = [CutTopic(topic_id=b"t" * 16, partitions=[0, 2]), CutTopic(topic_id=b"u" * 16)]
MESSAGES = [
    BeginTransactionRequest(transactional_id="copy", producer_id=7000, producer_epoch=3),
    BeginTransactionResponse(number=4, token="v1.Y29weQ.bWFj"),
    BeginTransactionResponse(error_code=90, error_message="an old epoch"),
    JoinTransactionRequest(token="v1.Y29weQ.bWFj"),
    JoinTransactionResponse(transactional_id="copy", producer_id=7001, producer_epoch=0, number=4),
    CommitTransactionRequest(
        transactional_id="copy",
        producer_id=7000,
        producer_epoch=3,
        committed=True,
        number=4,
        writers=[
            CommittedWriter(producer_id=7001, producer_epoch=0),
            CommittedWriter(producer_id=7002, producer_epoch=32766),
        ],
        app_version=2**62,
    ),
    CommitTransactionResponse(producer_id=7000, producer_epoch=4, was_committed=True, commit_index=2**40),
    FindCutRequest(topics=TOPICS),
    FindCutResponse(cut=2**40),
    ListAppVersionsRequest(cut=2**40, told_offset=7),
    ListAppVersionsResponse(
        is_whole=True, next_offset=8, versions=[AppVersion(transactional_id="copy", app_version=2**62)]
    ),
    ListCutOffsetsRequest(cut=2**40, topics=TOPICS),
    ListCutOffsetsResponse(
        topics=[
            CutOffsetsTopic(
                topic_id=b"t" * 16,
                partitions=[
                    CutOffset(partition_index=0, offset=2**50),
                    CutOffset(partition_index=2, error_code=6),
                ],
            )
        ]
    ),
    AbortTransactionRequest(transactional_id="copy"),
    AbortTransactionResponse(error_code=105, error_message="nobody uses it"),
    DeleteTransactionalIdRequest(transactional_id="copy"),
    DeleteTransactionalIdResponse(error_code=51, error_message="transaction 3 is open"),
    TxnShareAcknowledgeRequest(
        transactional_id="copy",
        producer_id=7000,
        producer_epoch=3,
        group_id="g",
        member_id="m",
        share_session_epoch=4,
        topics=[
            AcknowledgeTopic(
                topic_id=b"t" * 16,
                partitions=[
                    AcknowledgePartition(
                        partition_index=2,
                        acknowledgement_batches=[
                            AcknowledgementBatch(first_offset=5, last_offset=6, acknowledge_types=[1, 2])
                        ],
                    )
                ],
            )
        ],
    ),
    TxnShareAcknowledgeResponse(
        responses=[
            ShareAcknowledgeTopicResponse(
                topic_id=b"t" * 16,
                partitions=[
                    AcknowledgedPartition(partition_index=2, error_code=121, error_message="not held")
                ],
            )
        ]
    ),
    WriteDeadLettersRequest(
        transactional_id="copy",
        producer_id=7000,
        producer_epoch=3,
        topic_id=b"t" * 16,
        partition=2,
        records=b"a batch",
    ),
    WriteDeadLettersResponse(error_code=44, error_message="the topic allows no letters"),
    AuthenticateNodeRequest(auth_bytes=b"a claim"),
    AuthenticateNodeResponse(auth_bytes=b"a nonce"),
    CreateMirrorRequest(
        name="m",
        bootstrap_servers="there:9092",
        topics=".*",
        start=-1,
        options=[MirrorOption(name="security_protocol", value="SSL")],
    ),
    CreateMirrorResponse(error_code=42, error_message="a mirror needs a name", source_cluster_id="there"),
    AlterMirrorRequest(name="m", action=MirrorAction.ACCEPT_FAULTS, topics=["t"]),
    AlterMirrorResponse(error_code=91, error_message="there is no mirror"),
    DescribeMirrorsRequest(names=["m"]),
    DescribeMirrorsResponse(
        mirrors=[
            DescribedMirror(
                name="m",
                phase=1,
                is_told=True,
                skipped=[SkippedTopic(name="x", reason="it is there")],
                topics=[
                    DescribedMirrorTopic(
                        name="t",
                        topic_id=b"t" * 16,
                        partitions=[
                            DescribedMirrorPartition(
                                fault=1, fault_first=3, fault_end=2**40, lineage=[SourceEpoch(epoch=3)]
                            )
                        ],
                    )
                ],
            )
        ]
    ),
    DescribeLineagesRequest(topics=".*"),
    DescribeLineagesResponse(
        cluster_id="here",
        topics=[
            LineageTopic(
                name="t",
                topic_id=b"t" * 16,
                partition_count=1,
                is_copy=True,
                mirror="m",
                source_cluster_id="there",
                partitions=[
                    DescribedLineage(leader_epoch=4, epochs=[SourceEpoch(epoch=4)], promoted_offset=2**40)
                ],
            )
        ],
    ),
    FailBackMirrorRequest(name="m", bootstrap_servers="there:9092", topics=".*", discards=True),
    FailBackMirrorResponse(
        error_code=44,
        error_message="records would be lost",
        topics=[FailedBackTopic(name="t", partitions=[FailedBackPartition(common_offset=3, lost=2**40)])],
    ),
]


FIRST_OF_OURS = 20000


def named(message: object) -> str:
    return type(message).__name__


def test_every_request_and_response_of_ours_is_among_the_messages() -> None:
    ours = {
        cls
        for found in pkgutil.iter_modules(messages.__path__)
        for cls in vars(importlib.import_module(f"{messages.__name__}.{found.name}")).values()
        if isinstance(cls, type) and issubclass(cls, Message) and hasattr(cls, "schema")
        if cls.schema.api_key >= FIRST_OF_OURS
    }
    assert len(ours) > 20
    missing = sorted(cls.__name__ for cls in ours - {type(message) for message in MESSAGES})
    assert not missing, "add one of each to MESSAGES"


@pytest.mark.parametrize("message", MESSAGES, ids=named)
def test_what_is_written_is_read(message: Message) -> None:
    written = encode(message, 0)
    assert decode_from(type(message), memoryview(written), 0) == (message, len(written))
    for end in range(len(written)):
        with pytest.raises(MalformedMessage):
            decode(type(message), written[:end], 0)


@pytest.mark.parametrize("message", MESSAGES, ids=named)
def test_what_is_damaged_is_malformed_or_a_message(message: Message) -> None:
    for seed in range(40):
        rng = Random(seed)
        damaged = bytearray(encode(message, 0))
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            decode(type(message), memoryview(damaged), 0)
        except MalformedMessage:
            pass
        except Exception as error:
            error.add_note(f"seed {seed}: {damaged.hex()}")
            raise


def test_bytes_do_not_change() -> None:
    """Clients of other versions and languages depend on them."""
    assert {named(message): encode(message, 0).hex() for message in MESSAGES[5:7]} == {
        "CommitTransactionRequest": "05636f70790000000000001b58000301000000040300000000"
        "00001b59000000"
        "0000000000001b5a7ffe00400000000000000000",
        "CommitTransactionResponse": "0000000000000000001b58000401000001000000000000",
    }
    assert encode(FindCutRequest(topics=TOPICS), 0).hex() == (
        f"03{b't'.hex() * 16}03000000000000000200{b'u'.hex() * 16}010000"
    )


@pytest.mark.parametrize("message", MESSAGES, ids=named)
def test_headers_are_flexible(message: Message) -> None:
    assert message.api_key >= FIRST_OF_OURS
    assert response_header(message.api_key, 0, 7) == b"\0\0\0\x07\0"
    if named(message).endswith("Request"):
        frame = memoryview(encode_request(message, 0, 7, "client"))[4:]
        header, body = decode_request_header(frame)
        assert (header.api_key, header.client_id) == (message.api_key, "client")
        assert decode(type(message), frame, 0, body) == message


def test_the_application_version_is_a_tag_that_others_pass_over() -> None:
    with_version = InitProducerIdResponse(producer_id=7000, producer_epoch=3, app_version=12)
    without = InitProducerIdResponse(producer_id=7000, producer_epoch=3)
    for version in range(2):
        assert encode(with_version, version) == encode(without, version)
    for version in range(2, 6):
        assert encode(without, version).hex() == "0000000000000000000000001b58000300"
        written = encode(with_version, version)
        assert written.hex() == "0000000000000000000000001b58000301904e08000000000000000c"
        assert decode(InitProducerIdResponse, written, version) == with_version
    theirs = KafkaPythonInitProducerIdResponse.decode(encode(with_version, 4), version=4)
    assert (theirs.producer_id, theirs.producer_epoch) == (7000, 3)


def test_other_clients_read_a_list_of_apis_that_has_ours() -> None:
    message = ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, max_version=1) for key in (0, 18, *range(20000, 20012))]
    )
    decoded = kio_decode(KioApiVersionsResponse, encode(message, 4))
    assert [api.api_key for api in decoded.api_keys][-1] == 20011
