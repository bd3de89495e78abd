"""The calls of the admin client by which backups and restorations reach a cluster."""

from __future__ import annotations

from ..acls import AclAdmin
from ..cluster import ClusterAdmin
from ..configs import ConfigAdmin
from ..cuts import CutAdmin
from ..groups import GroupAdmin
from ..mirrors import MirrorAdmin
from ..quotas import QuotaAdmin
from ..records import RecordAdmin
from ..topics import TopicAdmin


class BackupCalls(
    TopicAdmin,
    ConfigAdmin,
    ClusterAdmin,
    GroupAdmin,
    RecordAdmin,
    QuotaAdmin,
    AclAdmin,
    CutAdmin,
    MirrorAdmin,
):
    """The part of the admin client that backups and restorations use."""
