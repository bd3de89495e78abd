"""The first step of assembling a broker: its listeners are bound to their addresses, and its data folders are
opened.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...network.tls.settings import ReachedAs
from ...protocol.errors import KafkaError
from ..configuration.config import BrokerConfig
from ..quorum.config import MetadataPosition
from ..runtime.clocks import wall_ms
from ..security.authorization.access import Authorization
from ..security.authorization.audit_log import AuditLog
from ..security.authorization.authorizer import Authorizer
from ..security.listener_tls import ListenerTls, reached_by_clients
from ..security.node_tls import NodeTlsSettings
from ..security.tls_settings import TlsSettings
from ..server import HandlerTable, Server
from ..storage import metadata_position
from ..storage.log_store import LogStore

if TYPE_CHECKING:
    from ..security.sasl.kerberos_acceptor import KerberosAcceptor, KerberosSettings

logger = logging.getLogger(__name__)


class StorageUnusable(OSError):
    """An error: the broker's data folders are locked, belong to another node, or cannot be read."""


@dataclass(frozen=True, slots=True)
class Foundation:
    """The parts of a broker that exist before the others: the server with bound sockets that do not accept connections
    yet, the opened logs, and the TLS of listeners.
    """

    table: HandlerTable
    server: Server
    logs: LogStore
    tls: Mapping[str, ListenerTls]
    """TLS of listeners, by listener name."""
    quorum_tls: ListenerTls | None
    """TLS of the links to the quorum, if they use it."""
    acceptors: Mapping[KerberosSettings, KerberosAcceptor]
    """Kerberos acceptors of the listeners that offer GSSAPI."""
    reached: MetadataPosition | None
    """Position up to which an earlier process of this broker followed the metadata; None if it must not be used."""


async def lay_foundation(config: BrokerConfig) -> Foundation:
    """Bind all listeners, then open and recover all logs in a thread.

    Raises StorageUnusable if the data folders cannot be used. Raises PortInUse if another process has an address.
    Raises ConfigError if a key or certificate cannot be used, those of Kerberos included.
    """
    tls = {
        listener.name: _open_tls(listener.tls, reached_by_clients(listener.advertised_host))
        for listener in config.listeners
        if listener.tls is not None
    }
    quorum = config.quorum.tls
    quorum_tls = None if quorum is None else _open_quorum_tls(quorum)
    acceptors = _acceptors(config)
    table = HandlerTable()
    server = Server(table, config.server, authorization=_authorization(config, table))
    try:
        for listener in config.listeners:
            server.listen(
                listener.name,
                listener.host,
                listener.port,
                listener.security_protocol,
                tls.get(listener.name),
            )
        logs = await asyncio.to_thread(_open_logs, config)
        reached = await asyncio.to_thread(_reached, config, logs)
    except BaseException:
        server.close()
        raise
    return Foundation(table, server, logs, tls, quorum_tls, acceptors, reached)


def _acceptors(config: BrokerConfig) -> Mapping[KerberosSettings, KerberosAcceptor]:
    mechanisms = (
        mechanism for listener in config.listeners if listener.sasl for mechanism in listener.sasl.mechanisms
    )
    found = {mechanism.kerberos for mechanism in mechanisms if mechanism.kerberos is not None}
    if not found:
        return {}
    # A late import: only GSSAPI needs the module.
    from ..security.sasl.kerberos_acceptor import KerberosAcceptor

    return {settings: KerberosAcceptor(settings) for settings in found}


def _open_quorum_tls(settings: NodeTlsSettings) -> ListenerTls:
    from ..security.certificate_warnings import node_warnings

    opened = _open_tls(settings.tls, None)  # Brokers dial the quorum, and no client dials them there.
    for remark in node_warnings(opened.loaded, settings.principals):
        logger.warning("%s", remark)
    return opened


def _open_tls(settings: TlsSettings, reached: ReachedAs | None) -> ListenerTls:
    # Late imports: only brokers with TLS listeners need the modules.
    from datetime import UTC, datetime

    from ..security.tls_loading import load_tls

    loaded = load_tls(settings, reached, datetime.now(UTC))
    for remark in loaded.remarks:
        logger.warning("%s", remark)
    return ListenerTls(loaded)


def _authorization(config: BrokerConfig, table: HandlerTable) -> Authorization | None:
    """Return the broker's authorization; None if no authorizer is configured. Until the first image arrives it permits
    only super users.
    """
    settings = config.authorizer
    if settings is None:
        return None
    authorizer = Authorizer(settings.super_users, open_without_acls=settings.open_without_acls)
    return Authorization(authorizer, AuditLog(authorizer.decide, table.name, time.monotonic))


def _open_logs(config: BrokerConfig) -> LogStore:
    try:
        return LogStore.open(
            config.log_dirs, config.cluster_id, config.node_id, wall_ms, config.recovery_threads_per_data_dir
        )
    except KafkaError as error:
        raise StorageUnusable(0, error.message) from error


def _reached(config: BrokerConfig, logs: LogStore) -> MetadataPosition | None:
    folders = [directory.path for directory in logs.usable]
    if config.restored:
        metadata_position.forget(folders)
    return metadata_position.read(folders)
