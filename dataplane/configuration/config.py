"""The broker's configuration: Kafka's property names, read once into one frozen, typed object."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...network.loopback import is_loopback
from ...network.resolving import WILDCARDS
from ...protocol.cluster.authorizer_settings import AuthorizerSettings
from ...protocol.credentials.delegation_tokens import TokenLifetimes
from ...protocol.session.handshake import LinkSecurity
from ...protocol.session.node_secrets import Secrets, checked_secrets, read_secrets
from ...protocol.settings.config_fields import from_settings, setting, setting_values
from ...protocol.settings.config_keys import NODE_KEYS, ConfigError, Scope, check_properties
from ...protocol.settings.config_listeners import PROTOCOL_MAP, listener_of, mapped_protocols
from ...protocol.settings.security_protocol import SecurityProtocol
from ..cluster.topic_creation import ShareStateTopic, TopicDefaults
from ..fetching.replica_selection import Selector, selector_named
from ..groups.limits import GroupLimits
from ..groups.settings import consumer_limits, share_group_limits
from ..handlers.fetch import FetchSettings
from ..quotas import QuotaWindows
from ..replication.follower.fetcher import LinkSettings
from ..replication.follower.fetching import FetchLimits
from ..replication.leader.follower_session import READ_WATERMARK_DELAY_S, WATERMARK_DELAY_S
from ..security.node_tls import NodeTlsSettings, node_tls_settings
from ..security.tls_settings import TlsSettings, tls_settings
from ..server import ConnectionLimits, ServerConfig
from ..storage.folder_settings import CORDONED, check_cordoned

if TYPE_CHECKING:
    from .sasl import SaslConfig

logger = logging.getLogger(__name__)

_PROTOCOLS = tuple(SecurityProtocol)


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener: its bound address, its advertised address, if any, and its security."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    is_advertised: bool = True
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsSettings | None = None
    sasl: SaslConfig | None = None


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """The settings by which this broker fetches from leaders and watches its followers."""

    lag_time_max_ms: int = setting("replica.lag.time.max.ms")
    watermark_checkpoint_interval_ms: int = setting("replica.high.watermark.checkpoint.interval.ms")
    limits: FetchLimits = field(default_factory=FetchLimits)
    link: LinkSettings = field(default_factory=LinkSettings)


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The settings of this broker's session with the metadata quorum: addresses, security and time limits."""

    voters: Mapping[int, tuple[str, int]]
    security: LinkSecurity
    tls: NodeTlsSettings | None = None
    session_timeout_ms: int = setting("broker.session.timeout.ms")
    silence_fence_ms: int = setting("broker.silence.fence.ms")
    heartbeat_interval_ms: int = setting("broker.heartbeat.interval.ms")
    controlled_shutdown_timeout_ms: int = setting("controlled.shutdown.timeout.ms")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The configuration of a broker."""

    node_id: int
    cluster_id: str
    rack: str | None
    host: str | None
    log_dirs: tuple[Path, ...]
    listeners: tuple[ListenerConfig, ...]
    inter_broker_listener: str
    quorum: QuorumConfig
    server: ServerConfig = field(default_factory=ServerConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    fetch: FetchSettings = field(default_factory=FetchSettings)
    topics: TopicDefaults = field(default_factory=TopicDefaults)
    groups: GroupLimits = field(default_factory=GroupLimits)
    offset_metadata_max_bytes: int = setting("offset.metadata.max.bytes")
    delete_topic_enable: bool = setting("delete.topic.enable", bool)
    recovery_threads_per_data_dir: int = setting("num.recovery.threads.per.data.dir")
    producer_id_expiration_ms: int = setting("producer.id.expiration.ms")
    producer_id_expiration_check_interval_ms: int = setting("producer.id.expiration.check.interval.ms")
    fenced_linger_ms: int = setting("broker.fenced.linger.ms")
    tls_reload_interval_ms: int = setting("ssl.reload.interval.ms")
    retention_check_interval_ms: int = setting("log.retention.check.interval.ms")
    offsets_retention_check_interval_ms: int = setting("offsets.retention.check.interval.ms")
    verify_bytes_per_second: int = setting("log.verify.bytes.per.second")
    # True if the connections of a user are closed when the password is changed or deleted.
    credential_changes_close: bool = setting("sasl.credential.change.closes.sessions", bool)
    # Keys from which secrets of delegation tokens are derived; None disables tokens.
    token_keys: Secrets | None = None
    # Folders of files that options of mirrors may name.
    mirror_allowed_paths: tuple[Path, ...] = ()
    token_lifetimes: TokenLifetimes = field(default_factory=TokenLifetimes)
    # None permits every operation to every client.
    authorizer: AuthorizerSettings | None = None
    # True if an operator restored the quorum from copies on purpose: this broker then ignores what the quorum has lost.
    restored: bool = False
    # All settings with their values, for DescribeConfigs and as defaults of topics.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    # References in the file whose values come from elsewhere. DescribeConfigs shows them instead of the values.
    references: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def watermark_delay_s(self) -> float:
        """Seconds for which a moved high watermark may wait for records that carry it to followers. The delay is
        shorter if consumers may read from followers."""
        return READ_WATERMARK_DELAY_S if self.fetch.selector is not None else WATERMARK_DELAY_S

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Return the configuration from Kafka's properties. Raises ConfigError that names the key, the value and the
        allowed values."""
        for remark in check_properties(properties, Scope.BROKER):
            logger.warning("%s", remark)
        read = _Reader(properties)
        roles = [role.strip() for role in read.text("process.roles").split(",")]
        if "broker" not in roles:
            raise ConfigError(f"process.roles is {','.join(roles)!r}: a broker needs the role broker")
        voters = _voters(read)
        listeners = _listeners(read, voters)
        log_dirs = _log_dirs(read)
        check_cordoned(read.text(CORDONED), log_dirs)
        return cls(
            node_id=read.number("node.id"),
            cluster_id=read.required("cluster.id"),
            rack=read.text("broker.rack") or None,
            host=read.text("broker.host") or None,
            log_dirs=log_dirs,
            listeners=listeners,
            inter_broker_listener=_inter_broker_listener(read, listeners),
            quorum=_quorum(read, voters),
            server=_server(properties),
            replication=replace(
                from_settings(ReplicationConfig, properties),
                limits=from_settings(FetchLimits, properties),
                link=from_settings(LinkSettings, properties),
            ),
            fetch=replace(from_settings(FetchSettings, properties), selector=_replica_selector(read)),
            topics=replace(
                from_settings(TopicDefaults, properties), share_states=ShareStateTopic.of(properties)
            ),
            groups=replace(
                from_settings(GroupLimits, properties),
                consumer=consumer_limits(properties),
                share=share_group_limits(properties),
            ),
            token_keys=_token_keys(read),
            mirror_allowed_paths=_mirror_allowed_paths(read),
            token_lifetimes=TokenLifetimes(
                read.number("delegation.token.max.lifetime.ms"),
                read.number("delegation.token.expiry.time.ms"),
            ),
            authorizer=AuthorizerSettings.from_properties(properties),
            properties=MappingProxyType(dict(properties)),
            **setting_values(cls, properties),
        )


