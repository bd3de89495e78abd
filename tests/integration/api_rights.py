"""A request of every API, with all the rights that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.protocol.cluster.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import (
    consumer_group_description,
    share_fetch,
    share_group_description,
    share_group_offsets,
    topic_partitions,
)
from ottla.protocol.messages.aborts import AbortTransactionRequest
from ottla.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.broker_removal import UnregisterBrokerRequest
from ottla.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    DescribeClientQuotasRequest,
    EntityData,
)
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    ReplaceConfigsResource,
)
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.cuts import (
    CutTopic,
    FindCutRequest,
    ListAppVersionsRequest,
    ListCutOffsetsRequest,
)
from ottla.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.failback import DescribeLineagesRequest, FailBackMirrorRequest
from ottla.protocol.messages.features import UpdateFeaturesRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from ottla.protocol.messages.leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.mirrors import (
    AlterMirrorRequest,
    CreateMirrorRequest,
    DescribeMirrorsRequest,
    MirrorAction,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.messages.quorum_description import (
    DescribeQuorumRequest,
    QuorumPartitionAsked,
    QuorumTopicAsked,
)
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    CredentialDeletion,
    DescribeUserScramCredentialsRequest,
)
from ottla.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from ottla.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from ottla.protocol.messages.shared_transactions import (
    BeginTransactionRequest,
    CommitTransactionRequest,
    JoinTransactionRequest,
)
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.messages.transaction_descriptions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from ottla.protocol.messages.transactional_ids import DeleteTransactionalIdRequest
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.records.record import encode_batch
from ottla.protocol.wire.schema import Message

TOPIC, GROUP, SHARE_GROUP, TXN = "secret", "readers", "sharers", "writer"
MISSING = "nothin"
Op, Kind = AclOperation, AclResourceType


class Right(NamedTuple):
    """An operation on a resource, and the error for clients without the right to it."""

    kind: AclResourceType
    name: str
    operation: AclOperation
    code: ErrorCode


def topic(operation: AclOperation, name: str = TOPIC) -> Right:
    return Right(Kind.TOPIC, name, operation, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def group(operation: AclOperation, name: str = GROUP) -> Right:
    return Right(Kind.GROUP, name, operation, ErrorCode.GROUP_AUTHORIZATION_FAILED)


def share_group(operation: AclOperation) -> Right:
    return group(operation, SHARE_GROUP)


def cluster(operation: AclOperation) -> Right:
    return Right(Kind.CLUSTER, CLUSTER_NAME, operation, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def txn(operation: AclOperation) -> Right:
    return Right(Kind.TRANSACTIONAL_ID, TXN, operation, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


@dataclass
class Row:
    """A request, and all the rights that it needs. The request is made for a topic name."""

    request: Callable[[str, bytes], Message]
    version: int
    rights: Sequence[Right]
    leaks: bool = False
    """True if topics are named by id, whose existence is no secret."""

    @property
    def name(self) -> str:
        made = self.request(TOPIC, bytes(16))
        return f"{type(made).__name__}-{self.version}"


BATCH = encode_batch([(None, b"v", 0)])
IN_TRANSACTION = encode_batch(
    [(None, b"v", 0)], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
)


def produce(version: int, transactional_id: str | None = None) -> Callable[[str, bytes], Message]:
    def made(name: str, topic_id: bytes) -> Message:
        batch = BATCH if transactional_id is None else IN_TRANSACTION
        data = [PartitionProduceData(index=0, records=memoryview(batch))]
        named = (
            TopicProduceData(topic_id=topic_id, partition_data=data)
            if version >= 13
            else TopicProduceData(name=name, partition_data=data)
        )
        return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=5000, topic_data=[named])

    return made


def fetch(name: str, topic_id: bytes) -> Message:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[part])],
    )


def offset_commit(version: int) -> Callable[[str, bytes], Message]:
    def made(name: str, topic_id: bytes) -> Message:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        named = (
            OffsetCommitRequestTopic(topic_id=topic_id, partitions=[part])
            if version >= 10
            else OffsetCommitRequestTopic(name=name, partitions=[part])
        )
        return OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[named])

    return made


def offset_fetch(version: int) -> Callable[[str, bytes], Message]:
    def made(name: str, topic_id: bytes) -> Message:
        if version < 8:
            return OffsetFetchRequest(
                group_id=GROUP, topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0])]
            )
        named = (
            OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
            if version >= 10
            else OffsetFetchRequestTopics(name=name, partition_indexes=[0])
        )
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[named])])

    return made


def take_records(_name: str, topic_id: bytes) -> Message:
    part = share_fetch.FetchPartition(partition_index=0)
    return share_fetch.ShareFetchRequest(
        group_id=SHARE_GROUP,
        member_id="m",
        max_records=1,
        topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=[part])],
    )


def alter_share_offsets(name: str, _topic_id: bytes) -> Message:
    offset = share_group_offsets.NewOffset(partition_index=0, start_offset=0)
    return share_group_offsets.AlterShareGroupOffsetsRequest(
        group_id=SHARE_GROUP,
        topics=[share_group_offsets.NewTopicOffsets(topic_name=name, partitions=[offset])],
    )


def metadata(by_id: bool) -> Callable[[str, bytes], Message]:
    return lambda name, topic_id: MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=topic_id) if by_id else MetadataRequestTopic(name=name)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def delete_topics(by_id: bool) -> Callable[[str, bytes], Message]:
    return lambda name, topic_id: DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=topic_id) if by_id else DeleteTopicState(name=name)],
        timeout_ms=0,
    )


ROWS = [
    Row(produce(9), 9, [topic(Op.WRITE)]),
    Row(produce(13), 13, [topic(Op.WRITE)], leaks=True),
    Row(produce(9, TXN), 9, [txn(Op.WRITE), topic(Op.WRITE)]),
    Row(fetch, 12, [topic(Op.READ)]),
    Row(fetch, 17, [topic(Op.READ)], leaks=True),
    Row(
        lambda name, _: ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ],
        ),
        7,
        [topic(Op.DESCRIBE)],
    ),
    Row(metadata(False), 12, [topic(Op.DESCRIBE)]),
    Row(metadata(True), 12, [topic(Op.DESCRIBE)], leaks=True),
    Row(offset_commit(8), 8, [group(Op.READ), topic(Op.READ)]),
    Row(offset_commit(10), 10, [group(Op.READ), topic(Op.READ)], leaks=True),
    Row(offset_fetch(5), 5, [group(Op.DESCRIBE), topic(Op.DESCRIBE)]),
    Row(offset_fetch(8), 8, [group(Op.DESCRIBE), topic(Op.DESCRIBE)]),
    Row(offset_fetch(10), 10, [group(Op.DESCRIBE), topic(Op.DESCRIBE)], leaks=True),
    Row(lambda *_: FindCoordinatorRequest(key=GROUP), 3, [group(Op.DESCRIBE)]),
    Row(lambda *_: FindCoordinatorRequest(key_type=1, key=TXN), 3, [txn(Op.DESCRIBE)]),
    Row(lambda *_: FindCoordinatorRequest(coordinator_keys=[GROUP]), 4, [group(Op.DESCRIBE)]),
    Row(
        lambda *_: JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=6000,
            rebalance_timeout_ms=6000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        7,
        [group(Op.READ)],
    ),
    Row(lambda *_: SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m"), 3, [group(Op.READ)]),
    Row(lambda *_: HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), 3, [group(Op.READ)]),
    Row(lambda *_: LeaveGroupRequest(group_id=GROUP, member_id="m"), 2, [group(Op.READ)]),
    Row(lambda *_: DescribeGroupsRequest(groups=[GROUP]), 5, [group(Op.DESCRIBE)]),
    Row(lambda *_: DeleteGroupsRequest(groups_names=[GROUP]), 2, [group(Op.DELETE)]),
    Row(
        lambda *_: CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)], validate_only=True
        ),
        7,
        [topic(Op.CREATE, "new"), topic(Op.DESCRIBE_CONFIGS, "new")],
    ),
    Row(delete_topics(False), 6, [topic(Op.DELETE)]),
    Row(delete_topics(True), 6, [topic(Op.DELETE)], leaks=True),
    Row(
        lambda name, _: DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]
                )
            ],
            timeout_ms=1000,
        ),
        2,
        [topic(Op.DELETE)],
    ),
    Row(
        lambda *_: InitProducerIdRequest(
            transactional_id=TXN, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        ),
        4,
        [txn(Op.WRITE)],
    ),
    Row(
        lambda *_: InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        ),
        4,
        [cluster(Op.IDEMPOTENT_WRITE)],
    ),
    Row(
        lambda name, _: OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
                    ],
                )
            ],
        ),
        4,
        [topic(Op.DESCRIBE)],
    ),
    Row(
        lambda name, _: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TXN,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
        ),
        3,
        [txn(Op.WRITE), topic(Op.WRITE)],
    ),
    Row(
        lambda name, _: AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=TXN,
                    verify_only=True,
                    topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
                )
            ]
        ),
        4,
        [cluster(Op.CLUSTER_ACTION)],
    ),
    Row(
        lambda *_: AddOffsetsToTxnRequest(transactional_id=TXN, group_id=GROUP),
        3,
        [txn(Op.WRITE), group(Op.READ)],
    ),
    Row(lambda *_: EndTxnRequest(transactional_id=TXN), 3, [txn(Op.WRITE)]),
    Row(
        lambda name, _: TxnOffsetCommitRequest(
            transactional_id=TXN,
            group_id=GROUP,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0)],
                )
            ],
        ),
        3,
        [txn(Op.WRITE), group(Op.READ), topic(Op.READ)],
    ),
    Row(
        lambda *_: DescribeAclsRequest(
            resource_type_filter=1,
            pattern_type_filter=1,
            operation=1,
            permission_type=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
        ),
        3,
        [cluster(Op.DESCRIBE)],
    ),
    Row(
        lambda *_: CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2,
                    resource_name="x",
                    principal="User:x",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        3,
        [cluster(Op.ALTER)],
    ),
    Row(
        lambda *_: DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter="x",
                    pattern_type_filter=3,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        3,
        [cluster(Op.ALTER)],
    ),
    *(
        Row(
            lambda *_, kind=kind, name=name: DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
                ]
            ),
            4,
            [right],
        )
        for kind, name, right in (
            (2, TOPIC, topic(Op.DESCRIBE_CONFIGS)),
            (4, "", cluster(Op.DESCRIBE_CONFIGS)),
            (32, GROUP, group(Op.DESCRIBE_CONFIGS)),
        )
    ),
    *(
        Row(
            lambda *_, kind=kind, name=name: IncrementalAlterConfigsRequest(
                resources=[AlterConfigsResource(resource_type=kind, resource_name=name)], validate_only=True
            ),
            1,
            [right],
        )
        for kind, name, right in (
            (2, TOPIC, topic(Op.ALTER_CONFIGS)),
            (4, "", cluster(Op.ALTER_CONFIGS)),
            (32, GROUP, group(Op.ALTER_CONFIGS)),
        )
    ),
    Row(
        lambda *_: AlterConfigsRequest(
            resources=[ReplaceConfigsResource(resource_type=2, resource_name=TOPIC)], validate_only=True
        ),
        2,
        [topic(Op.ALTER_CONFIGS)],
    ),
    Row(
        lambda name, _: AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path="/nowhere", topics=[AlterReplicaLogDirTopic(name=name, partitions=[0])]
                )
            ]
        ),
        2,
        [cluster(Op.ALTER)],
    ),
    Row(lambda *_: DescribeLogDirsRequest(topics=None), 4, [cluster(Op.DESCRIBE)]),
    Row(
        lambda name, _: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=2, assignments=None)], validate_only=True
        ),
        3,
        [topic(Op.ALTER)],
    ),
    Row(
        lambda *_: ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])], timeout_ms=5000
        ),
        2,
        [cluster(Op.ALTER)],
    ),
    Row(lambda *_: AlterPartitionReassignmentsRequest(timeout_ms=5000), 0, [cluster(Op.ALTER)]),
    Row(
        lambda *_: ListPartitionReassignmentsRequest(timeout_ms=5000, topics=None), 0, [cluster(Op.DESCRIBE)]
    ),
    Row(
        lambda name, _: OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        ),
        0,
        [group(Op.DELETE), topic(Op.READ)],
    ),
    Row(lambda *_: DescribeClientQuotasRequest(), 1, [cluster(Op.DESCRIBE_CONFIGS)]),
    Row(
        lambda *_: AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntryData(entity=[EntityData(entity_type="user", entity_name="u")])
            ],
            validate_only=True,
        ),
        1,
        [cluster(Op.ALTER_CONFIGS)],
    ),
    Row(
        lambda *_: DescribeQuorumRequest(
            topics=[
                QuorumTopicAsked(
                    topic_name="__cluster_metadata", partitions=[QuorumPartitionAsked(partition_index=0)]
                )
            ]
        ),
        1,
        [cluster(Op.DESCRIBE)],
    ),
    Row(lambda *_: DescribeUserScramCredentialsRequest(users=None), 0, [cluster(Op.DESCRIBE)]),
    Row(
        lambda *_: AlterUserScramCredentialsRequest(
            deletions=[CredentialDeletion(name="nobody", mechanism=1)]
        ),
        0,
        [cluster(Op.ALTER)],
    ),
    Row(lambda *_: UpdateFeaturesRequest(timeout_ms=5000, validate_only=True), 1, [cluster(Op.ALTER)]),
    Row(
        lambda name, _: DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0])]),
        0,
        [topic(Op.READ)],
    ),
    Row(lambda *_: UnregisterBrokerRequest(broker_id=77), 0, [cluster(Op.ALTER)]),
    Row(lambda *_: DescribeTransactionsRequest(transactional_ids=[TXN]), 0, [txn(Op.DESCRIBE)]),
    Row(
        lambda name, _: ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="m",
            rebalance_timeout_ms=5000,
            subscribed_topic_names=[name],
            topic_partitions=[],
        ),
        1,
        [group(Op.READ), topic(Op.DESCRIBE)],
    ),
    Row(
        lambda *_: consumer_group_description.ConsumerGroupDescribeRequest(group_ids=[GROUP]),
        0,
        [group(Op.DESCRIBE)],
    ),
    Row(
        lambda name, _: ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id="m", subscribed_topic_names=[name]
        ),
        1,
        [group(Op.READ), topic(Op.DESCRIBE)],
    ),
    Row(
        lambda *_: share_group_description.ShareGroupDescribeRequest(group_ids=[SHARE_GROUP]),
        1,
        [share_group(Op.DESCRIBE)],
    ),
    Row(take_records, 2, [share_group(Op.READ), topic(Op.READ)], leaks=True),
    Row(
        lambda name, _: share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=[
                share_group_offsets.WantedGroup(
                    group_id=SHARE_GROUP,
                    topics=[share_group_offsets.WantedTopic(topic_name=name, partitions=[0])],
                )
            ]
        ),
        1,
        [share_group(Op.DESCRIBE), topic(Op.DESCRIBE)],
    ),
    Row(alter_share_offsets, 0, [share_group(Op.READ), topic(Op.READ)]),
    Row(
        lambda name, _: share_group_offsets.DeleteShareGroupOffsetsRequest(
            group_id=SHARE_GROUP, topics=[share_group_offsets.UnwantedTopic(topic_name=name)]
        ),
        0,
        [share_group(Op.DELETE), topic(Op.READ)],
    ),
    Row(lambda *_: ListConfigResourcesRequest(), 1, [cluster(Op.DESCRIBE_CONFIGS)]),
    Row(
        lambda name, _: topic_partitions.DescribeTopicPartitionsRequest(
            topics=[topic_partitions.TopicRequest(name=name)], response_partition_limit=10
        ),
        0,
        [topic(Op.DESCRIBE)],
    ),
    Row(lambda *_: AbortTransactionRequest(transactional_id=TXN), 0, [txn(Op.WRITE)]),
    Row(lambda *_: DeleteTransactionalIdRequest(transactional_id=TXN), 0, [txn(Op.WRITE)]),
    Row(
        lambda *_: BeginTransactionRequest(transactional_id=TXN, producer_id=1, producer_epoch=0),
        0,
        [txn(Op.WRITE)],
    ),
    Row(
        lambda *_: CommitTransactionRequest(transactional_id=TXN, producer_id=1, producer_epoch=0),
        0,
        [txn(Op.WRITE)],
    ),
    Row(lambda *_: JoinTransactionRequest(token="x"), 0, [cluster(Op.IDEMPOTENT_WRITE)]),
    Row(
        lambda _, topic_id: FindCutRequest(topics=[CutTopic(topic_id=topic_id, partitions=[0])]),
        0,
        [topic(Op.DESCRIBE)],
        leaks=True,
    ),
    Row(
        lambda _, topic_id: ListCutOffsetsRequest(
            cut=-1, metadata_offset=0, topics=[CutTopic(topic_id=topic_id, partitions=[0])]
        ),
        0,
        [topic(Op.DESCRIBE)],
        leaks=True,
    ),
    # A valid pattern would reach the source.
    Row(lambda *_: CreateMirrorRequest(name="m", topics="("), 0, [cluster(Op.ALTER)]),
    Row(lambda *_: AlterMirrorRequest(name="m", action=MirrorAction.PAUSE), 0, [cluster(Op.ALTER)]),
    Row(lambda *_: DescribeMirrorsRequest(), 0, [cluster(Op.DESCRIBE)]),
    Row(lambda *_: ListAppVersionsRequest(cut=-1), 0, [cluster(Op.DESCRIBE)]),
    Row(lambda *_: FailBackMirrorRequest(name="m", topics="("), 0, [cluster(Op.ALTER)]),
    Row(
        lambda *_: TxnShareAcknowledgeRequest(
            transactional_id=TXN,
            producer_id=1,
            producer_epoch=0,
            group_id=GROUP,
            member_id="m",
            share_session_epoch=1,
        ),
        0,
        [txn(Op.WRITE), group(Op.READ)],
    ),
]

SHOWN_APART = {
    ApiVersionsRequest, DescribeClusterRequest, ListGroupsRequest, ListTransactionsRequest, SaslAuthenticateRequest,
    SaslHandshakeRequest, WriteTxnMarkersRequest, CreateDelegationTokenRequest, RenewDelegationTokenRequest,
    ExpireDelegationTokenRequest, DescribeDelegationTokenRequest, DescribeLineagesRequest,
    share_fetch.ShareAcknowledgeRequest,
}  # fmt: skip
"""Requests without rights, with filtered answers, in a session, or for nodes alone, which have separate tests below.
Requests about delegation tokens, which need a login, are in `test_delegation_tokens.py`."""
