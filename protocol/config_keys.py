"""Every configuration key: name, type, default, bounds, scope, synonyms, meaning. Names are mostly Kafka's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, Flag, auto

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class ConfigError(ValueError):
    """A key or value that cannot be used; the message says what is wrong and what is allowed."""


class ConfigType(Enum):
    """Kafka's types of values."""

    BOOLEAN = "true or false"
    INT = "a whole number of 32 bits"
    LONG = "a whole number of 64 bits"
    DOUBLE = "a number"
    LIST = "a comma-separated list"
    STRING = "a string"
    PASSWORD = "a string kept secret"


class Scope(Flag):
    """Where a key may be given."""

    TOPIC = auto()
    BROKER = auto()  # in a broker's file
    DYNAMIC = auto()  # changed while brokers run
    QUORUM = auto()  # in a quorum node's file


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `synonyms`: the broker keys that give a topic key its default, the first one set wins."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    scope: Scope
    least: float | None = None
    most: float | None = None
    allowed: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()

    def parse(self, text: str) -> bool | int | float | str | list[str]:
        """The value of this key's type. Raises ConfigError."""
        text = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._refused(text)
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.LONG | ConfigType.DOUBLE:
                return self._number(text)
            case ConfigType.LIST:
                items = [item.strip() for item in text.split(",") if item.strip()]
                if self.allowed and not set(items) <= set(self.allowed):
                    raise self._refused(text)
                return items
            case _:
                if self.allowed and text not in self.allowed:
                    raise self._refused(text)
                return text

    def _number(self, text: str) -> int | float:
        limit = _INT_MAX if self.type is ConfigType.INT else _LONG_MAX
        try:
            value = float(text) if self.type is ConfigType.DOUBLE else int(text)
        except ValueError:
            raise self._refused(text) from None
        least = -limit - 1 if self.least is None else self.least
        if not least <= value <= (limit if self.most is None else self.most):
            raise self._refused(text)
        return value

    def _refused(self, text: str) -> ConfigError:
        if self.allowed:
            what = f"{'any of' if self.type is ConfigType.LIST else 'one of'} {', '.join(self.allowed)}"
        else:
            what = self.type.value
            what += f", at least {self.least}" if self.least is not None else ""
            what += f", at most {self.most}" if self.most is not None else ""
        return ConfigError(f"Invalid value {text!r} for configuration {self.name}: it must be {what}")


