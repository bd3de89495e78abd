"""Every configuration key, declared once: name, type, default, bounds, who reads it, and what it means.

Names, defaults and meanings are Kafka's, where Kafka has the key; keys of our own are marked so. A topic key
falls back to its broker synonyms (`retention.ms` to `log.retention.ms`, then `.minutes`, then `.hours`).
Keys of an ordinary server.properties that mean nothing here are accepted and listed in `IGNORED` with why.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

Value = bool | int | float | str | list[str] | None

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1


class ConfigError(ValueError):
    """A key or a value that cannot be used; the text names it and says what is allowed."""


class Type(Enum):
    """Types as DescribeConfigs reports them; the value is Kafka's number."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Scope(Enum):
    """Who reads a key, and whether it may change while the process runs."""

    TOPIC = "topic"
    BROKER = "broker"
    DYNAMIC_BROKER = "broker, dynamic"
    NODE = "broker and quorum node"
    QUORUM = "quorum node"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `default` is text as in a file, None if there is none; bounds are inclusive."""

    name: str
    type: Type
    default: str | None
    scope: Scope
    about: str
    low: int | None = None
    high: int | None = None
    allowed: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, int], ...] = ()
    """Of a topic key: broker keys it falls back to, each with the factor that turns its unit into ours."""

    @property
    def dynamic(self) -> bool:
        """Whether it may be altered while the cluster runs."""
        return self.scope in (Scope.TOPIC, Scope.DYNAMIC_BROKER)


_NUMBERS = {
    Type.INT: (-(2**31), INT_MAX),
    Type.SHORT: (-(2**15), 2**15 - 1),
    Type.LONG: (-(2**63), LONG_MAX),
}


def parse(key: ConfigKey, text: str) -> Value:
    """The value that `text` means for `key`. Raises ConfigError."""
    text = text.strip()
    match key.type:
        case Type.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ConfigError(f"{key.name} must be true or false, not {text!r}")
            return text.lower() == "true"
        case Type.INT | Type.SHORT | Type.LONG:
            return _parse_number(key, text)
        case Type.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise ConfigError(f"{key.name} must be a number, not {text!r}") from None
        case Type.LIST:
            items = [item.strip() for item in text.split(",") if item.strip()]
            for item in items:
                _check_allowed(key, item)
            return items
        case _:
            _check_allowed(key, text)
            return text


def _parse_number(key: ConfigKey, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"{key.name} must be a whole number, not {text!r}") from None
    least, most = _NUMBERS[key.type]
    low = least if key.low is None else key.low
    high = most if key.high is None else key.high
    if not low <= number <= high:
        raise ConfigError(f"{key.name} must be between {low} and {high}, not {number}")
    return number


def _check_allowed(key: ConfigKey, text: str) -> None:
    if key.allowed and text not in key.allowed:
        raise ConfigError(f"{key.name} must be one of {', '.join(key.allowed)}, not {text!r}")


# ---------------------------------------------------------------- topics


def _topic(
    name: str,
    kind: Type,
    default: str,
    about: str,
    *synonyms: str | tuple[str, int],
    low: int | None = None,
    high: int | None = None,
    allowed: tuple[str, ...] = (),
) -> ConfigKey:
    pairs = tuple((s, 1) if isinstance(s, str) else s for s in synonyms)
    return ConfigKey(name, kind, default, Scope.TOPIC, about, low, high, allowed, pairs)


_MINUTE, _HOUR = 60_000, 3_600_000
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

TOPIC_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in (
        _topic(
            "cleanup.policy",
            Type.LIST,
            "delete",
            "What happens to old records.",
            "log.cleanup.policy",
            allowed=("delete", "compact"),
        ),
        _topic(
            "compression.type",
            Type.STRING,
            "producer",
            "Only `producer` changes nothing: batches are stored as sent.",
            "compression.type",
            allowed=_CODECS,
        ),
        _topic(
            "delete.retention.ms",
            Type.LONG,
            "86400000",
            "How long tombstones stay.",
            "log.cleaner.delete.retention.ms",
            low=0,
        ),
        _topic(
            "file.delete.delay.ms",
            Type.LONG,
            "60000",
            "Before a deleted segment leaves the disk.",
            "log.segment.delete.delay.ms",
            low=0,
        ),
        _topic(
            "flush.messages",
            Type.LONG,
            str(LONG_MAX),
            "Records between flushes; 1: durable before acknowledged.",
            "log.flush.interval.messages",
            low=1,
        ),
        _topic("flush.ms", Type.LONG, str(LONG_MAX), "Time between flushes.", "log.flush.interval.ms", low=0),
        _topic(
            "index.interval.bytes",
            Type.INT,
            "4096",
            "Bytes of log between index entries.",
            "log.index.interval.bytes",
            low=0,
        ),
        _topic(
            "max.compaction.lag.ms",
            Type.LONG,
            str(LONG_MAX),
            "A record is compacted at the latest after this.",
            "log.cleaner.max.compaction.lag.ms",
            low=1,
        ),
        _topic(
            "max.message.bytes",
            Type.INT,
            "1048588",
            "Largest record batch, compressed as it is.",
            "message.max.bytes",
            low=0,
        ),
        _topic(
            "message.timestamp.after.max.ms",
            Type.LONG,
            "3600000",
            "How far ahead of the clock a timestamp may be.",
            "log.message.timestamp.after.max.ms",
            low=0,
        ),
        _topic(
            "message.timestamp.before.max.ms",
            Type.LONG,
            str(LONG_MAX),
            "How far behind the clock a timestamp may be.",
            "log.message.timestamp.before.max.ms",
            low=0,
        ),
        _topic(
            "message.timestamp.type",
            Type.STRING,
            "CreateTime",
            "Whose timestamp a record has.",
            "log.message.timestamp.type",
            allowed=("CreateTime", "LogAppendTime"),
        ),
        _topic(
            "min.cleanable.dirty.ratio",
            Type.DOUBLE,
            "0.5",
            "Dirty share of the log at which compaction runs.",
            "log.cleaner.min.cleanable.ratio",
        ),
        _topic(
            "min.compaction.lag.ms",
            Type.LONG,
            "0",
            "A record stays uncompacted at least so long.",
            "log.cleaner.min.compaction.lag.ms",
            low=0,
        ),
        _topic(
            "min.insync.replicas",
            Type.INT,
            "1",
            "In-sync replicas that acks=all needs.",
            "min.insync.replicas",
            low=1,
        ),
        _topic(
            "preallocate",
            Type.BOOLEAN,
            "false",
            "Accepted; segments are never preallocated.",
            "log.preallocate",
        ),
        _topic(
            "retention.bytes",
            Type.LONG,
            "-1",
            "Size of a partition above which old segments go; -1: no limit.",
            "log.retention.bytes",
        ),
        _topic(
            "retention.ms",
            Type.LONG,
            "604800000",
            "Age at which segments go; -1: never.",
            "log.retention.ms",
            ("log.retention.minutes", _MINUTE),
            ("log.retention.hours", _HOUR),
            low=-1,
        ),
        _topic(
            "segment.bytes",
            Type.INT,
            "1073741824",
            "Size at which a new segment begins.",
            "log.segment.bytes",
            low=1024,
        ),
        _topic(
            "segment.index.bytes",
            Type.INT,
            "10485760",
            "Size of an index at which a new segment begins.",
            "log.index.size.max.bytes",
            low=4,
        ),
        _topic(
            "segment.jitter.ms",
            Type.LONG,
            "0",
            "Random part of segment.ms.",
            "log.roll.jitter.ms",
            ("log.roll.jitter.hours", _HOUR),
            low=0,
        ),
        _topic(
            "segment.ms",
            Type.LONG,
            "604800000",
            "Age at which a new segment begins.",
            "log.roll.ms",
            ("log.roll.hours", _HOUR),
            low=1,
        ),
        _topic(
            "unclean.leader.election.enable",
            Type.BOOLEAN,
            "false",
            "Let a replica lead that may lack committed records.",
            "unclean.leader.election.enable",
        ),
    )
}

# ---------------------------------------------------------------- brokers and quorum nodes


def _key(
    name: str,
    kind: Type,
    default: str | None,
    scope: Scope,
    about: str,
    low: int | None = None,
    high: int | None = None,
    allowed: tuple[str, ...] = (),
) -> ConfigKey:
    return ConfigKey(name, kind, default, scope, about, low, high, allowed)


_B, _D, _N, _Q = Scope.BROKER, Scope.DYNAMIC_BROKER, Scope.NODE, Scope.QUORUM

_TOPIC_DEFAULTS = tuple(
    ConfigKey(
        synonym,
        Type.LONG if key.type is Type.LONG else key.type,
        key.default if position == 0 and len(key.synonyms) == 1 else None,
        Scope.DYNAMIC_BROKER,
        f"Default of the topics' {key.name}" + ("." if factor == 1 else f" (in units of {factor} ms)."),
        key.low if factor == 1 else None,
        key.high,
        key.allowed,
    )
    for key in TOPIC_KEYS.values()
    for position, (synonym, factor) in enumerate(key.synonyms)
)

BROKER_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in (
        *_TOPIC_DEFAULTS,
        # identity and addresses
        _key("node.id", Type.INT, None, _N, "Unique among brokers, and among quorum nodes.", 0),
        _key("broker.id", Type.INT, None, _N, "The older name of node.id.", 0),
        _key(
            "process.roles",
            Type.LIST,
            None,
            _N,
            "broker or controller (a quorum node).",
            allowed=("broker", "controller"),
        ),
        _key("cluster.id", Type.STRING, None, _N, "Ours. Names the cluster; a node refuses another's data."),
        _key(
            "cluster.secret.file",
            Type.STRING,
            None,
            _N,
            "Ours. File with the secret that nodes prove to know.",
        ),
        _key("broker.rack", Type.STRING, None, _B, "Replicas are spread over racks."),
        _key("listeners", Type.LIST, None, _N, "Where to listen: NAME://host:port, ..."),
        _key(
            "advertised.listeners",
            Type.LIST,
            None,
            _B,
            "What clients are told, if it differs from listeners.",
        ),
        _key(
            "inter.broker.listener.name", Type.STRING, None, _B, "Listener that brokers use among themselves."
        ),
        _key("controller.quorum.voters", Type.LIST, None, _N, "The quorum: id@host:port, ..."),
        _key("controller.listener.names", Type.LIST, None, _N, "Accepted; a quorum node has one listener."),
        _key(
            "listener.security.protocol.map",
            Type.LIST,
            None,
            _N,
            "Protocol of each listener name; PLAINTEXT only so far.",
        ),
        # folders
        _key("log.dirs", Type.LIST, None, _N, "Data folders."),
        _key("log.dir", Type.STRING, "/tmp/kafka-logs", _N, "Data folder, if log.dirs is not given."),
        _key(
            "metadata.log.dir",
            Type.STRING,
            None,
            _Q,
            "A quorum node's folder; the first of log.dirs otherwise.",
        ),
        _key("num.recovery.threads.per.data.dir", Type.INT, "4", _B, "Threads that open logs at start.", 1),
        _key(
            "log.flush.offset.checkpoint.interval.ms",
            Type.INT,
            "60000",
            _B,
            "Between checkpoints of recovery points.",
            1,
        ),
        # topics
        _key("num.partitions", Type.INT, "1", _B, "Partitions of a topic whose creator does not say.", 1),
        _key(
            "default.replication.factor",
            Type.INT,
            "1",
            _B,
            "Replicas of a topic whose creator does not say.",
            1,
        ),
        _key("auto.create.topics.enable", Type.BOOLEAN, "true", _B, "Create topics that clients ask for."),
        _key("delete.topic.enable", Type.BOOLEAN, "true", _B, "Whether topics may be deleted."),
        _key("offsets.topic.num.partitions", Type.INT, "50", _B, "Partitions of __consumer_offsets.", 1),
        _key("offsets.topic.replication.factor", Type.SHORT, "3", _B, "Replicas of __consumer_offsets.", 1),
        _key(
            "offsets.topic.segment.bytes",
            Type.INT,
            "104857600",
            _B,
            "Segment size of __consumer_offsets.",
            1024,
        ),
        # groups
        _key(
            "group.initial.rebalance.delay.ms",
            Type.INT,
            "3000",
            _B,
            "How long a new group waits for more members.",
            0,
        ),
        _key("group.min.session.timeout.ms", Type.INT, "6000", _B, "Shortest session timeout allowed.", 0),
        _key("group.max.session.timeout.ms", Type.INT, "1800000", _B, "Longest session timeout allowed.", 0),
        _key("group.max.size", Type.INT, str(INT_MAX), _B, "Members that a group may have.", 1),
        _key("offset.metadata.max.bytes", Type.INT, "4096", _B, "Largest text kept with an offset.", 0),
        _key("offsets.commit.timeout.ms", Type.INT, "5000", _B, "How long a commit waits for replicas.", 1),
        # network
        _key("socket.request.max.bytes", Type.INT, "104857600", _B, "Largest request.", 1),
        _key("max.connections", Type.INT, str(INT_MAX), _B, "Connections at a time.", 0),
        _key(
            "connections.max.idle.ms", Type.LONG, "600000", _B, "Idle connections are closed after this.", 1
        ),
        _key("socket.listen.backlog.size", Type.INT, "512", _B, "Connections that wait to be accepted.", 1),
        _key(
            "queued.max.request.bytes",
            Type.LONG,
            "268435456",
            _B,
            "Memory for requests that are arriving.",
            1,
        ),
        _key("fetch.max.bytes", Type.INT, "57671680", _B, "Most that one fetch is answered with.", 1024),
        # replication
        _key(
            "replica.lag.time.max.ms",
            Type.LONG,
            "30000",
            _B,
            "A follower that is behind so long leaves the ISR.",
            1,
        ),
        _key(
            "replica.fetch.max.bytes",
            Type.INT,
            "1048576",
            _B,
            "Most a follower asks of one partition at a time.",
            0,
        ),
        _key(
            "replica.fetch.response.max.bytes",
            Type.INT,
            "10485760",
            _B,
            "Most a follower asks for at a time.",
            0,
        ),
        _key(
            "replica.fetch.wait.max.ms",
            Type.INT,
            "500",
            _B,
            "How long a follower's fetch waits for records.",
            1,
        ),
        _key(
            "replica.high.watermark.checkpoint.interval.ms",
            Type.LONG,
            "5000",
            _B,
            "Between checkpoints of high watermarks.",
            1,
        ),
        _key(
            "producer.id.expiration.ms",
            Type.INT,
            "86400000",
            _D,
            "An idle producer id is forgotten after this.",
            1,
        ),
        # liveness and shutdown
        _key(
            "broker.session.timeout.ms",
            Type.INT,
            "3000",
            _N,
            "A broker not heard of for so long is fenced.",
            100,
        ),
        _key("broker.heartbeat.interval.ms", Type.INT, "500", _B, "Between a broker's heartbeats.", 10),
        _key(
            "controlled.shutdown.enable", Type.BOOLEAN, "true", _B, "Move leaderships away before stopping."
        ),
        _key("controlled.shutdown.timeout.ms", Type.INT, "30000", _B, "Ours. How long that may take.", 0),
        _key(
            "auto.leader.rebalance.enable",
            Type.BOOLEAN,
            "true",
            _Q,
            "Give preferred leaders their partitions back.",
        ),
        _key(
            "leader.imbalance.check.interval.seconds", Type.LONG, "300", _Q, "How often to look for that.", 1
        ),
        _key(
            "leader.imbalance.per.broker.percentage",
            Type.INT,
            "10",
            _Q,
            "Share of a broker's partitions that may be led elsewhere.",
            0,
            100,
        ),
        _key(
            "controller.quorum.election.timeout.ms",
            Type.INT,
            "150",
            _Q,
            "Shortest time without a leader before an election.",
            50,
        ),
    )
}

IGNORED: Final[Mapping[str, str]] = {
    "num.network.threads": "one event loop serves the network",
    "num.io.threads": "one event loop serves requests; disks have their own threads",
    "num.replica.fetchers": "one connection to each leader's broker is enough",
    "background.threads": "there are none",
    "socket.send.buffer.bytes": "the kernel tunes socket buffers",
    "socket.receive.buffer.bytes": "the kernel tunes socket buffers",
    "queued.max.requests": "see queued.max.request.bytes",
    "log.retention.check.interval.ms": "retention is not there yet",
    "log.cleaner.enable": "compaction is not there yet",
    "log.cleaner.threads": "compaction is not there yet",
    "transaction.state.log.replication.factor": "the transaction log is the quorum's log",
    "transaction.state.log.min.isr": "the transaction log is the quorum's log",
    "transaction.state.log.num.partitions": "the transaction log is the quorum's log",
    "share.coordinator.state.topic.replication.factor": "share groups are not there",
    "share.coordinator.state.topic.min.isr": "share groups are not there",
    "zookeeper.connect": "there is no ZooKeeper",
    "zookeeper.connection.timeout.ms": "there is no ZooKeeper",
    "group.coordinator.rebalance.protocols": "classic groups only so far",
    "offsets.retention.minutes": "offsets do not expire yet",
    "offsets.retention.check.interval.ms": "offsets do not expire yet",
}

# ---------------------------------------------------------------- questions


def topic_key(name: str) -> ConfigKey:
    """The topic key. Raises ConfigError that names the nearest one."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise ConfigError(unknown("topic configuration", name, TOPIC_KEYS))
    return key


