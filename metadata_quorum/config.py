"""A quorum node's configuration: Kafka's property names, as one frozen, typed object."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ..network.tls.nodes import RenewedNodeTls
from ..protocol.cluster.authorizer_settings import AuthorizerSettings
from ..protocol.messages.user_commands import ScramCredentialChange
from ..protocol.session.handshake import LinkSecurity
from ..protocol.session.node_secrets import read_secrets
from ..protocol.settings.config_keys import CLUSTER_WIDE_KEYS, ConfigError, Scope, check_properties

logger = logging.getLogger(__name__)

QUORUM_SIZES = (1, 3, 5)


@dataclass(frozen=True, slots=True)
class QuorumNodeConfig:
    """The configuration of a quorum node. Times are in ms unless the name says otherwise."""

    node_id: int
    cluster_id: str
    security: LinkSecurity
    #: node id -> (host, port), this node included
    voters: Mapping[int, tuple[str, int]]
    directory: Path
    #: the address where this node listens, TCP for Raft peers and brokers, UDP for heartbeats
    listen_host: str
    listen_port: int
    broker_session_timeout_ms: int = 3000
    leader_imbalance_check_interval_seconds: int = 300
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    transactional_id_expiration_ms: int = 604_800_000
    transactional_id_cleanup_interval_ms: int = 3_600_000
    token_expiry_check_interval_ms: int = 3_600_000
    #: settings that elections use, for all brokers unless set dynamically
    cluster_defaults: Mapping[str, str] = field(default_factory=dict)
    #: an operator states that this node's folder was lost and the node may join again with an empty one
    replace_empty: bool = False
    #: an operator states that this node's folder was restored from an older copy on purpose
    restored: bool = False
    #: bytes of the Raft log after which a snapshot is made
    snapshot_bytes: int = 20 << 20
    feed_records_max: int = 100_000
    #: users that an operator adds to a cluster that is not formed yet
    first_users: tuple[ScramCredentialChange, ...] = ()
    #: whether a refused heartbeat port proves the death of a broker on another machine, too
    believes_any_refusal: bool = False
    #: TLS under the links of this node; None for none
    tls: RenewedNodeTls | None = None
    #: users who may change ACLs and users; None for everybody
    authorizer: AuthorizerSettings | None = None

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> "QuorumNodeConfig":
        """Read Kafka's properties.

        Keys: node.id, process.roles, controller.quorum.voters (id@host:port,...), listeners, cluster.id,
        cluster.secret.file, quorum.secret.file, cluster.link.encryption, metadata.log.dir or else the first of
        log.dirs, metadata.log.max.record.bytes.between.snapshots, broker.session.timeout.ms, broker.fence.on.refusal,
        leader.imbalance.check.interval.seconds, leader.imbalance.per.broker.percentage, auto.leader.rebalance.enable,
        transactional.id.expiration.ms, transaction.remove.expired.transaction.cleanup.interval.ms,
        delegation.token.expiry.check.interval.ms, min.insync.replicas, unclean.leader.election.enable. Known keys of
        other roles are ignored. Raises ConfigError naming the key, the value and the allowed values.
        """
        check_properties(properties, Scope.QUORUM)
        roles = [role.strip() for role in properties.get("process.roles", "controller").split(",")]
        if "controller" not in roles:
            raise ConfigError(
                f"process.roles is {','.join(roles)!r}: a quorum node needs the role controller"
            )
        node_id = _number(properties, "node.id", None, 0)
        voters = parse_voters(_required(properties, "controller.quorum.voters"))
        if node_id not in voters:
            raise ConfigError(
                f"node.id {node_id} is not in controller.quorum.voters, which has {sorted(voters)}"
            )
        host, port = _listen_address(properties, voters[node_id])
        data_dir = properties.get("metadata.log.dir") or _required(properties, "log.dirs").split(",")[0]
        return QuorumNodeConfig(
            node_id=node_id,
            cluster_id=_required(properties, "cluster.id"),
            security=_security(properties),
            voters=voters,
            directory=Path(data_dir.strip()),
            listen_host=host,
            listen_port=port,
            broker_session_timeout_ms=_number(properties, "broker.session.timeout.ms", 3000, 100),
            leader_imbalance_check_interval_seconds=_number(
                properties, "leader.imbalance.check.interval.seconds", 300, 1
            ),
            auto_leader_rebalance_enable=_truth(properties, "auto.leader.rebalance.enable", default=True),
            leader_imbalance_per_broker_percentage=_number(
                properties, "leader.imbalance.per.broker.percentage", 10, 0
            ),
            transactional_id_expiration_ms=_number(
                properties, "transactional.id.expiration.ms", 604_800_000, 1
            ),
            transactional_id_cleanup_interval_ms=_number(
                properties, "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, 1
            ),
            token_expiry_check_interval_ms=_number(
                properties, "delegation.token.expiry.check.interval.ms", 3_600_000, 1
            ),
            snapshot_bytes=_number(
                properties, "metadata.log.max.record.bytes.between.snapshots", 20 << 20, 1
            ),
            believes_any_refusal=properties.get("broker.fence.on.refusal", "").strip() == "any",
            authorizer=AuthorizerSettings.from_properties(properties),
            cluster_defaults={name: properties[name] for name in CLUSTER_WIDE_KEYS if name in properties},
        )


def parse_voters(text: str) -> Mapping[int, tuple[str, int]]:
    """Parse `1@host:port,2@host:port,...` to id -> (host, port). Raises ConfigError."""
    voters: dict[int, tuple[str, int]] = {}
    for voter in text.split(","):
        name, at, address = voter.strip().partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and name.isdecimal() and port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(f"controller.quorum.voters: {voter.strip()!r} is not of the form id@host:port")
        if int(name) in voters:
            raise ConfigError(f"controller.quorum.voters: node id {name} stands there twice")
        voters[int(name)] = (host.strip("[]"), int(port))
    if len(voters) not in QUORUM_SIZES:
        raise ConfigError(f"controller.quorum.voters has {len(voters)} nodes: a quorum has 1, 3 or 5")
    return MappingProxyType(voters)


def _security(properties: Mapping[str, str]) -> LinkSecurity:
    cluster = read_secrets("cluster.secret.file", _required(properties, "cluster.secret.file"))
    quorum_file = properties.get("quorum.secret.file", "").strip()
    if not quorum_file:
        logger.warning(
            "there is no quorum.secret.file, so every broker holds the secret of the quorum: a stolen broker could vote"
        )
    quorum = read_secrets("quorum.secret.file", quorum_file) if quorum_file else None
    if quorum is not None and set(quorum.accepted) <= set(cluster.accepted):
        logger.warning(
            "quorum.secret.file holds nothing but secrets that brokers have: a stolen broker could vote"
        )
    requires_encryption = properties.get("cluster.link.encryption", "").strip() == "required"
    return LinkSecurity(cluster, quorum, requires_encryption)


def _listen_address(properties: Mapping[str, str], voter: tuple[str, int]) -> tuple[str, int]:
    """Return the address of the CONTROLLER listener, else of this node's entry among the voters."""
    for listener in properties.get("listeners", "").split(","):
        name, separator, address = listener.strip().partition("://")
        if separator and name == properties.get("controller.listener.names", "CONTROLLER"):
            host, colon, port = address.rpartition(":")
            if not colon or not port.isdecimal() or int(port) > 65535:
                raise ConfigError(
                    f"listeners: {listener.strip()!r} is not of the form CONTROLLER://host:port"
                )
            return host.strip("[]"), int(port)
    return voter


def _required(properties: Mapping[str, str], key: str) -> str:
    value = properties.get(key, "").strip()
    if not value:
        raise ConfigError(f"{key} is missing")
    return value


def _number(properties: Mapping[str, str], key: str, default: int | None, least: int) -> int:
    text = properties.get(key, "").strip() if default is not None else _required(properties, key)
    if not text and default is not None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"{key} is {text!r}: it must be a whole number") from None
    if value < least:
        raise ConfigError(f"{key} is {value}: it must be at least {least}")
    return value


def _truth(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = properties.get(key, "").strip().lower()
    if text not in ("", "true", "false"):
        raise ConfigError(f"{key} is {text!r}: it must be true or false")
    return default if not text else text == "true"
