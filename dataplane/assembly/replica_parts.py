"""The replicas of a broker, with the parts that they report to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...protocol.session.node_proof import NodeCredentials
from ..configuration.config import BrokerConfig
from ..configuration.topic_settings import TopicSettingsView
from ..quorum.session import QuorumSession
from ..replication.leader.isr_submission import submit_to
from ..replication.replicas.offline import report_to
from ..replication.replicas.rebuilding import rebuild_with
from ..replication.replicas.replicas import Replicas, ReplicasConfig
from ..replication.replicas.unwritable import report_writability_to
from .foundation import Foundation


def make_replicas(
    config: BrokerConfig,
    foundation: Foundation,
    credentials: NodeCredentials,
    session: QuorumSession,
    topic_settings: TopicSettingsView,
    on_lost_broker: Callable[[int], None],
) -> Replicas:
    """Return a broker's replicas: none before the first image. `on_lost_broker` is called with the id of a broker whose
    connection has ended."""
    replication = config.replication
    between = foundation.tls.get(config.inter_broker_listener)
    return Replicas(
        ReplicasConfig(
            credentials=credentials,
            inter_broker_listener=config.inter_broker_listener,
            lag_time_max_ms=replication.lag_time_max_ms,
            watermark_checkpoint_interval_ms=replication.watermark_checkpoint_interval_ms,
            watermark_delay_s=config.watermark_delay_s,
            limits=replication.limits,
            link=replace(replication.link, tls=None if between is None else lambda: between.dialling),
        ),
        foundation.logs,
        session.image,
        lambda topic: topic_settings.of(session.image, topic),
        submit_to(session, config.node_id),
        lambda: session.broker_epoch,
        report_to(session, config.node_id),
        rebuild_with(session, config.node_id),
        on_lost_broker,
        report_writability_to(session, config.node_id),
    )