_B, _I, _L, _D = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_LIST, _S = ConfigType.LIST, ConfigType.STRING
_COMPRESSION = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
_DYNAMIC = Scope.BROKER | Scope.DYNAMIC
_NODE = Scope.BROKER | Scope.QUORUM
# Topic key, the broker keys behind it, type, default, least, allowed values, meaning.
_TOPIC_ROWS: tuple[tuple[str, tuple[str, ...], ConfigType, str, float | None, tuple[str, ...], str], ...] = (
    ("cleanup.policy", ("log.cleanup.policy",), _LIST, "delete", None, ("delete", "compact"), "What becomes of old segments."),
    ("compression.type", ("compression.type",), _S, "producer", None, _COMPRESSION, "Compression of stored batches."),
    ("delete.retention.ms", ("log.cleaner.delete.retention.ms",), _L, "86400000", 0, (), "How long tombstones stay."),
    ("file.delete.delay.ms", ("log.segment.delete.delay.ms",), _L, "60000", 0, (), "Wait before a file is removed."),
    ("flush.messages", ("log.flush.interval.messages",), _L, str(_LONG_MAX), 1, (), "Records between forced flushes."),
    ("flush.ms", ("log.flush.interval.ms",), _L, str(_LONG_MAX), 0, (), "Time between forced flushes, in ms."),
    ("index.interval.bytes", ("log.index.interval.bytes",), _I, "4096", 0, (), "Log bytes per index entry."),
    ("max.compaction.lag.ms", ("log.cleaner.max.compaction.lag.ms",), _L, str(_LONG_MAX), 1, (), "Compacted at the latest after."),
    ("max.message.bytes", ("message.max.bytes",), _I, "1048588", 0, (), "Largest record batch."),
    ("message.timestamp.type", ("log.message.timestamp.type",), _S, "CreateTime", None, ("CreateTime", "LogAppendTime"), "Whose clock stamps."),
    ("message.timestamp.after.max.ms", ("log.message.timestamp.after.max.ms",), _L, "3600000", 0, (), "How far ahead a timestamp may be."),
    ("message.timestamp.before.max.ms", ("log.message.timestamp.before.max.ms",), _L, str(_LONG_MAX), 0, (), "How old a timestamp may be."),
    ("min.cleanable.dirty.ratio", ("log.cleaner.min.cleanable.ratio",), _D, "0.5", 0, (), "Dirty part before compaction."),
    ("min.compaction.lag.ms", ("log.cleaner.min.compaction.lag.ms",), _L, "0", 0, (), "Not compacted before."),
    ("min.insync.replicas", ("min.insync.replicas",), _I, "1", 1, (), "ISR size that acks=all needs."),
    ("preallocate", ("log.preallocate",), _B, "false", None, (), "Whether segments are allocated in advance."),
    ("retention.bytes", ("log.retention.bytes",), _L, "-1", -1, (), "Size of a partition kept; -1: all."),
    ("retention.ms", ("log.retention.ms", "log.retention.minutes", "log.retention.hours"), _L, "604800000", -1, (), "Time records are kept; -1: for ever."),
    ("segment.bytes", ("log.segment.bytes",), _I, "1073741824", 14, (), "Size at which a segment is closed."),
    ("segment.index.bytes", ("log.index.size.max.bytes",), _I, "10485760", 4, (), "Largest index."),
    ("segment.jitter.ms", ("log.roll.jitter.ms", "log.roll.jitter.hours"), _L, "0", 0, (), "Spread of segment.ms."),
    ("segment.ms", ("log.roll.ms", "log.roll.hours"), _L, "604800000", 1, (), "Age at which a segment is closed."),
    ("unclean.leader.election.enable", ("unclean.leader.election.enable",), _B, "false", None, (), "Whether a replica outside ISR and ELR may lead, losing records."),
)  # fmt: skip
# Broker or quorum key, scope, type, default (None: must be given or is optional), least, meaning.
_NODE_ROWS: tuple[tuple[str, Scope, ConfigType, str | None, float | None, str], ...] = (
    ("node.id", _NODE, _I, None, 0, "Id of this node."),
    ("broker.id", _NODE, _I, None, 0, "Older name of node.id."),
    ("process.roles", _NODE, _LIST, "broker", None, "broker, controller or both."),
    ("listeners", _NODE, _LIST, "PLAINTEXT://:9092", None, "name://host:port, where this node listens."),
    ("advertised.listeners", Scope.BROKER, _LIST, None, None, "name://host:port, as clients are told."),
    ("listener.security.protocol.map", _NODE, _LIST, None, None, "name:protocol of each listener."),
    ("inter.broker.listener.name", Scope.BROKER, _S, None, None, "The listener that brokers use among them."),
    ("controller.listener.names", _NODE, _LIST, "CONTROLLER", None, "The quorum's listener."),
    ("controller.quorum.voters", _NODE, _LIST, None, None, "id@host:port of each quorum node."),
    ("cluster.id", _NODE, _S, None, None, "The cluster that this node belongs to."),
    ("cluster.secret.file", _NODE, _S, None, None, "File with the secret that all nodes share."),
    ("log.dirs", _NODE, _LIST, "/tmp/ottla-logs", None, "Data folders."),
    ("log.dir", _NODE, _S, None, None, "One data folder, if log.dirs is not given."),
    ("metadata.log.dir", Scope.QUORUM, _S, None, None, "Folder of the Raft log."),
    ("broker.rack", Scope.BROKER, _S, None, None, "Rack, for placing replicas."),
    ("broker.session.timeout.ms", _NODE, _I, "3000", 100, "Silence after which a broker is fenced."),
    ("broker.heartbeat.interval.ms", Scope.BROKER, _I, "500", 1, "Time between heartbeats."),
    ("num.partitions", Scope.BROKER, _I, "1", 1, "Partitions of a topic whose creator does not say."),
    ("default.replication.factor", Scope.BROKER, _I, "1", 1, "Replicas of a topic whose creator does not say."),
    ("auto.create.topics.enable", Scope.BROKER, _B, "true", None, "Whether asking for a topic creates it."),
    ("delete.topic.enable", Scope.BROKER, _B, "true", None, "Whether topics may be deleted."),
    ("offsets.topic.num.partitions", Scope.BROKER, _I, "50", 1, "Partitions of __consumer_offsets."),
    ("offsets.topic.replication.factor", Scope.BROKER, _I, "3", 1, "Replicas of __consumer_offsets."),
    ("offsets.topic.segment.bytes", Scope.BROKER, _I, "104857600", 1, "Segment size of __consumer_offsets."),
    ("offsets.retention.minutes", Scope.BROKER, _I, "10080", 1, "How long offsets of empty groups stay."),
    ("offsets.retention.check.interval.ms", Scope.BROKER, _L, "600000", 1, "Time between checks for them."),
    ("offset.metadata.max.bytes", Scope.BROKER, _I, "4096", 0, "Largest metadata of a committed offset."),
    ("group.initial.rebalance.delay.ms", Scope.BROKER, _I, "3000", 0, "Wait for more members of a new group."),
    ("group.min.session.timeout.ms", Scope.BROKER, _I, "6000", 1, "Least session timeout of members."),
    ("group.max.session.timeout.ms", Scope.BROKER, _I, "1800000", 1, "Greatest session timeout of members."),
    ("group.max.size", Scope.BROKER, _I, str(_INT_MAX), 1, "Most members of a group."),
    ("log.retention.minutes", Scope.BROKER, _I, None, None, "retention.ms in minutes."),
    ("log.retention.hours", Scope.BROKER, _I, "168", None, "retention.ms in hours."),
    ("log.roll.hours", Scope.BROKER, _I, "168", 1, "segment.ms in hours."),
    ("log.roll.jitter.hours", Scope.BROKER, _I, "0", 0, "segment.jitter.ms in hours."),
    ("log.retention.check.interval.ms", Scope.BROKER, _L, "300000", 1, "Time between retention checks."),
    ("log.flush.scheduler.interval.ms", Scope.BROKER, _L, str(_LONG_MAX), 1, "Time between flush checks."),
    ("log.flush.offset.checkpoint.interval.ms", Scope.BROKER, _I, "60000", 0, "Time between checkpoints."),
    ("num.recovery.threads.per.data.dir", _DYNAMIC, _I, "2", 1, "Threads that open logs at start."),
    ("producer.id.expiration.ms", _DYNAMIC, _I, "86400000", 1, "How long idle producer ids are kept."),
    ("replica.lag.time.max.ms", Scope.BROKER, _L, "30000", 1, "Lag after which a follower leaves the ISR."),
    ("replica.fetch.max.bytes", Scope.BROKER, _I, "1048576", 0, "Bytes per partition a follower fetches."),
    ("replica.fetch.response.max.bytes", Scope.BROKER, _I, "10485760", 0, "Bytes per fetch of a follower."),
    ("replica.fetch.wait.max.ms", Scope.BROKER, _I, "500", 0, "How long a follower's fetch is parked."),
    ("replica.fetch.min.bytes", Scope.BROKER, _I, "1", 0, "What a follower's fetch waits for."),
    ("replica.fetch.backoff.ms", Scope.BROKER, _I, "1000", 0, "Wait of a follower after an error."),
    ("replica.high.watermark.checkpoint.interval.ms", Scope.BROKER, _L, "5000", 1, "Time between checkpoints."),
    ("socket.request.max.bytes", Scope.BROKER, _I, "104857600", 1, "Largest request."),
    ("socket.listen.backlog.size", Scope.BROKER, _I, "50", 1, "Connections waiting to be accepted."),
    ("max.connections", _DYNAMIC, _I, str(_INT_MAX), 0, "Most connections of clients."),
    ("max.connections.per.ip", _DYNAMIC, _I, str(_INT_MAX), 0, "Most connections of one address."),
    ("connections.max.idle.ms", Scope.BROKER, _L, "600000", -1, "Silence after which a connection closes."),
    ("fetch.max.bytes", Scope.BROKER, _I, "57671680", 1024, "Most bytes of one fetch."),
    ("max.incremental.fetch.session.cache.slots", Scope.BROKER, _I, "1000", 0, "Fetch sessions kept."),
    ("queued.max.request.bytes", Scope.BROKER, _L, "-1", -1, "Most bytes of requests in memory."),
    ("controlled.shutdown.enable", Scope.BROKER, _B, "true", None, "Whether leaderships move before a stop."),
    ("auto.leader.rebalance.enable", _NODE, _B, "true", None, "Whether preferred replicas get leadership back."),
    ("leader.imbalance.check.interval.seconds", _NODE, _L, "300", 1, "Time between checks for that."),
    ("leader.imbalance.per.broker.percentage", _NODE, _I, "10", 0, "Imbalance that is left alone."),
    ("transaction.max.timeout.ms", Scope.BROKER, _I, "900000", 1, "Longest transaction."),
)  # fmt: skip

