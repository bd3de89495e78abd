"""The public names of Ottla. The code is in the folders beside this one (client/, dataplane/, ...).

from ottla import Consumer, KafkaError, Producer

A name is imported when it is first used: brokers and quorum nodes import this package too, and need no client code.
`ottla.sync` has the clients for programs without an event loop.
"""

from pathlib import Path as _Path
from typing import TYPE_CHECKING

from .version import __version__ as __version__

_checkout = _Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file() and (_checkout / "protocol").is_dir():
    __path__.append(str(_checkout))  # running from a checkout: ottla.client is ../client

__all__ = [
    "BROKER_LOGGER_RESOURCE",
    "BROKER_RESOURCE",
    "CLIENT_METRICS_RESOURCE",
    "EARLIEST",
    "GROUP_RESOURCE",
    "LATEST",
    "TOPIC_RESOURCE",
    "TO_THE_END",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "AppVersions",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BegunTransaction",
    "BrokerAddress",
    "ClientClosed",
    "ClientError",
    "ClusterDescription",
    "ColumnsDelivery",
    "ColumnsSent",
    "CommitResult",
    "CommittedTransaction",
    "ConfigEntry",
    "ConnectionLost",
    "ConsumedBatch",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "Cut",
    "CutOffset",
    "DelegationToken",
    "ErrorCode",
    "ExactlyOnce",
    "Failback",
    "FailbackPartition",
    "FailbackTopic",
    "FaultKind",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "HangingTransaction",
    "KafkaError",
    "LargeMessageStats",
    "LeftInSpool",
    "LogDirDescription",
    "MadeBeforeFork",
    "MirrorCut",
    "MirrorDescription",
    "MirrorFault",
    "MirrorPartitionDescription",
    "MirrorPhase",
    "MirrorTopicDescription",
    "NewRecord",
    "NewTopic",
    "NoBrokerReachable",
    "OffsetAndMetadata",
    "OngoingReassignment",
    "OutOfTurn",
    "PartitionInfo",
    "PatternType",
    "Producer",
    "ProducerDescription",
    "ProducerFenced",
    "ProducerIdentity",
    "QuorumDescription",
    "RebalanceListener",
    "RecordDelivery",
    "RecordMetadata",
    "RejectedRecord",
    "RequestTimedOut",
    "SerializationFailed",
    "SpoolFull",
    "SpoolPositionLost",
    "SpoolUnusable",
    "Spooled",
    "SpooledRecord",
    "TlsFailed",
    "TopicInfo",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionFailed",
    "TransactionListing",
    "TransactionOutcome",
    "TransactionWriter",
    "UnreadableRecords",
    "UserLogin",
    "UserPassword",
    "VersionUnsupported",
    "WriterReceipt",
    "read_rejected",
    "sync",
]

if TYPE_CHECKING:
    from ottla.client import sync
    from ottla.client.admin import (
        BROKER_LOGGER_RESOURCE,
        BROKER_RESOURCE,
        CLIENT_METRICS_RESOURCE,
        GROUP_RESOURCE,
        TOPIC_RESOURCE,
        Admin,
        AppVersions,
        BegunTransaction,
        ClusterDescription,
        ConfigEntry,
        Cut,
        CutOffset,
        DelegationToken,
        Failback,
        FailbackPartition,
        FailbackTopic,
        GroupDescription,
        GroupListing,
        GroupMember,
        HangingTransaction,
        LogDirDescription,
        MirrorCut,
        MirrorDescription,
        MirrorPartitionDescription,
        MirrorTopicDescription,
        NewTopic,
        OngoingReassignment,
        ProducerDescription,
        QuorumDescription,
        TransactionDescription,
        TransactionListing,
        UserLogin,
        UserPassword,
    )
    from ottla.client.admin.records import EARLIEST, LATEST, TO_THE_END
    from ottla.client.columns.sending import ColumnsDelivery, ColumnsSent
    from ottla.client.connections.metadata import BrokerAddress, PartitionInfo, TopicInfo
    from ottla.client.consumer import Consumer
    from ottla.client.consuming.group_metadata import ConsumerGroupMetadata
    from ottla.client.consuming.membership.listener import RebalanceListener
    from ottla.client.consuming.outcomes import TransactionOutcome
    from ottla.client.exactly_once.batch import ConsumedBatch, NewRecord
    from ottla.client.exactly_once.processor import ExactlyOnce
    from ottla.client.failures import (
        AuthenticationFailed,
        AuthorizationFailed,
        ClientClosed,
        ClientError,
        ConnectionLost,
        LeftInSpool,
        MadeBeforeFork,
        NoBrokerReachable,
        OutOfTurn,
        ProducerFenced,
        RequestTimedOut,
        SerializationFailed,
        SpoolFull,
        SpoolPositionLost,
        SpoolUnusable,
        TlsFailed,
        TransactionAborted,
        TransactionFailed,
        UnreadableRecords,
        VersionUnsupported,
    )
    from ottla.client.large_messages.assembly import LargeMessageStats
    from ottla.client.producer import Producer
    from ottla.client.producing.accumulator import ProducerIdentity
    from ottla.client.producing.deliveries import RecordDelivery
    from ottla.client.producing.record_metadata import RecordMetadata
    from ottla.client.records import ConsumerRecord, OffsetAndMetadata, TopicPartition
    from ottla.client.spool.frames import SpooledRecord
    from ottla.client.spool.rejected_records import RejectedRecord, read_rejected
    from ottla.client.spool.spool import Spooled
    from ottla.client.transactions.transaction import Transaction, WriterReceipt
    from ottla.client.transactions.transactions import CommitResult
    from ottla.client.transactions.whole_transactions import CommittedTransaction
    from ottla.client.transactions.writer import TransactionWriter
    from ottla.protocol.cluster.acls import (
        Acl,
        AclFilter,
        AclOperation,
        AclPermission,
        AclResourceType,
        PatternType,
    )
    from ottla.protocol.cluster.mirror_table import FaultKind, MirrorFault, MirrorPhase
    from ottla.protocol.errors import ErrorCode, KafkaError
