"""State that a broker keeps after a request is answered and its connection is closed: by API, with its limits.

Every API that brokers serve is in `RETAINED`; a test finds missing ones. docs/SECURITY-GUIDE.md has this table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ...protocol.credentials.delegation_tokens import RENEWERS_MAX, TOKENS_MAX
from ..fetching.sessions import FETCH_SESSION_BYTES_MAX
from ..groups.memory import GROUP_BYTES_MAX, OFFSET_BYTES_MAX, SUBSCRIPTION_BYTES_MAX
from ..log.producers.producer_state import PRODUCERS_MAX
from ..producing.admission import HELD_BYTES_MAX as FOR_TRANSACTIONS_BYTES_MAX
from ..producing.validation_queue import HELD_BYTES_MAX as FOR_VALIDATION_BYTES_MAX
from ..quorum import metadata_room
from ..quotas.rate_quota import MEASURES_MAX
from ..runtime.retained_bytes import SHARE
from ..server.unread_answers import UNREAD_BYTES_MAX
from ..share.leader.share_partitions import SHARE_BYTES_MAX

_MIB: Final = 1024 * 1024
_SHARE: Final = f"{SHARE:.0%} of it for one principal or address"


@dataclass(frozen=True, slots=True)
class RetainedState:
    """One kind of state that clients can make a broker keep: its limit, the answer beyond it, and the test in which a
    client exceeds the limit (`test`).
    """

    name: str
    bound: str
    answer: str
    """Answer to a request that would exceed the limit."""
    test: str


FETCH_SESSIONS = RetainedState(
    "fetch sessions, and large fetches that wait",
    f"{FETCH_SESSION_BYTES_MAX // _MIB} MiB, {_SHARE}",
    "session id 0, or an answer at once; FETCH_SESSION_ID_NOT_FOUND where a session grows",
    "test_sessions_of_unknown_partitions_take_no_more_than_the_share_of_their_client",
)
SHARE_SESSIONS = RetainedState(
    "share sessions and their waiting fetches, and share partitions with their windows",
    f"{SHARE_BYTES_MAX // _MIB} MiB, {_SHARE}; `group.share.max.share.sessions`; "
    "`share.partition.max.record.locks` in each window",
    "SHARE_SESSION_LIMIT_REACHED; no records where a window would grow",
    "test_sessions_take_no_more_than_the_share_of_their_client",
)
GROUPS = RetainedState(
    "groups, their members, subscriptions and assignments",
    f"{GROUP_BYTES_MAX // _MIB} MiB, {_SHARE}; {SUBSCRIPTION_BYTES_MAX // _MIB} MiB for one JoinGroup; "
    "until a session ends",
    "GROUP_MAX_SIZE_REACHED",
    "test_members_with_large_subscriptions_are_refused_and_others_are_not",
)
OFFSETS = RetainedState(
    "committed offsets",
    f"{OFFSET_BYTES_MAX // _MIB} MiB, {_SHARE}; each `offset.metadata.max.bytes`, for `offsets.retention.minutes`",
    "INVALID_COMMIT_OFFSET_SIZE for new ones",
    "test_the_offsets_of_groups_are_bounded_and_those_there_are_go_on",
)
BATCHES = RetainedState(
    "batches that wait for a thread, or for their transaction",
    f"{FOR_VALIDATION_BYTES_MAX // _MIB} MiB and {FOR_TRANSACTIONS_BYTES_MAX // _MIB} MiB",
    "REQUEST_TIMED_OUT",
    "test_what_waits_is_bounded",
)
PRODUCERS = RetainedState(
    "producer ids of a partition",
    f"{PRODUCERS_MAX:,}, for `producer.id.expiration.ms`",
    "the most silent one is forgotten",
    "test_producers_of_one_partition_are_bounded",
)
RECORDS = RetainedState(
    "records",
    "on disk, by `retention.bytes` and `retention.ms`; each batch `max.message.bytes`",
    "MESSAGE_TOO_LARGE",
    "test_one_that_is_refused_holds_nobody_up",
)
TOPICS = RetainedState(
    "topics",
    f"{metadata_room.PARTITIONS_MAX:,} partitions in the cluster",
    "POLICY_VIOLATION",
    "test_metadata_of_each_kind_is_bounded",
)
SETTINGS = RetainedState(
    "settings",
    f"{metadata_room.SETTINGS_MAX:,} of one topic, broker, group or subscription, each 32,767 bytes; "
    f"{metadata_room.SET_RESOURCES_MAX:,} of these",
    "POLICY_VIOLATION",
    "test_metadata_of_each_kind_is_bounded",
)
QUOTAS = RetainedState(
    "quotas", f"{metadata_room.QUOTAS_MAX:,}", "POLICY_VIOLATION", "test_metadata_of_each_kind_is_bounded"
)
ACLS = RetainedState(
    "ACLs", f"{metadata_room.ACLS_MAX:,}", "POLICY_VIOLATION", "test_metadata_of_each_kind_is_bounded"
)
USERS = RetainedState(
    "passwords of users",
    f"{metadata_room.USERS_MAX:,}",
    "POLICY_VIOLATION",
    "test_metadata_of_each_kind_is_bounded",
)
TOKENS = RetainedState(
    "delegation tokens",
    f"{TOKENS_MAX:,}, each of {RENEWERS_MAX} renewers, until they expire",
    "POLICY_VIOLATION",
    "test_nobody_uses_up_what_all_share",
)
MIRRORS = RetainedState(
    "mirrors", f"{metadata_room.MIRRORS_MAX:,}", "POLICY_VIOLATION", "test_metadata_of_each_kind_is_bounded"
)
TRANSACTIONAL_IDS = RetainedState(
    "transactional ids",
    "2,000,000, for `transactional.id.expiration.ms`",
    "POLICY_VIOLATION for new ones",
    "test_a_new_transactional_id_is_refused_where_there_is_no_room",
)
TRANSACTIONS = RetainedState(
    "open transactions",
    "one for each transactional id, of 10,000 writers; each partition of the cluster once; for "
    "`transaction.max.timeout.ms`",
    "INVALID_TXN_STATE",
    "test_there_is_a_limit_to_writers",
)
PLACES = RetainedState(
    "where replicas are and go to",
    "one entry for each partition and replica",
    "nothing is added",
    "test_a_running_move_is_replaced",
)
MEASURES = RetainedState(
    "measures of quotas, where there are any",
    f"{MEASURES_MAX:,} clients for each quota, while they send requests",
    "the oldest measure is forgotten",
    "test_measures_of_clients_are_bounded",
)
UNREAD = RetainedState(
    "answers that are not read",
    f"{UNREAD_BYTES_MAX // _MIB} MiB, {_SHARE}; 1 MiB and one answer for a connection",
    "the connections end that have been blocked longest",
    "test_connections_that_read_no_answers_are_closed_when_there_are_too_many",
)
SHARE_STATES = RetainedState(
    "states of share-partitions",
    "only brokers write them: one for each share group and partition, until the group or the topic is deleted",
    "CLUSTER_AUTHORIZATION_FAILED for clients",
    "test_only_brokers_may_ask",
)
OF_EVERY_API: Final = (MEASURES, UNREAD)

_NOTHING: tuple[RetainedState, ...] = ()
RETAINED: Final[Mapping[str, tuple[RetainedState, ...]]] = MappingProxyType(
    {
        "Produce": (RECORDS, BATCHES, PRODUCERS),
        "Fetch": (FETCH_SESSIONS,),
        "ListOffsets": _NOTHING,
        "Metadata": (TOPICS,),
        "OffsetCommit": (OFFSETS, GROUPS),
        "OffsetFetch": _NOTHING,
        "FindCoordinator": _NOTHING,
        "JoinGroup": (GROUPS,),
        "Heartbeat": _NOTHING,
        "LeaveGroup": _NOTHING,
        "SyncGroup": (GROUPS,),
        "DescribeGroups": _NOTHING,
        "ListGroups": _NOTHING,
        "SaslHandshake": _NOTHING,
        "ApiVersions": _NOTHING,
        "CreateTopics": (TOPICS, SETTINGS),
        "DeleteTopics": _NOTHING,
        "DeleteRecords": _NOTHING,
        "InitProducerId": (TRANSACTIONAL_IDS,),
        "OffsetForLeaderEpoch": _NOTHING,
        "AddPartitionsToTxn": (TRANSACTIONS,),
        "AddOffsetsToTxn": (TRANSACTIONS,),
        "EndTxn": (RECORDS,),
        "WriteTxnMarkers": (RECORDS, PRODUCERS),
        "TxnOffsetCommit": (OFFSETS, GROUPS, TRANSACTIONS),
        "DescribeAcls": _NOTHING,
        "CreateAcls": (ACLS,),
        "DeleteAcls": _NOTHING,
        "DescribeConfigs": _NOTHING,
        "AlterConfigs": (SETTINGS,),
        "AlterReplicaLogDirs": (PLACES,),
        "DescribeLogDirs": _NOTHING,
        "SaslAuthenticate": _NOTHING,
        "CreatePartitions": (TOPICS,),
        "CreateDelegationToken": (TOKENS,),
        "RenewDelegationToken": _NOTHING,
        "ExpireDelegationToken": _NOTHING,
        "DescribeDelegationToken": _NOTHING,
        "DeleteGroups": _NOTHING,
        "ElectLeaders": _NOTHING,
        "IncrementalAlterConfigs": (SETTINGS,),
        "AlterPartitionReassignments": (PLACES,),
        "ListPartitionReassignments": _NOTHING,
        "OffsetDelete": _NOTHING,
        "DescribeClientQuotas": _NOTHING,
        "AlterClientQuotas": (QUOTAS,),
        "DescribeUserScramCredentials": _NOTHING,
        "AlterUserScramCredentials": (USERS,),
        "DescribeQuorum": _NOTHING,
        "UpdateFeatures": _NOTHING,
        "DescribeCluster": _NOTHING,
        "DescribeProducers": _NOTHING,
        "UnregisterBroker": _NOTHING,
        "DescribeTransactions": _NOTHING,
        "ListTransactions": _NOTHING,
        "InitializeShareGroupState": (SHARE_STATES,),
        "ReadShareGroupState": _NOTHING,
        "WriteShareGroupState": (SHARE_STATES,),
        "DeleteShareGroupState": _NOTHING,
        "ReadShareGroupStateSummary": _NOTHING,
        "ConsumerGroupHeartbeat": (GROUPS,),
        "ConsumerGroupDescribe": _NOTHING,
        "ShareGroupHeartbeat": (GROUPS,),
        "ShareGroupDescribe": _NOTHING,
        "DescribeShareGroupOffsets": _NOTHING,
        "AlterShareGroupOffsets": (GROUPS,),
        "DeleteShareGroupOffsets": _NOTHING,
        "ListConfigResources": _NOTHING,
        "DescribeTopicPartitions": _NOTHING,
        "WriteDeadLetters": (RECORDS,),
        "TxnShareAcknowledge": (SHARE_STATES, TRANSACTIONS),
        "ShareFetch": (SHARE_SESSIONS,),
        "ShareAcknowledge": _NOTHING,
        "AuthenticateNode": _NOTHING,
        "AbortTransaction": (RECORDS,),
        "DeleteTransactionalId": _NOTHING,
        "BeginTransaction": (TRANSACTIONS, TRANSACTIONAL_IDS),
        "JoinTransaction": (TRANSACTIONS,),
        "CommitTransaction": (RECORDS,),
        "FindCut": _NOTHING,
        "ListCutOffsets": _NOTHING,
        "ListAppVersions": _NOTHING,
        "CreateMirror": (MIRRORS,),
        "AlterMirror": _NOTHING,
        "DescribeMirrors": _NOTHING,
        "DescribeLineages": _NOTHING,
        "FailBackMirror": (MIRRORS,),
    }
)
"""State that each API keeps apart from its answer, and from the state of the connection."""


def rows() -> Iterator[str]:
    """Yield the rows of the table in docs/SECURITY-GUIDE.md: each kind, its limit, and the APIs that create it."""
    kinds: dict[RetainedState, list[str]] = {}
    for api, states in RETAINED.items():
        for state in states:
            kinds.setdefault(state, []).append(api)
    for kind, apis in kinds.items():
        yield f"| {kind.name} | {kind.bound} | {kind.answer} | {', '.join(apis)} |"
    for kind in OF_EVERY_API:
        yield f"| {kind.name} | {kind.bound} | {kind.answer} | every one |"
