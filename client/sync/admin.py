"""The admin client, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from .. import admin
from ..admin.options import ADMIN_OPTIONS, AdminOptions
from ..backup.values import BackupProgress
from ..bounds import Name
from ..options import shows_options
from .backup import Backup
from .facade import Facade, blocking
from .loop_thread import shared_loop


@shows_options(*ADMIN_OPTIONS)
class Admin(Facade):
    """A client that creates, lists, describes, moves and deletes; see `ottla.Admin`.

    Every method raises KafkaError with the cluster's error, and RequestTimedOut after `request_timeout_ms`. Functions
    passed as `progress` are called on the thread of the clients' loop.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self._loop = shared_loop()
        self._admin = admin.Admin(**options)
        super().__init__(self._admin, self._loop)

    create_topics = blocking(admin.Admin.create_topics)
    delete_topics = blocking(admin.Admin.delete_topics)
    create_partitions = blocking(admin.Admin.create_partitions)
    list_topics = blocking(admin.Admin.list_topics)
    describe_topics = blocking(admin.Admin.describe_topics)

    describe_configs = blocking(admin.Admin.describe_configs)
    alter_configs = blocking(admin.Admin.alter_configs)
    list_config_resources = blocking(admin.Admin.list_config_resources)
    describe_quotas = blocking(admin.Admin.describe_quotas)
    alter_quotas = blocking(admin.Admin.alter_quotas)

    create_acls = blocking(admin.Admin.create_acls)
    describe_acls = blocking(admin.Admin.describe_acls)
    delete_acls = blocking(admin.Admin.delete_acls)

    describe_scram_credentials = blocking(admin.Admin.describe_scram_credentials)
    alter_scram_credentials = blocking(admin.Admin.alter_scram_credentials)

    create_delegation_token = blocking(admin.Admin.create_delegation_token)
    renew_delegation_token = blocking(admin.Admin.renew_delegation_token)
    expire_delegation_token = blocking(admin.Admin.expire_delegation_token)
    describe_delegation_tokens = blocking(admin.Admin.describe_delegation_tokens)

    describe_cluster = blocking(admin.Admin.describe_cluster)
    describe_quorum = blocking(admin.Admin.describe_quorum)
    describe_log_dirs = blocking(admin.Admin.describe_log_dirs)
    partition_sizes = blocking(admin.Admin.partition_sizes)

    list_groups = blocking(admin.Admin.list_groups)
    list_groups_by_broker = blocking(admin.Admin.list_groups_by_broker)
    describe_groups = blocking(admin.Admin.describe_groups)
    delete_groups = blocking(admin.Admin.delete_groups)
    committed_offsets = blocking(admin.Admin.committed_offsets)
    committed_offsets_of_groups = blocking(admin.Admin.committed_offsets_of_groups)
    alter_offsets = blocking(admin.Admin.alter_offsets)
    delete_offsets = blocking(admin.Admin.delete_offsets)

    share_group_offsets = blocking(admin.Admin.share_group_offsets)
    alter_share_group_offsets = blocking(admin.Admin.alter_share_group_offsets)
    delete_share_group_offsets = blocking(admin.Admin.delete_share_group_offsets)

    list_offsets = blocking(admin.Admin.list_offsets)
    delete_records = blocking(admin.Admin.delete_records)

    alter_partition_reassignments = blocking(admin.Admin.alter_partition_reassignments)
    list_partition_reassignments = blocking(admin.Admin.list_partition_reassignments)
    elect_leaders = blocking(admin.Admin.elect_leaders)
    unregister_broker = blocking(admin.Admin.unregister_broker)
    throttle_moves = blocking(admin.Admin.throttle_moves)
    lift_throttles = blocking(admin.Admin.lift_throttles)

    list_transactions = blocking(admin.Admin.list_transactions)
    list_transactions_by_broker = blocking(admin.Admin.list_transactions_by_broker)
    describe_transactions = blocking(admin.Admin.describe_transactions)
    abort_transaction = blocking(admin.Admin.abort_transaction)
    delete_transactional_id = blocking(admin.Admin.delete_transactional_id)
    begin_transaction = blocking(admin.Admin.begin_transaction)
    commit_transaction = blocking(admin.Admin.commit_transaction)
    abort_begun_transaction = blocking(admin.Admin.abort_begun_transaction)
    describe_producers = blocking(admin.Admin.describe_producers)
    find_hanging = blocking(admin.Admin.find_hanging)
    abort_hanging = blocking(admin.Admin.abort_hanging)

    find_cut = blocking(admin.Admin.find_cut)
    cut_offsets = blocking(admin.Admin.cut_offsets)
    app_versions_at = blocking(admin.Admin.app_versions_at)

    create_mirror = blocking(admin.Admin.create_mirror)
    describe_mirrors = blocking(admin.Admin.describe_mirrors)
    pause_mirror = blocking(admin.Admin.pause_mirror)
    resume_mirror = blocking(admin.Admin.resume_mirror)
    reconnect_mirror = blocking(admin.Admin.reconnect_mirror)
    limit_mirror = blocking(admin.Admin.limit_mirror)
    promote_mirror = blocking(admin.Admin.promote_mirror)
    delete_mirror = blocking(admin.Admin.delete_mirror)
    failback_mirror = blocking(admin.Admin.failback_mirror)
    copied_ends = blocking(admin.Admin.copied_ends)

    def open_backup(
        self,
        url: Name,
        *,
        topics: str = ".*",
        groups: str = ".*",
        progress: Callable[[BackupProgress], None] | None = None,
    ) -> Backup:
        """Return a run of backups into `url`, which makes one cut after the other. See `ottla.Admin.open_backup`."""
        opening = self._admin.open_backup(url, topics=topics, groups=groups, progress=progress)
        return Backup(self._loop, self._loop.run(opening, unseen=self._never_opened))

    def _never_opened(self, opened: admin.Backup) -> None:
        """Close a run that was opened when an interrupt came, since its caller cannot."""
        self._loop.finish(opened.close())

    create_backup = blocking(admin.Admin.create_backup)
    list_backup = blocking(admin.Admin.list_backup)
    verify_backup = blocking(admin.Admin.verify_backup)
    prune_backup = blocking(admin.Admin.prune_backup)
    restore_backup = blocking(admin.Admin.restore_backup)