_SERVES_OTHERWISE = "requests are served on one event loop"
_ONE_LOOP = ("num.network.threads", "num.io.threads", "background.threads", "queued.max.requests")
IGNORED_KEYS: Mapping[str, str] = {
    **dict.fromkeys(_ONE_LOOP, _SERVES_OTHERWISE),
    "num.replica.fetchers": "one connection per leader broker carries all partitions",
    "socket.send.buffer.bytes": "the operating system sizes socket buffers",
    "socket.receive.buffer.bytes": "the operating system sizes socket buffers",
    "zookeeper.connect": "there is no ZooKeeper",
    "controller.quorum.bootstrap.servers": "controller.quorum.voters names the quorum",
    "offsets.topic.compression.codec": "offsets are stored uncompressed",
    "transaction.state.log.replication.factor": "transactions are kept in the metadata quorum",
    "transaction.state.log.min.isr": "transactions are kept in the metadata quorum",
    "transaction.state.log.num.partitions": "transactions are kept in the metadata quorum",
    "share.coordinator.state.topic.replication.factor": "there are no share groups",
    "share.coordinator.state.topic.min.isr": "there are no share groups",
    "log.cleaner.enable": "compacted topics are always compacted",
}
"""Keys that a Kafka 4 file commonly has and that change nothing here, with the reason."""