class _Reader:
    """A reader of typed values from the text properties of a configuration file. Errors contain the wrong value and the
    allowed values.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties

    def text(self, key: str) -> str:
        """Return the text of a configuration key, or its default; empty if the key has no default."""
        return self.properties.get(key, "").strip() or NODE_KEYS[key].default or ""

    def required(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise ConfigError(f"{key} is missing")
        return value

    def number(self, key: str) -> int:
        """Return the value of a configuration key as a whole number. A key without a default is required: ConfigError
        is raised if it is missing.
        """
        value = NODE_KEYS[key].parse(self.required(key))
        assert isinstance(value, int), f"{key} is no whole number by its type"
        return value

    def addresses(self, key: str, text: str) -> dict[str, tuple[str, int]]:
        """Return the addresses of a list `NAME://host:port,...`, by name."""
        found: dict[str, tuple[str, int]] = {}
        for entry in text.split(","):
            name, separator, address = entry.strip().partition("://")
            host, colon, port = address.rpartition(":")
            if not (name and separator and colon and port.isdecimal() and int(port) <= 65535):
                raise ConfigError(f"{key}: {entry.strip()!r} is not of the form NAME://host:port")
            if name in found:
                raise ConfigError(f"{key}: the listener {name} stands there twice")
            found[name] = (host.strip("[]"), int(port))
        return found


def _listeners(read: _Reader, voters: Mapping[int, tuple[str, int]]) -> tuple[ListenerConfig, ...]:
    controllers = {name.strip() for name in read.text("controller.listener.names").split(",")}
    bound = {
        name: address
        for name, address in read.addresses("listeners", read.text("listeners")).items()
        if name not in controllers
    }
    if not bound:
        raise ConfigError("listeners names no listener for clients")
    _check_apart(bound)
    told = read.text("advertised.listeners")
    advertised = read.addresses("advertised.listeners", told) if told else bound
    unknown = sorted(set(advertised) - set(bound))
    if unknown:
        raise ConfigError(f"advertised.listeners: {unknown[0]} is not among the listeners {sorted(bound)}")
    protocols = _security_protocols(read, bound)
    _check_prefixes(read.properties, [*bound, *controllers])
    return tuple(
        ListenerConfig(
            name,
            host,
            port,
            *_advertised(name, advertised.get(name, (host, port)), voters.values()),
            name in advertised,
            protocols[name],
            _tls(read, name, protocols[name]),
            _sasl(read, name, protocols[name]),
        )
        for name, (host, port) in bound.items()
    )


def _tls(read: _Reader, name: str, protocol: SecurityProtocol) -> TlsSettings | None:
    if not protocol.has_tls:
        return None
    return tls_settings(read.properties, name, asks_for_login=protocol.has_sasl)


def _sasl(read: _Reader, name: str, protocol: SecurityProtocol) -> SaslConfig | None:
    if not protocol.has_sasl:
        return None
    from .sasl import sasl_config  # A late import: only brokers whose listeners use SASL need the module.

    return sasl_config(read.properties, name)


def _advertised(
    listener: str, address: tuple[str, int], quorum: Iterable[tuple[str, int]]
) -> tuple[str, int]:
    """Return the address that clients dial. A wildcard is replaced by the name of this machine, as in Apache Kafka.

    The name is `localhost` if the quorum is on this machine alone, so that the machine's name need not resolve. Raises
    ConfigError if the machine has no name that others could dial.
    """
    host, port = address
    if host not in WILDCARDS:
        return address
    if all(is_loopback(voter) for voter, _ in quorum):
        return "localhost", port
    own = socket.gethostname()
    if not own or is_loopback(own) or own.startswith("localhost."):
        raise ConfigError(
            f"advertised.listeners is missing: the listener {listener} takes every address, quorum nodes are on other"
            f" machines, and this machine is called {own!r}, which leads nobody here. Set it to {listener}://HOST:{port},"
            " with the host by which clients and other brokers reach this machine"
        )
    return own, port


def _check_apart(bound: Mapping[str, tuple[str, int]]) -> None:
    """Raise ConfigError for two listeners at one address, and for names that differ only in their case."""
    by_address: dict[tuple[str, int], str] = {}
    by_name: dict[str, str] = {}
    for name, address in bound.items():
        if address[1] and address in by_address:
            raise ConfigError(
                f"listeners: {by_address[address]} and {name} have the same address {address[0]}:{address[1]}"
            )
        by_address[address] = name
        if name.lower() in by_name:
            raise ConfigError(
                f"listeners: {by_name[name.lower()]} and {name} have the same name in lower case"
            )
        by_name[name.lower()] = name


def _security_protocols(read: _Reader, names: Iterable[str]) -> dict[str, SecurityProtocol]:
    """Return the protocol of each listener. A listener without an entry in the map has the name of its protocol."""
    mapped = mapped_protocols(read.properties)
    found: dict[str, SecurityProtocol] = {}
    for name in names:
        if name not in mapped and name not in _PROTOCOLS:
            raise ConfigError(
                f"{PROTOCOL_MAP}: it has no protocol for the listener {name}; there are {', '.join(_PROTOCOLS)}"
            )
        found[name] = mapped[name] if name in mapped else SecurityProtocol(name)
    return found


def _check_prefixes(properties: Mapping[str, str], listeners: Iterable[str]) -> None:
    """Raise ConfigError for a key of an unknown listener: the listener it is meant to secure would be open."""
    known = {name.lower() for name in listeners}
    for key in properties:
        listener = listener_of(key)
        if listener is not None and listener not in known:
            raise ConfigError(
                f"{key}: there is no listener {listener!r}; in lower case there are {sorted(known)}"
            )


def _inter_broker_listener(read: _Reader, listeners: tuple[ListenerConfig, ...]) -> str:
    names = [listener.name for listener in listeners if listener.is_advertised]
    key, chosen = "inter.broker.listener.name", read.text("inter.broker.listener.name")
    protocol = read.text("security.inter.broker.protocol")
    if chosen and protocol:
        raise ConfigError(f"{key} and security.inter.broker.protocol are both given: only one of them may be")
    if protocol:
        key, chosen = "security.inter.broker.protocol", protocol
    chosen = chosen or ("PLAINTEXT" if "PLAINTEXT" in names else names[0])
    if chosen not in names:
        raise ConfigError(f"{key} is {chosen!r}: the advertised listeners are {names}")
    return chosen


def _mirror_allowed_paths(read: _Reader) -> tuple[Path, ...]:
    key = "mirror.allowed.paths"
    paths = tuple(Path(part.strip()) for part in read.text(key).split(",") if part.strip())
    for path in paths:
        if not path.is_absolute():
            raise ConfigError(
                f"{key} names {path}: allowed are absolute paths of folders, with commas between"
            )
    return paths


def _log_dirs(read: _Reader) -> tuple[Path, ...]:
    text = read.text("log.dirs") or read.required("log.dir")
    paths = tuple(Path(entry.strip()) for entry in text.split(",") if entry.strip())
    if len(set(paths)) < len(paths):
        raise ConfigError(f"log.dirs: {text!r} names a directory twice")
    return paths


def _replica_selector(read: _Reader) -> Selector | None:
    try:
        return selector_named(read.text("replica.selector.class"))
    except ValueError as error:
        raise ConfigError(f"replica.selector.class: {error}") from None


def _voters(read: _Reader) -> dict[int, tuple[str, int]]:
    voters: dict[int, tuple[str, int]] = {}
    for entry in read.required("controller.quorum.voters").split(","):
        name, at, address = entry.strip().partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and name.isdecimal() and port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(f"controller.quorum.voters: {entry.strip()!r} is not of the form id@host:port")
        voters[int(name)] = (host.strip("[]"), int(port))
    return voters


def _quorum(read: _Reader, voters: Mapping[int, tuple[str, int]]) -> QuorumConfig:
    secrets = read_secrets("cluster.secret.file", read.required("cluster.secret.file"))
    if read.text("quorum.secret.file") and "controller" not in read.text("process.roles"):
        logger.warning("quorum.secret.file is for quorum nodes alone: keep that secret from brokers")
    requires_encryption = read.text("cluster.link.encryption") == "required"
    return QuorumConfig(
        voters=MappingProxyType(voters),
        security=LinkSecurity(secrets, requires_encryption=requires_encryption),
        tls=node_tls_settings(read.properties),
        **setting_values(QuorumConfig, read.properties),
    )


def _token_keys(read: _Reader) -> Secrets | None:
    key, file = "delegation.token.secret.key", "delegation.token.secret.file"
    text, path = read.text(key), read.text(file)
    if text and path:
        raise ConfigError(f"{key} and {file} are both given: only one of them may be")
    if text:
        return checked_secrets(key, "it", text.encode())
    return read_secrets(file, path) if path else None


def _server(properties: Mapping[str, str]) -> ServerConfig:
    given = from_settings(ServerConfig, properties)
    limits = from_settings(ConnectionLimits, properties)
    return replace(
        given,
        limits=limits,
        # The largest request must fit, and its buffer is a power of two.
        receive_budget_bytes=max(given.receive_budget_bytes, 2 * limits.request_max_bytes),
        quota_windows=from_settings(QuotaWindows, properties),
    )
