"""The public names of Ottla: `__init__.py` finds the module of each name here, and imports it at first use."""

from . import sync as sync
from .client.admin import (
    BROKER_LOGGER_RESOURCE as BROKER_LOGGER_RESOURCE,
)
from .client.admin import (
    BROKER_RESOURCE as BROKER_RESOURCE,
)
from .client.admin import (
    CLIENT_METRICS_RESOURCE as CLIENT_METRICS_RESOURCE,
)
from .client.admin import (
    GROUP_RESOURCE as GROUP_RESOURCE,
)
from .client.admin import (
    TOPIC_RESOURCE as TOPIC_RESOURCE,
)
from .client.admin import (
    Admin as Admin,
)
from .client.admin import (
    AppVersions as AppVersions,
)
from .client.admin import (
    Backup as Backup,
)
from .client.admin import (
    BegunTransaction as BegunTransaction,
)
from .client.admin import (
    ClusterDescription as ClusterDescription,
)
from .client.admin import (
    ConfigEntry as ConfigEntry,
)
from .client.admin import (
    Cut as Cut,
)
from .client.admin import (
    CutOffset as CutOffset,
)
from .client.admin import (
    DelegationToken as DelegationToken,
)
from .client.admin import (
    Failback as Failback,
)
from .client.admin import (
    FailbackPartition as FailbackPartition,
)
from .client.admin import (
    FailbackTopic as FailbackTopic,
)
from .client.admin import (
    FencedBroker as FencedBroker,
)
from .client.admin import (
    GroupDescription as GroupDescription,
)
from .client.admin import (
    GroupListing as GroupListing,
)
from .client.admin import (
    GroupMember as GroupMember,
)
from .client.admin import (
    HangingTransaction as HangingTransaction,
)
from .client.admin import (
    LogDirDescription as LogDirDescription,
)
from .client.admin import (
    MirrorCut as MirrorCut,
)
from .client.admin import (
    MirrorDescription as MirrorDescription,
)
from .client.admin import (
    MirrorPartitionDescription as MirrorPartitionDescription,
)
from .client.admin import (
    MirrorTopicDescription as MirrorTopicDescription,
)
from .client.admin import (
    NewTopic as NewTopic,
)
from .client.admin import (
    OngoingReassignment as OngoingReassignment,
)
from .client.admin import (
    ProducerDescription as ProducerDescription,
)
from .client.admin import (
    QuorumDescription as QuorumDescription,
)
from .client.admin import (
    ShareGroupOffset as ShareGroupOffset,
)
from .client.admin import (
    TransactionDescription as TransactionDescription,
)
from .client.admin import (
    TransactionListing as TransactionListing,
)
from .client.admin import (
    UserLogin as UserLogin,
)
from .client.admin import (
    UserPassword as UserPassword,
)
from .client.admin.records import (
    EARLIEST as EARLIEST,
)
from .client.admin.records import (
    LATEST as LATEST,
)
from .client.admin.records import (
    TO_THE_END as TO_THE_END,
)
from .client.backup.values import (
    BackupCut as BackupCut,
)
from .client.backup.values import (
    BackupProgress as BackupProgress,
)
from .client.backup.values import (
    BackupPruning as BackupPruning,
)
from .client.backup.values import (
    BackupTopic as BackupTopic,
)
from .client.backup.values import (
    BackupVerification as BackupVerification,
)
from .client.backup.values import (
    MissedRecords as MissedRecords,
)
from .client.backup.values import (
    Restoration as Restoration,
)
from .client.backup.values import (
    RestoredTopic as RestoredTopic,
)
from .client.backup.values import (
    RestoreProgress as RestoreProgress,
)
from .client.connections.metadata import (
    BrokerAddress as BrokerAddress,
)
from .client.connections.metadata import (
    PartitionInfo as PartitionInfo,
)
from .client.connections.metadata import (
    TopicInfo as TopicInfo,
)
from .client.consumer import (
    Consumer as Consumer,
)
from .client.consuming.group_metadata import (
    ConsumerGroupMetadata as ConsumerGroupMetadata,
)
from .client.consuming.large_messages.assembly import (
    LargeMessageStats as LargeMessageStats,
)
from .client.consuming.membership.listener import (
    RebalanceListener as RebalanceListener,
)
from .client.consuming.outcomes import (
    TransactionOutcome as TransactionOutcome,
)
from .client.exactly_once.batch import (
    ConsumedBatch as ConsumedBatch,
)
from .client.exactly_once.batch import (
    NewRecord as NewRecord,
)
from .client.exactly_once.processor import (
    ExactlyOnce as ExactlyOnce,
)
from .client.failures import (
    AuthenticationFailed as AuthenticationFailed,
)
from .client.failures import (
    AuthorizationFailed as AuthorizationFailed,
)
from .client.failures import (
    BackupRefused as BackupRefused,
)
from .client.failures import (
    BackupUnusable as BackupUnusable,
)
from .client.failures import (
    ClientClosed as ClientClosed,
)
from .client.failures import (
    ClientError as ClientError,
)
from .client.failures import (
    ConnectionLost as ConnectionLost,
)
from .client.failures import (
    LeftInSpool as LeftInSpool,
)
from .client.failures import (
    LostLock as LostLock,
)
from .client.failures import (
    MadeBeforeFork as MadeBeforeFork,
)
from .client.failures import (
    NoBrokerReachable as NoBrokerReachable,
)
from .client.failures import (
    ObjectStoreFailed as ObjectStoreFailed,
)
from .client.failures import (
    ObjectStoreUnavailable as ObjectStoreUnavailable,
)
from .client.failures import (
    OutOfTurn as OutOfTurn,
)
from .client.failures import (
    ProducerFenced as ProducerFenced,
)
from .client.failures import (
    RequestTimedOut as RequestTimedOut,
)
from .client.failures import (
    SerializationFailed as SerializationFailed,
)
from .client.failures import (
    SpoolFull as SpoolFull,
)
from .client.failures import (
    SpoolPositionLost as SpoolPositionLost,
)
from .client.failures import (
    SpoolUnusable as SpoolUnusable,
)
from .client.failures import (
    TlsFailed as TlsFailed,
)
from .client.failures import (
    TransactionAborted as TransactionAborted,
)
from .client.failures import (
    TransactionFailed as TransactionFailed,
)
from .client.failures import (
    UnreadableRecords as UnreadableRecords,
)
from .client.failures import (
    UnreadableValue as UnreadableValue,
)
from .client.failures import (
    VersionUnsupported as VersionUnsupported,
)
from .client.producer import (
    Producer as Producer,
)
from .client.producing.accumulator import (
    ProducerIdentity as ProducerIdentity,
)
from .client.producing.columns.sending import (
    ColumnsDelivery as ColumnsDelivery,
)
from .client.producing.columns.sending import (
    ColumnsSent as ColumnsSent,
)
from .client.producing.deliveries import (
    RecordDelivery as RecordDelivery,
)
from .client.producing.record_metadata import (
    RecordMetadata as RecordMetadata,
)
from .client.records import (
    ConsumerRecord as ConsumerRecord,
)
from .client.records import (
    OffsetAndMetadata as OffsetAndMetadata,
)
from .client.records import (
    TopicPartition as TopicPartition,
)
from .client.rejection import (
    Reject as Reject,
)
from .client.sharing.consumer import (
    ShareConsumer as ShareConsumer,
)
from .client.sharing.tasks import (
    Acknowledgement as Acknowledgement,
)
from .client.sharing.tasks import (
    ShareTask as ShareTask,
)
from .client.spool.frames import (
    SpooledRecord as SpooledRecord,
)
from .client.spool.rejected_records import (
    RejectedRecord as RejectedRecord,
)
from .client.spool.rejected_records import (
    read_rejected as read_rejected,
)
from .client.spool.spool import (
    Spooled as Spooled,
)
from .client.transactions.transaction import (
    Transaction as Transaction,
)
from .client.transactions.transaction import (
    WriterReceipt as WriterReceipt,
)
from .client.transactions.transactions import (
    CommitResult as CommitResult,
)
from .client.transactions.whole_transactions import (
    CommittedTransaction as CommittedTransaction,
)
from .client.transactions.writer import (
    TransactionWriter as TransactionWriter,
)
from .client.worker.letters import (
    DeadLetter as DeadLetter,
)
from .client.worker.letters import (
    Letter as Letter,
)
from .client.worker.rates import (
    Rate as Rate,
)
from .client.worker.retries import (
    Retry as Retry,
)
from .client.worker.stats import (
    WorkerStats as WorkerStats,
)
from .client.worker.worker import (
    Worker as Worker,
)
from .client.worker.worker_record import (
    WorkerRecord as WorkerRecord,
)
from .protocol.cluster.acls import (
    Acl as Acl,
)
from .protocol.cluster.acls import (
    AclFilter as AclFilter,
)
from .protocol.cluster.acls import (
    AclOperation as AclOperation,
)
from .protocol.cluster.acls import (
    AclPermission as AclPermission,
)
from .protocol.cluster.acls import (
    AclResourceType as AclResourceType,
)
from .protocol.cluster.acls import (
    PatternType as PatternType,
)
from .protocol.cluster.mirror_table import (
    FaultKind as FaultKind,
)
from .protocol.cluster.mirror_table import (
    MirrorFault as MirrorFault,
)
from .protocol.cluster.mirror_table import (
    MirrorPhase as MirrorPhase,
)
from .protocol.errors import (
    ErrorCode as ErrorCode,
)
from .protocol.errors import (
    KafkaError as KafkaError,
)

__version__: str
