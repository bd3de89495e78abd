"""The broker's configuration: Kafka's property names, read once into one frozen, typed object."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ..protocol.config_keys import ConfigError, Scope, check_properties
from ..protocol.handshake import MIN_SECRET_BYTES
from .groups.limits import GroupLimits
from .server import ConnectionLimits, ServerConfig
from .server.handlers.topic_creation import TopicDefaults

log = logging.getLogger(__name__)

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1

# Topic settings whose default a broker setting gives, under another name.
TOPIC_DEFAULT_OF = MappingProxyType(
    {
        "cleanup.policy": "log.cleanup.policy",
        "compression.type": "compression.type",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "flush.messages": "log.flush.interval.messages",
        "index.interval.bytes": "log.index.interval.bytes",
        "max.message.bytes": "message.max.bytes",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.type": "log.message.timestamp.type",
        "min.insync.replicas": "min.insync.replicas",
        "retention.bytes": "log.retention.bytes",
        "retention.ms": "log.retention.ms",
        "segment.bytes": "log.segment.bytes",
        "segment.index.bytes": "log.index.size.max.bytes",
        "segment.jitter.ms": "log.roll.jitter.ms",
        "segment.ms": "log.roll.ms",
        "unclean.leader.election.enable": "unclean.leader.election.enable",
    }
)


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener: where it is bound, and the address that clients are told."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """How this broker follows and leads."""

    lag_time_max_ms: int = 30_000
    fetch_wait_ms_max: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 1024 * 1024
    fetch_response_max_bytes: int = 10 * 1024 * 1024
    fetch_backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000
    watermark_checkpoint_interval_ms: int = 5000


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """How this broker finds and stays in touch with the metadata quorum."""

    voters: Mapping[int, tuple[str, int]]
    secret: bytes
    session_timeout_ms: int = 3000
    heartbeat_interval_ms: int = 500
    controlled_shutdown_timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What a broker is told."""

    node_id: int
    cluster_id: str
    rack: str | None
    log_dirs: tuple[Path, ...]
    listeners: tuple[ListenerConfig, ...]
    inter_broker_listener: str
    quorum: QuorumConfig
    server: ServerConfig = field(default_factory=ServerConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    topics: TopicDefaults = field(default_factory=TopicDefaults)
    groups: GroupLimits = field(default_factory=GroupLimits)
    offset_metadata_max_bytes: int = 4096
    delete_topic_enable: bool = True
    transactional_id_timeout_max_ms: int = 900_000
    recovery_threads_per_data_dir: int = 1
    fetch_answer_max_bytes: int = 57_671_680
    producer_id_expiration_ms: int = 86_400_000
    retention_check_interval_ms: int = 300_000
    # Topic settings by Kafka's topic-level names, as this broker's own settings imply them.
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    # Every setting as it was given, for DescribeConfigs.
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Read Kafka's properties. Raises ConfigError that names the key, the value and what is allowed."""
        for remark in check_properties(properties, Scope.BROKER):
            log.warning("%s", remark)
        read = _Reader(properties)
        roles = [role.strip() for role in read.text("process.roles", "broker").split(",")]
        if "broker" not in roles:
            raise ConfigError(f"process.roles is {','.join(roles)!r}: a broker needs the role broker")
        listeners = _listeners(read)
        return cls(
            node_id=read.number("node.id", None, 0, _INT_MAX),
            cluster_id=read.required("cluster.id"),
            rack=read.text("broker.rack", "") or None,
            log_dirs=_log_dirs(read),
            listeners=listeners,
            inter_broker_listener=_inter_broker_listener(read, listeners),
            quorum=_quorum(read),
            server=_server(read),
            replication=_replication(read),
            topics=TopicDefaults(
                auto_create=read.truth("auto.create.topics.enable", default=True),
                num_partitions=read.number("num.partitions", 1, 1, _INT_MAX),
                replication_factor=read.number("default.replication.factor", 1, 1, 32767),
                offsets_num_partitions=read.number("offsets.topic.num.partitions", 50, 1, _INT_MAX),
                offsets_replication_factor=read.number("offsets.topic.replication.factor", 3, 1, 32767),
                offsets_segment_bytes=read.number("offsets.topic.segment.bytes", 104_857_600, 1, _INT_MAX),
            ),
            groups=GroupLimits(
                min_session_timeout_ms=read.number("group.min.session.timeout.ms", 6000, 0, _INT_MAX),
                max_session_timeout_ms=read.number("group.max.session.timeout.ms", 1_800_000, 0, _INT_MAX),
                max_size=read.number("group.max.size", _INT_MAX, 1, _INT_MAX),
                offsets_retention_ms=60_000 * read.number("offsets.retention.minutes", 10_080, 1, _INT_MAX),
                initial_rebalance_delay_ms=read.number("group.initial.rebalance.delay.ms", 3000, 0, _INT_MAX),
            ),
            offset_metadata_max_bytes=read.number("offset.metadata.max.bytes", 4096, 0, _INT_MAX),
            delete_topic_enable=read.truth("delete.topic.enable", default=True),
            transactional_id_timeout_max_ms=read.number("transaction.max.timeout.ms", 900_000, 1, _INT_MAX),
            fetch_answer_max_bytes=read.number("fetch.max.bytes", 57_671_680, 1024, _INT_MAX),
            producer_id_expiration_ms=read.number("producer.id.expiration.ms", 86_400_000, 1, _INT_MAX),
            retention_check_interval_ms=read.number("log.retention.check.interval.ms", 300_000, 1, _LONG_MAX),
            recovery_threads_per_data_dir=read.number("num.recovery.threads.per.data.dir", 1, 1, 1024),
            topic_settings=MappingProxyType(_topic_settings(read)),
            properties=MappingProxyType(dict(properties)),
        )


class _Reader:
    """Typed access to text; errors say what was wrong and what is allowed."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def text(self, key: str, default: str) -> str:
        return self._properties.get(key, "").strip() or default

    def required(self, key: str) -> str:
        value = self.text(key, "")
        if not value:
            raise ConfigError(f"{key} is missing")
        return value

    def number(self, key: str, default: int | None, least: int, most: int) -> int:
        text = self.required(key) if default is None else self.text(key, str(default))
        try:
            value = int(text)
        except ValueError:
            raise ConfigError(f"{key} is {text!r}: it must be a whole number") from None
        if not least <= value <= most:
            raise ConfigError(f"{key} is {value}: it must be from {least} to {most}")
        return value

    def truth(self, key: str, *, default: bool) -> bool:
        text = self.text(key, "true" if default else "false").lower()
        if text not in ("true", "false"):
            raise ConfigError(f"{key} is {text!r}: it must be true or false")
        return text == "true"

    def addresses(self, key: str, text: str) -> dict[str, tuple[str, int]]:
        """`NAME://host:port,...` by name."""
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


def _listeners(read: _Reader) -> tuple[ListenerConfig, ...]:
    controllers = {name.strip() for name in read.text("controller.listener.names", "CONTROLLER").split(",")}
    bound = {
        name: address
        for name, address in read.addresses("listeners", read.text("listeners", "PLAINTEXT://:9092")).items()
        if name not in controllers
    }
    if not bound:
        raise ConfigError("listeners names no listener for clients")
    told = read.text("advertised.listeners", "")
    advertised = read.addresses("advertised.listeners", told) if told else {}
    unknown = sorted(set(advertised) - set(bound))
    if unknown:
        raise ConfigError(f"advertised.listeners: {unknown[0]} is not among the listeners {sorted(bound)}")
    protocols = read.text("listener.security.protocol.map", "")
    for entry in protocols.split(",") if protocols else ():
        name, _, protocol = entry.strip().partition(":")
        if name in bound and protocol != "PLAINTEXT":
            raise ConfigError(
                f"listener.security.protocol.map: {entry.strip()!r}: only PLAINTEXT is supported"
            )
    return tuple(
        ListenerConfig(name, host, port, *_advertised(advertised.get(name), host, port))
        for name, (host, port) in bound.items()
    )


def _advertised(told: tuple[str, int] | None, host: str, port: int) -> tuple[str, int]:
    if told is not None:
        return told
    return ("localhost" if host in ("", "0.0.0.0", "::") else host), port


def _inter_broker_listener(read: _Reader, listeners: tuple[ListenerConfig, ...]) -> str:
    names = [listener.name for listener in listeners]
    chosen = read.text("inter.broker.listener.name", "PLAINTEXT" if "PLAINTEXT" in names else names[0])
    if chosen not in names:
        raise ConfigError(f"inter.broker.listener.name is {chosen!r}: the listeners are {names}")
    return chosen


def _log_dirs(read: _Reader) -> tuple[Path, ...]:
    text = read.text("log.dirs", "") or read.required("log.dir")
    paths = tuple(Path(entry.strip()) for entry in text.split(",") if entry.strip())
    if len(set(paths)) < len(paths):
        raise ConfigError(f"log.dirs: {text!r} names a directory twice")
    return paths


def _quorum(read: _Reader) -> QuorumConfig:
    voters: dict[int, tuple[str, int]] = {}
    for entry in read.required("controller.quorum.voters").split(","):
        name, at, address = entry.strip().partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and name.isdecimal() and port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(f"controller.quorum.voters: {entry.strip()!r} is not of the form id@host:port")
        voters[int(name)] = (host.strip("[]"), int(port))
    path = Path(read.required("cluster.secret.file"))
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cluster.secret.file: cannot read {path}: {error.strerror}") from None
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigError(
            f"cluster.secret.file: {path} holds {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed"
        )
    return QuorumConfig(
        voters=MappingProxyType(voters),
        secret=secret,
        session_timeout_ms=read.number("broker.session.timeout.ms", 3000, 100, _INT_MAX),
        heartbeat_interval_ms=read.number("broker.heartbeat.interval.ms", 500, 10, _INT_MAX),
        controlled_shutdown_timeout_ms=read.number("controlled.shutdown.timeout.ms", 30_000, 0, _INT_MAX),
    )


def _server(read: _Reader) -> ServerConfig:
    defaults, limits = ServerConfig(), ConnectionLimits()
    budget = read.number("queued.max.request.bytes", -1, -1, _LONG_MAX)
    request_max = read.number("socket.request.max.bytes", limits.request_max_bytes, 1, _INT_MAX)
    return ServerConfig(
        limits=ConnectionLimits(request_max_bytes=request_max),
        max_connections=read.number("max.connections", defaults.max_connections, 0, _INT_MAX),
        connections_max_idle_ms=read.number("connections.max.idle.ms", 600_000, 1, _LONG_MAX),
        backlog=read.number("socket.listen.backlog.size", 50, 1, _INT_MAX),
        # The largest request must fit, and its buffer is a power of two.
        receive_budget_bytes=max(budget if budget > 0 else defaults.receive_budget_bytes, 2 * request_max),
    )


def _replication(read: _Reader) -> ReplicationConfig:
    defaults = ReplicationConfig()
    checkpoint_ms = defaults.watermark_checkpoint_interval_ms
    return ReplicationConfig(
        lag_time_max_ms=read.number("replica.lag.time.max.ms", defaults.lag_time_max_ms, 1, _LONG_MAX),
        fetch_wait_ms_max=read.number("replica.fetch.wait.max.ms", defaults.fetch_wait_ms_max, 1, _INT_MAX),
        fetch_min_bytes=read.number("replica.fetch.min.bytes", defaults.fetch_min_bytes, 0, _INT_MAX),
        fetch_max_bytes=read.number("replica.fetch.max.bytes", defaults.fetch_max_bytes, 0, _INT_MAX),
        fetch_response_max_bytes=read.number(
            "replica.fetch.response.max.bytes", defaults.fetch_response_max_bytes, 0, _INT_MAX
        ),
        fetch_backoff_ms=read.number("replica.fetch.backoff.ms", defaults.fetch_backoff_ms, 0, _INT_MAX),
        socket_timeout_ms=read.number("replica.socket.timeout.ms", defaults.socket_timeout_ms, 1, _INT_MAX),
        watermark_checkpoint_interval_ms=read.number(
            "replica.high.watermark.checkpoint.interval.ms", checkpoint_ms, 1, _LONG_MAX
        ),
    )


def _topic_settings(read: _Reader) -> dict[str, str]:
    """Topic-level defaults; of the retention and roll settings the finest unit that is given counts, as in
    Kafka.
    """
    settings = {
        topic_key: value for topic_key, key in TOPIC_DEFAULT_OF.items() if (value := read.text(key, ""))
    }
    for topic_key, name in (
        ("retention.ms", "log.retention"),
        ("segment.ms", "log.roll"),
        ("segment.jitter.ms", "log.roll.jitter"),
    ):
        if topic_key in settings:
            continue
        for unit, milliseconds in (("minutes", 60_000), ("hours", 3_600_000)):
            if read.text(f"{name}.{unit}", ""):
                count = read.number(f"{name}.{unit}", None, -1, _INT_MAX)
                settings[topic_key] = str(count * milliseconds if count >= 0 else -1)
                break
    return settings