def broker_key(name: str) -> ConfigKey:
    """The broker or quorum node key. Raises ConfigError that names the nearest one."""
    key = BROKER_KEYS.get(name)
    if key is None:
        raise ConfigError(unknown("configuration key", name, [*BROKER_KEYS, *IGNORED]))
    return key


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The text of an error about a name that is not among `known`."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"unknown {what} {name!r}" + (f": did you mean {near[0]}?" if near else "")


def check_properties(properties: Mapping[str, str]) -> list[str]:
    """Check a whole file of a node; returns notes about keys that have no effect. Raises ConfigError.

    Keys with the prefix of another component (`listener.name.`, `ssl.`, `sasl.`) are checked by it.
    """
    notes = []
    for name, text in properties.items():
        if name in IGNORED:
            notes.append(f"{name} has no effect: {IGNORED[name]}")
        else:
            parse(broker_key(name), text)
    return notes


def check_topic_config(name: str, value: str) -> None:
    """Check one topic setting. Raises ConfigError."""
    parse(topic_key(name), value)


def resolve_topic(name: str, *layers: Mapping[str, str]) -> tuple[str, int | None, str | None]:
    """The text of a topic key for a topic that does not set it: from the first of `layers` (broker settings,
    the strongest first) that has one of its synonyms; (text, index of the layer or None, synonym or None).

    Every synonym of a stronger layer wins over those of a weaker one.
    """
    key = topic_key(name)
    for index, layer in enumerate(layers):
        for synonym, factor in key.synonyms:
            text = layer.get(synonym)
            if text is not None:
                if factor == 1:
                    return text, index, synonym
                number = int(text)
                return str(number if number < 0 else number * factor), index, synonym
    assert key.default is not None
    return key.default, None, None
