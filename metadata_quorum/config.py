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
from ..protocol.settings.config_fields import default_text, from_settings, s_of_ms, setting, setting_values
from ..protocol.settings.config_keys import CLUSTER_WIDE_KEYS, ConfigError, Scope, check_properties

logger = logging.getLogger(__name__)

QUORUM_SIZES = (1, 3, 5)


def _is_any(choice: str) -> bool:
    return choice == "any"


@dataclass(frozen=True, slots=True)
class DutySettings:
    """Settings of the actions that the quorum's leader takes on its own, such as leader balancing and the removal of
    unused transactional ids."""

    imbalance_percentage: int = setting("leader.imbalance.per.broker.percentage")
    """Percentage of the partitions that prefer a broker, above which partitions led by other brokers return to it."""
    transactional_id_expiration_ms: int = setting("transactional.id.expiration.ms")
    unused_ids_check_interval_s: float = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", s_of_ms
    )
    expired_tokens_check_interval_s: float = setting("delegation.token.expiry.check.interval.ms", s_of_ms)


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
    broker_session_timeout_ms: int = setting("broker.session.timeout.ms")
    broker_silence_fence_ms: int = setting("broker.silence.fence.ms")
    leader_imbalance_check_interval_seconds: int = setting("leader.imbalance.check.interval.seconds")
    auto_leader_rebalance_enable: bool = setting("auto.leader.rebalance.enable", bool)
    duties: DutySettings = field(default_factory=DutySettings)
    #: settings that elections use, for all brokers unless set dynamically
    cluster_defaults: Mapping[str, str] = field(default_factory=dict)
    #: an operator states that this node's folder was lost and the node may join again with an empty one
    replace_empty: bool = False
    #: an operator states that this node's folder was restored from an older copy on purpose
    restored: bool = False
    #: bytes of the Raft log after which a snapshot is made
    snapshot_bytes: int = setting("metadata.log.max.record.bytes.between.snapshots")
    feed_records_max: int = 100_000
    #: users that an operator adds to a cluster that is not formed yet
    first_users: tuple[ScramCredentialChange, ...] = ()
    #: whether a refused heartbeat port proves the death of a broker on another machine, too
    believes_any_refusal: bool = setting("broker.fence.on.refusal", _is_any)
    #: TLS under the links of this node; None for none
    tls: RenewedNodeTls | None = None
    #: users who may change ACLs and users; None for everybody
    authorizer: AuthorizerSettings | None = None

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> "QuorumNodeConfig":
        """Read Kafka's properties.

        Besides the keys of the fields: node.id, process.roles, controller.quorum.voters (id@host:port,...), listeners,
        cluster.id, cluster.secret.file, quorum.secret.file, cluster.link.encryption, metadata.log.dir or else the first
        of log.dirs, min.insync.replicas, unclean.leader.election.enable. Known keys of other roles are ignored. Raises
        ConfigError naming the key, the value and the allowed values.
        """
        check_properties(properties, Scope.QUORUM)
        roles = [role.strip() for role in properties.get("process.roles", "controller").split(",")]
        if "controller" not in roles:
            raise ConfigError(
                f"process.roles is {','.join(roles)!r}: a quorum node needs the role controller"
            )
        node_id = int(_required(properties, "node.id"))
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
            duties=from_settings(DutySettings, properties),
            authorizer=AuthorizerSettings.from_properties(properties),
            cluster_defaults={name: properties[name] for name in CLUSTER_WIDE_KEYS if name in properties},
            **setting_values(QuorumNodeConfig, properties),
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
    controllers = properties.get("controller.listener.names", default_text("controller.listener.names"))
    for listener in properties.get("listeners", "").split(","):
        name, separator, address = listener.strip().partition("://")
        if separator and name == controllers:
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
