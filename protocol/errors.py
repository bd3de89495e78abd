"""Kafka's error codes: code, name, text, and whether a retry may succeed. Codes as of Kafka 4.4.

Codes below -1 are for failures that a client finds itself.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

RETRIABLE: Final = True


class ErrorCode(IntEnum):
    """An error code of answers. `retriable` is true if the same request may succeed later."""

    retriable: bool
    message: str

    def __new__(cls, code: int, message: str = "", retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.message, member.retriable = message, retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "An error inside the server that no other code describes."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies before the log start offset or beyond the end of the log."
    CORRUPT_MESSAGE = 2, "The record batch is damaged: its CRC, size or format is wrong.", RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker knows no such topic or partition.", RETRIABLE
    INVALID_FETCH_SIZE = 4, "The fetch size is not allowed."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", RETRIABLE
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "This broker is not the leader of the partition, or holds no replica of it.",
        RETRIABLE,
    )
    REQUEST_TIMED_OUT = (
        7,
        "The request was not finished within its timeout; its outcome is unknown.",
        RETRIABLE,
    )
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica that was asked for is not available.", RETRIABLE
    MESSAGE_TOO_LARGE = 10, "The record batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, "The request comes from a controller that was replaced."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of a committed offset is longer than allowed."
    NETWORK_EXCEPTION = 13, "The connection broke before an answer came.", RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still reading its state.", RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator at the moment.", RETRIABLE
    NOT_COORDINATOR = 16, "Another broker coordinates this group or transactional id.", RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is not allowed, or the topic may not be used so."
    RECORD_LIST_TOO_LARGE = 18, "The records sent together are larger than a segment."
    NOT_ENOUGH_REPLICAS = (
        19,
        "Fewer replicas are in sync than min.insync.replicas; nothing was appended.",
        RETRIABLE,
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The ISR fell below min.insync.replicas after the append; its outcome is unknown.",
        RETRIABLE,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The group is in another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with the other members of the group."
    INVALID_GROUP_ID = 24, "The group id is not allowed."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout lies outside the range that the broker allows."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: join it again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offsets to commit do not fit into one record batch."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized for this topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized for this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for this cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is not allowed."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the authentication."
    UNSUPPORTED_VERSION = 35, "This version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists."
    INVALID_PARTITIONS = 37, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = (
        38,
        "The replication factor is below 1 or above the number of usable brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, "The assignment of replicas is not allowed."
    INVALID_CONFIG = 40, "A configuration key or value is not allowed."
    NOT_CONTROLLER = 41, "This node is not the active controller.", RETRIABLE
    INVALID_REQUEST = 42, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The record format does not support this request."
    POLICY_VIOLATION = 44, "A policy of the cluster forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The batch does not continue the producer's sequence."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The batch repeats a sequence that was appended before."
    INVALID_PRODUCER_EPOCH = 47, "The producer uses an epoch older than the current one."
    INVALID_TXN_STATE = 48, "The transaction's state does not allow the request."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, "The transactional id is busy with another change.", RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for this transactional id."
    SECURITY_DISABLED = 54, "The cluster has no security features enabled."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk of the log failed.", RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "The credentials were refused."
    UNKNOWN_PRODUCER_ID = 59, "The broker knows nothing of this producer id for the partition."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is already being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token belongs to another principal."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "This connection may not ask for delegation tokens."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for this delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker has no such fetch session.", RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The epoch does not continue the fetch session.", RETRIABLE
    LISTENER_NOT_FOUND = (
        72,
        "The leader has no listener of the name that the request came through.",
        RETRIABLE,
    )
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is disabled."
    FENCED_LEADER_EPOCH = 74, "The leader epoch of the request is older than the broker's.", RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch of the request is newer than the broker's.", RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "This version of the request does not allow the compression type."
    STALE_BROKER_EPOCH = 77, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know its high watermark yet.", RETRIABLE
    MEMBER_ID_REQUIRED = 79, "Join again with the member id in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader cannot lead now.", RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group has as many members as allowed."
    FENCED_INSTANCE_ID = 82, "Another member took over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may lead is available.", RETRIABLE
    ELECTION_NOT_NEEDED = 84, "The partition already has the leader it should have.", RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group still consumes this topic."
    INVALID_RECORD = 87, "A record was refused; nothing of the batch was appended."
    UNSTABLE_OFFSET_COMMIT = 88, "An open transaction may still change these offsets.", RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up: try later.", RETRIABLE
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "There is no such resource."
    DUPLICATE_RESOURCE = 92, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "The sets of voters of the two sides differ."
    INVALID_UPDATE_VERSION = 95, "The feature cannot be set to this version."
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker knows no topic of this id.", RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "A live broker is registered under this id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker is registered under this id."
    INCONSISTENT_TOPIC_ID = 103, "The log belongs to a topic of another id.", RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and topic ids.", RETRIABLE
    INELIGIBLE_REPLICA = 107, "A replica of the new ISR may not join it."
    NEW_LEADER_ELECTED = 108, "The change to the partition was made and elected another leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is no longer on local disks."
    FENCED_MEMBER_EPOCH = 110, "The member uses an epoch that the coordinator replaced."
    UNRELEASED_INSTANCE_ID = 111, "The group instance id is still held by another member."
    UNSUPPORTED_ASSIGNOR = 112, "The group cannot use this assignor."
    STALE_MEMBER_EPOCH = 113, "The member has to heartbeat first to learn its new epoch."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request came to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is outdated."
    TELEMETRY_TOO_LARGE = 118, "The telemetry data is larger than allowed."
    INVALID_REGISTRATION = 119, "The controller refuses this registration."
    TRANSACTION_ABORTABLE = 120, "The transaction failed in a way that aborting it repairs."
    INVALID_RECORD_STATE = 121, "The record is not in a state that allows this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The broker has no such share session.", RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The epoch does not continue the share session.", RETRIABLE
    FENCED_STATE_EPOCH = 124, "The share state uses an older epoch."
    INVALID_VOTER_KEY = 125, "The voter's key is not the expected one."
    DUPLICATE_VOTER = 126, "The voter is already a member of the set."
    VOTER_NOT_FOUND = 127, "The voter is no member of the set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression cannot be compiled."
    REBOOTSTRAP_REQUIRED = 129, "The client must start over from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The epoch of the streams topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "A newer streams topology has taken over."
    SHARE_SESSION_LIMIT_REACHED = 133, "The broker holds as many share sessions as allowed.", RETRIABLE
    GROUP_DELETION_FAILED = 134, "The group could not be deleted."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        "The description of the streams topology could not be stored.",
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, "No controller is registered under this id."

    # No server sends these codes: they are for failures that a client finds itself, like librdkafka's codes below -1.
    CLIENT_ERROR = -100, "The client found a fault that no other code describes."
    CLIENT_CLOSED = -101, "The client is closed."
    TLS_FAILED = -102, "Client and broker do not agree on TLS."
    MADE_BEFORE_FORK = -103, "The client was made before the process was forked."
    SPOOL_UNUSABLE = -104, "The folder of the spool cannot be used."
    SPOOL_POSITION_LOST = -105, "The cluster has forgotten how far the spool was delivered."

    @property
    def is_of_client(self) -> bool:
        """True if clients use the code for failures that no server reported. Such a code never travels over a
        connection."""
        return self < ErrorCode.UNKNOWN_SERVER_ERROR

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the member for a code from an answer; UNKNOWN_SERVER_ERROR for an unknown code."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)


_BY_CODE: Final[dict[int, ErrorCode]] = {int(error): error for error in ErrorCode if not error.is_of_client}


class ErrorInfo(NamedTuple):
    """A row of the table of error codes: code, text, and whether a retry may succeed."""

    code: int
    name: str
    retriable: bool
    message: str


ERRORS: Final = {code: ErrorInfo(code, e.name, e.retriable, e.message) for code, e in _BY_CODE.items()}


class KafkaError(Exception):
    """A failure that has a Kafka error code. `message` is for people and defaults to the text of the code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = code.message if message is None else message
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"
