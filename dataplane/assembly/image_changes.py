"""The reactions of a broker's parts to each change of the metadata, in the loop iteration in which the image
changes."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from functools import partial

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ..broker_settings import BrokerSettings
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..cluster.listed_brokers import ListedBrokers
from ..cluster.lost_brokers import LostBrokers
from ..configuration.config import BrokerConfig
from ..configuration.topic_settings import TopicSettingsView
from ..groups.coordinator import GroupCoordinator
from ..groups.replicated_log import ReplicatedOffsetsLog
from ..mirroring.mirrors import Mirrors
from ..quorum.image_gate import ImageGate
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..security.delegation_tokens import DelegationTokens
from ..security.resealing import Resealer
from ..security.tls_reloading import TlsReloads
from ..server import Server
from ..storage.folder_settings import cordoned_folders
from ..storage.log_cleaner import CleanerSettings, LogCleaner
from ..storage.log_store import LogStore
from ..transactions.participant import TransactionParticipant
from . import own_logs
from .connection_limits import connection_limits
from .logins import end_changed_logins, end_tokens

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImageChanges:
    """The distributor of each change to the parts, and of elections to the parts that keep state of led partitions."""

    config: BrokerConfig
    gate: ImageGate
    own_settings: BrokerSettings
    settings: TopicSettingsView
    listed: ListedBrokers
    lost: LostBrokers
    server: Server
    logs: LogStore
    cleaner: LogCleaner[Partition]
    replicas: Replicas
    transactions: TransactionParticipant
    groups: GroupCoordinator
    mirrors: Mirrors
    tls_reloads: TlsReloads
    tokens: DelegationTokens | None
    resealer: Resealer
    _topic_names: dict[bytes, str] = field(default_factory=dict)

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Follow a change that the image already contains: first settings, then roles, then the state that depends on
        roles."""
        self.settings.forget(delta)
        self.listed.image_changed(image, delta.brokers)
        self.lost.image_changed(image, delta.brokers)
        if delta.configs:
            self._reconfigure()
        if delta.acls and self.server.authorization is not None:
            self.server.authorization.authorizer.change(delta.acls.items())
        if delta.client_quotas:
            self.server.quotas.changed(image.client_quotas)
        self.resealer.changed(image, delta)
        if delta.scram_credentials and self.config.credential_changes_close:
            end_changed_logins(delta, self.server.authentications)
        if delta.delegation_tokens and self.tokens is not None:
            self.tokens.changed(delta.delegation_tokens)
            end_tokens(delta, image, self.server.authentications)
        is_first = not self.gate.open
        passed = self.gate.passed(image, delta)
        if passed is None:
            return
        try:
            if is_first:
                self._set_strays_aside(image)
                self._miss_logs(image)
            self.replicas.apply(image, passed)
            self.transactions.image_changed(passed)
            self.groups.image_changed(image, passed)
            self.groups.topics_removed(self._removed(image, passed))
            self.mirrors.image_changed(image, passed)
            self.server.metadata_moved()
        except Exception:
            # The image contains this change already. To continue would mean roles that no longer follow it.
            logger.critical("a change of the metadata cannot be followed: this broker ends", exc_info=True)
            os._exit(1)

    def _reconfigure(self) -> None:
        settings = self.own_settings
        self.server.admissions.limits = connection_limits(self.config, settings)
        self.logs.cordoned = cordoned_folders(settings, self.config.log_dirs)
        self.cleaner.reconfigure(CleanerSettings.of(settings))
        self.tls_reloads.reconfigured()

    def _removed(self, image: ClusterImage, delta: ImageDelta) -> list[str]:
        """Return the names of removed topics."""
        names = self._topic_names
        gone = [names.pop(topic_id) for topic_id in delta.removed_topics if topic_id in names]
        names.update((topic_id, image.topics_by_id[topic_id].name) for topic_id in delta.topics)
        return gone

    def _set_strays_aside(self, image: ClusterImage) -> None:
        """Set aside the logs of topics that were deleted, or moved to other brokers, while this broker was away."""
        node_id = self.config.node_id
        self.logs.set_strays_aside(
            partial(own_logs.belongs, image, node_id), partial(own_logs.is_needed, image, node_id)
        )

    def _miss_logs(self, image: ClusterImage) -> None:
        """Take replicas without a log offline.

        Their log may be in a folder that could not be opened, or that failed before there was an image. They are not
        created again with an empty log, since the quorum may assume that they have all records.
        """
        assigned = {
            (topic.name, index): topic.id
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
            if self.config.node_id in state.replicas
        }
        self.replicas.take_offline((assigned[name], name[1]) for name in self.logs.missing(assigned))

    def elected(self, partition: Partition) -> None:
        """Notify the parts that this broker leads a partition now. Missing transaction markers are written before all
        else."""
        self.mirrors.elected(partition)
        self.transactions.elected(partition)
        if partition.topic == OFFSETS_TOPIC:
            self.groups.elected(partition.index, ReplicatedOffsetsLog(partition))

    def resigned(self, topic: str, index: int) -> None:
        """Notify the parts that this broker no longer leads a partition."""
        if topic == OFFSETS_TOPIC:
            self.groups.resigned(index)
