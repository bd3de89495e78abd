"""The handlers of requests about the cluster: its brokers, topics, settings, quotas and features."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ..broker_settings import BrokerSettings
from ..cluster.listed_brokers import ListedBrokers
from ..cluster.lost_brokers import LostBrokers
from ..cluster.topic_creation import TopicCreator
from ..configuration.config import BrokerConfig
from ..handlers.alter_configs import AlterConfigsHandlers
from ..handlers.api_versions import ApiVersionsHandlers
from ..handlers.client_quotas import ClientQuotaHandlers
from ..handlers.describe_cluster import DescribeClusterHandlers
from ..handlers.describe_configs import DescribeConfigsHandlers
from ..handlers.describe_quorum import DescribeQuorumHandlers
from ..handlers.describe_topic_partitions import DescribeTopicPartitionsHandlers
from ..handlers.elect_leaders import ElectLeadersHandlers
from ..handlers.find_coordinator import FindCoordinatorHandlers
from ..handlers.metadata import MetadataHandlers
from ..handlers.partition_reassignments import PartitionReassignmentHandlers
from ..handlers.settings.config_view import ConfigView
from ..handlers.topics import TopicHandlers
from ..handlers.unregister_broker import UnregisterBrokerHandlers
from ..handlers.update_features import UpdateFeaturesHandlers
from ..quorum.session import QuorumSession
from ..quotas import ClientQuotas
from ..security.setting_secrets import SettingSecrets
from ..security.tls_reloading import TlsReloads
from ..server import HandlerTable


def broker_handlers(
    config: BrokerConfig,
    session: QuorumSession,
    table: HandlerTable,
    listed: ListedBrokers,
    lost: LostBrokers,
    creator: TopicCreator,
) -> Iterator[object]:
    """Yield the handlers of requests about brokers, leaders and the quorum. ApiVersions reports the APIs of `table`."""
    yield ApiVersionsHandlers(table, session, config.node_id)
    yield MetadataHandlers(session, config.node_id, creator, listed, lost)
    yield DescribeClusterHandlers(session, config.node_id, listed)
    yield DescribeTopicPartitionsHandlers(session)
    yield DescribeQuorumHandlers(session)
    yield PartitionReassignmentHandlers(session)
    yield ElectLeadersHandlers(session)
    yield UnregisterBrokerHandlers(session)
    yield FindCoordinatorHandlers(session, creator)


def settings_handlers(
    config: BrokerConfig,
    session: QuorumSession,
    settings: BrokerSettings,
    secrets: SettingSecrets,
    tls_reloads: TlsReloads,
    quotas: ClientQuotas,
    chance: random.Random,
) -> Iterator[object]:
    """Yield the handlers of requests about topics, settings, quotas and features."""
    view = ConfigView(session, settings, config.references)
    yield TopicHandlers(
        session, config.topics, view, chance, delete_topic_enable=config.delete_topic_enable, quotas=quotas
    )
    yield DescribeConfigsHandlers(session, config.node_id, view)
    yield AlterConfigsHandlers(session, settings, secrets, config.log_dirs, tls_reloads)
    yield ClientQuotaHandlers(session)
    yield UpdateFeaturesHandlers(session)