else:
    _HOMES = {
        "client.admin": [
            "BROKER_LOGGER_RESOURCE",
            "BROKER_RESOURCE",
            "CLIENT_METRICS_RESOURCE",
            "GROUP_RESOURCE",
            "TOPIC_RESOURCE",
            "Admin",
            "AppVersions",
            "BegunTransaction",
            "ClusterDescription",
            "ConfigEntry",
            "Cut",
            "CutOffset",
            "DelegationToken",
            "Failback",
            "FailbackPartition",
            "FailbackTopic",
            "GroupDescription",
            "GroupListing",
            "GroupMember",
            "HangingTransaction",
            "LogDirDescription",
            "MirrorCut",
            "MirrorDescription",
            "MirrorPartitionDescription",
            "MirrorTopicDescription",
            "NewTopic",
            "OngoingReassignment",
            "ProducerDescription",
            "QuorumDescription",
            "TransactionDescription",
            "TransactionListing",
            "UserLogin",
            "UserPassword",
        ],
        "client.admin.records": ["EARLIEST", "LATEST", "TO_THE_END"],
        "client.columns.sending": ["ColumnsDelivery", "ColumnsSent"],
        "client.connections.metadata": ["BrokerAddress", "PartitionInfo", "TopicInfo"],
        "client.consumer": ["Consumer"],
        "client.consuming.membership.listener": ["RebalanceListener"],
        "client.consuming.outcomes": ["TransactionOutcome"],
        "client.records": ["ConsumerRecord", "OffsetAndMetadata", "TopicPartition"],
        "client.consuming.group_metadata": ["ConsumerGroupMetadata"],
        "client.exactly_once.batch": ["ConsumedBatch", "NewRecord"],
        "client.exactly_once.processor": ["ExactlyOnce"],
        "client.failures": [
            "AuthenticationFailed",
            "AuthorizationFailed",
            "ClientClosed",
            "ClientError",
            "ConnectionLost",
            "LeftInSpool",
            "MadeBeforeFork",
            "NoBrokerReachable",
            "OutOfTurn",
            "ProducerFenced",
            "RequestTimedOut",
            "SerializationFailed",
            "SpoolFull",
            "SpoolPositionLost",
            "SpoolUnusable",
            "TlsFailed",
            "TransactionAborted",
            "TransactionFailed",
            "UnreadableRecords",
            "VersionUnsupported",
        ],
        "client.large_messages.assembly": ["LargeMessageStats"],
        "client.producer": ["Producer"],
        "client.producing.accumulator": ["ProducerIdentity"],
        "client.producing.deliveries": ["RecordDelivery"],
        "client.producing.record_metadata": ["RecordMetadata"],
        "client.spool.frames": ["SpooledRecord"],
        "client.spool.rejected_records": ["RejectedRecord", "read_rejected"],
        "client.spool.spool": ["Spooled"],
        "client.transactions.transaction": ["Transaction", "WriterReceipt"],
        "client.transactions.transactions": ["CommitResult"],
        "client.transactions.whole_transactions": ["CommittedTransaction"],
        "client.transactions.writer": ["TransactionWriter"],
        "protocol.cluster.acls": [
            "Acl",
            "AclFilter",
            "AclOperation",
            "AclPermission",
            "AclResourceType",
            "PatternType",
        ],
        "protocol.errors": ["ErrorCode", "KafkaError"],
        "protocol.cluster.mirror_table": ["FaultKind", "MirrorFault", "MirrorPhase"],
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "sync":
            return import_module("ottla.sync")
        for module, names in _HOMES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(f"ottla.{module}"), name)
                return found
        raise AttributeError(
            _unknown(name)
        )  # for `from ottla import` Python adds a suggestion itself, since 3.12

    def _unknown(name: str) -> str:
        from ottla.protocol.nearest import nearest

        meant = nearest(name, __all__)
        return f"ottla has no {name!r}" + (f"; did you mean {meant!r}?" if meant else "")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