def _declare() -> tuple[dict[str, ConfigKey], dict[str, ConfigKey]]:
    topic: dict[str, ConfigKey] = {}
    node: dict[str, ConfigKey] = {}
    for name, scope, kind, default, least, doc in _NODE_ROWS:
        node[name] = ConfigKey(name, kind, default, doc, scope, least)
    for name, synonyms, kind, default, least, allowed, doc in _TOPIC_ROWS:
        most = 1 if name == "min.cleanable.dirty.ratio" else None
        topic[name] = ConfigKey(name, kind, default, doc, Scope.TOPIC, least, most, allowed, synonyms)
        own = synonyms[0]
        unset = None if len(synonyms) > 1 else default
        node.setdefault(own, ConfigKey(own, kind, unset, doc, _DYNAMIC, least, most, allowed))
    return topic, node


TOPIC_KEYS, NODE_KEYS = _declare()


def unknown_key(name: str, known: Iterable[str]) -> ConfigError:
    """What to say about a key that is none, with the nearest one."""
    nearest = get_close_matches(name, [*known], n=1)
    hint = f": did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"Unknown configuration {name}{hint}")


def check_topic_config(name: str, value: str) -> None:
    """Raises ConfigError for what no topic can be given."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise unknown_key(name, TOPIC_KEYS)
    key.parse(value)


def check_dynamic_broker_config(name: str, value: str) -> None:
    """Raises ConfigError for what brokers cannot be given while they run."""
    key = NODE_KEYS.get(name)
    if key is None:
        raise unknown_key(name, (other.name for other in NODE_KEYS.values() if Scope.DYNAMIC in other.scope))
    if Scope.DYNAMIC not in key.scope:
        raise ConfigError(f"Cannot update {name} while brokers run: give it in the configuration file")
    key.parse(value)


def check_properties(properties: Mapping[str, str], scope: Scope) -> list[str]:
    """Checks a node's file; returns a note for each key that has no effect. Raises ConfigError."""
    notes = []
    for name, value in properties.items():
        if name in IGNORED_KEYS:
            notes.append(f"{name} has no effect: {IGNORED_KEYS[name]}")
            continue
        key = NODE_KEYS.get(name)
        if key is None:
            raise unknown_key(name, NODE_KEYS)
        key.parse(value)
        if not key.scope & scope:
            notes.append(f"{name} has no effect in this role")
    return notes
