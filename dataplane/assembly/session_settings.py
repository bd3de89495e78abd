"""The settings of a broker's session with the quorum."""

from __future__ import annotations

from ...protocol.messages.metadata_records import BrokerListener
from ..configuration.config import BrokerConfig
from ..quorum.config import QuorumSessionConfig
from ..security.node_tls import NodeCertificates
from .foundation import Foundation


def session_config(config: BrokerConfig, foundation: Foundation, incarnation: bytes) -> QuorumSessionConfig:
    """Return the settings of the session with the quorum. They include the ports that are bound and the ids of the open
    data folders.
    """
    bound = {listener.name: listener.port for listener in foundation.server.listeners}
    return QuorumSessionConfig(
        broker_id=config.node_id,
        cluster_id=config.cluster_id,
        security=config.quorum.security,
        tls=None
        if foundation.quorum_tls is None or config.quorum.tls is None
        else NodeCertificates(foundation.quorum_tls, config.quorum.tls.principals),
        voters=config.quorum.voters,
        incarnation=incarnation,
        listeners=tuple(
            BrokerListener(
                name=listener.name,
                host=listener.advertised_host,
                port=listener.advertised_port or bound[listener.name],
                security_protocol=listener.security_protocol,
            )
            for listener in config.listeners
            if listener.is_advertised
        ),
        previous_broker_epoch=foundation.logs.previous_broker_epoch,
        rack=config.rack,
        host=config.host,
        log_dirs=foundation.logs.directory_ids,
        reached=foundation.reached,
        heartbeat_interval_ms=config.quorum.heartbeat_interval_ms,
        session_timeout_ms=config.quorum.session_timeout_ms,
        silence_fence_ms=config.quorum.silence_fence_ms,
    )
