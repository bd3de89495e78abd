"""The admin client. It sends each request to any broker, or to the broker that the request concerns.

`Admin` is composed of one class for each theme. The themes share one session, `AdminSession`.
"""

from __future__ import annotations

from ..kinds import checks_arguments
from ..options import checks_options
from .acls import AclAdmin
from .backups.backup import Backup
from .backups.backup_admin import BackupAdmin
from .begun_transactions import BegunTransaction, BegunTransactionAdmin
from .cluster import ClusterAdmin
from .cuts import CutAdmin
from .failback import Failback, FailbackAdmin, FailbackPartition, FailbackTopic
from .groups import GroupAdmin
from .log_dirs import LogDirAdmin
from .mirrors import (
    MirrorAdmin,
    MirrorCut,
    MirrorDescription,
    MirrorPartitionDescription,
    MirrorTopicDescription,
)
from .options import ADMIN_OPTIONS
from .placement import OngoingReassignment, PlacementAdmin
from .quotas import QuotaAdmin
from .records import RecordAdmin
from .share_groups import ShareGroupAdmin
from .throttles import ThrottleAdmin
from .tokens import DelegationToken, TokenAdmin
from .topics import TopicAdmin
from .users import UserAdmin, UserLogin, UserPassword
from .values import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    CONFIG_SOURCES,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    AppVersions,
    ClusterDescription,
    ConfigEntry,
    Cut,
    CutOffset,
    FencedBroker,
    GroupDescription,
    GroupListing,
    GroupMember,
    HangingTransaction,
    LogDirDescription,
    NewTopic,
    ProducerDescription,
    QuorumDescription,
    ShareGroupOffset,
    TransactionDescription,
    TransactionListing,
)

__all__ = [
    "BROKER_LOGGER_RESOURCE",
    "BROKER_RESOURCE",
    "CLIENT_METRICS_RESOURCE",
    "CONFIG_SOURCES",
    "GROUP_RESOURCE",
    "TOPIC_RESOURCE",
    "Admin",
    "AppVersions",
    "Backup",
    "BegunTransaction",
    "ClusterDescription",
    "ConfigEntry",
    "Cut",
    "CutOffset",
    "DelegationToken",
    "Failback",
    "FailbackPartition",
    "FailbackTopic",
    "FencedBroker",
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
    "ShareGroupOffset",
    "TransactionDescription",
    "TransactionListing",
    "UserLogin",
    "UserPassword",
]


@checks_arguments
@checks_options(*ADMIN_OPTIONS)
class Admin(
    BackupAdmin,  # It calls methods of the others.
    TopicAdmin,
    ThrottleAdmin,
    ClusterAdmin,
    GroupAdmin,
    ShareGroupAdmin,
    PlacementAdmin,
    RecordAdmin,
    LogDirAdmin,
    QuotaAdmin,
    AclAdmin,
    UserAdmin,
    TokenAdmin,
    BegunTransactionAdmin,
    CutAdmin,
    MirrorAdmin,
    FailbackAdmin,
):
    """An admin client that creates, lists, describes, moves and deletes what a cluster has. Every method raises
    KafkaError with the error that the cluster answered.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("invoices", num_partitions=3)])
            print(await admin.list_topics())
    """
