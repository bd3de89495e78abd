"""The table of configuration keys. Names, types, defaults and bounds are Apache Kafka's, unless stated here.

Different on purpose: `broker.heartbeat.interval.ms` and `broker.session.timeout.ms` are shorter, since a quorum detects
dead brokers faster.

Keys of our own: `broker.fence.on.refusal`, `broker.fenced.linger.ms`, `cluster.id`, `cluster.secret.file`,
`quorum.secret.file`, `cluster.link.encryption`, `metrics.listener`, `metrics.bearer.token.file`, `mirror.allowed.paths`
and `log.verify.bytes.per.second`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .address_limits import AddressLimits
from .config_absent import ABSENT_NOT_IN_EFFECT, ABSENT_TABLE
from .config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType, Scope
from .config_lake import LAKE_TABLE
from .config_oauth import OAUTH_NOT_IN_EFFECT
from .config_sasl import SASL_TABLE
from .config_share import SHARE_SETTINGS
from .config_tls import JAVAS_OWN, TLS_TABLE
from .config_tokens import TOKEN_TABLE

_B, _I, _L, _D = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_LIST, _S = ConfigType.LIST, ConfigType.STRING
_INT_MAX, _LONG_MAX = str(INT_MAX), str(LONG_MAX)
_COMPRESSION = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
_BROKER, _QUORUM = Scope.BROKER, Scope.QUORUM
_NODE = _BROKER | _QUORUM
_DYNAMIC = _BROKER | Scope.DYNAMIC


def _topic(
    name: str,
    kind: ConfigType,
    default: str,
    doc: str,
    *synonyms: str,
    least: float | None = None,
    most: float | None = None,
    allowed: tuple[str, ...] = (),
) -> ConfigKey:
    """Return the table row of a topic's key; `synonyms` are the broker keys that give its default."""
    return ConfigKey(name, kind, default, doc, Scope.TOPIC, least, most, allowed, synonyms)


def _throttled(name: str, doc: str) -> ConfigKey:
    """Return the table row of a topic's key for a list of throttled replicas, which has no broker key."""
    return ConfigKey(name, _LIST, "", doc, Scope.TOPIC, item_pattern=r"[0-9]{1,9}:[0-9]{1,9}")


def _node(
    name: str,
    scope: Scope,
    kind: ConfigType,
    default: str | None,
    doc: str,
    *,
    least: float | None = None,
    most: float | None = None,
    check: Callable[[str], object] | None = None,
) -> ConfigKey:
    """Return the table row of a key for brokers or quorum nodes. If `default` is None, the key has to be given, or its
    absence has a meaning."""
    return ConfigKey(name, kind, default, doc, scope, least, most, check=check)


# fmt: off
_TOPIC_TABLE = (
    _topic("cleanup.policy", _LIST, "delete",
           "This config designates the retention policy to use on log segments. delete: old ones go; compact: the last "
           "record of each key stays; with both, old ones go from what is compacted.",
           "log.cleanup.policy", allowed=("delete", "compact")),
    _topic("compression.type", _S, "producer", "Compression of stored batches; producer: as they come.",
           "compression.type", allowed=_COMPRESSION),
    _topic("compression.gzip.level", _I, "-1", "Level of gzip, if the topic uses it; -1: zlib's default.",
           "compression.gzip.level", least=-1, most=9),
    _topic("compression.lz4.level", _I, "9", "Level of lz4, if the topic uses it.",
           "compression.lz4.level", least=1, most=17),
    _topic("compression.zstd.level", _I, "3", "Level of zstd, if the topic uses it.",
           "compression.zstd.level", least=-131072, most=22),
    _topic("delete.retention.ms", _L, "86400000", "How long tombstones stay.",
           "log.cleaner.delete.retention.ms", least=0),
    _topic("file.delete.delay.ms", _L, "60000", "Wait before a file is removed.",
           "log.segment.delete.delay.ms", least=0),
    _topic("flush.messages", _L, _LONG_MAX, "Records between flushes; 1: flushed before acknowledged.",
           "log.flush.interval.messages", least=1),
    _topic("flush.ms", _L, _LONG_MAX, "How long a record may wait for a flush, in ms.",
           "log.flush.interval.ms", "log.flush.scheduler.interval.ms", least=0),
    _topic("index.interval.bytes", _I, "4096", "Log bytes per index entry.",
           "log.index.interval.bytes", least=0),
    _throttled("leader.replication.throttled.replicas",
               "Replicas, partition:broker or * for all, that send at a limited rate to those out of sync."),
    _throttled("follower.replication.throttled.replicas",
               "Replicas, partition:broker or * for all, that catch up at a limited rate."),
    _topic("max.compaction.lag.ms", _L, _LONG_MAX, "Time after which a record is compacted at the latest.",
           "log.cleaner.max.compaction.lag.ms", least=1),
    _topic("max.message.bytes", _I, "1048588", "Largest record batch.",
           "message.max.bytes", least=0),
    _topic("message.timestamp.type", _S, "CreateTime",
           "Clock of a record's timestamp: the producer's, or the broker's at the append.",
           "log.message.timestamp.type", allowed=("CreateTime", "LogAppendTime")),
    _topic("message.timestamp.after.max.ms", _L, "3600000", "How far ahead a timestamp may be.",
           "log.message.timestamp.after.max.ms", least=0),
    _topic("message.timestamp.before.max.ms", _L, _LONG_MAX, "How old a timestamp may be.",
           "log.message.timestamp.before.max.ms", least=0),
    _topic("min.cleanable.dirty.ratio", _D, "0.5", "Share of uncompacted bytes at which a log is compacted.",
           "log.cleaner.min.cleanable.ratio", least=0, most=1),
    _topic("min.compaction.lag.ms", _L, "0", "Time before which a record is not compacted.",
           "log.cleaner.min.compaction.lag.ms", least=0),
    _topic("min.insync.replicas", _I, "1", "ISR size that acks=all needs.",
           "min.insync.replicas", least=1),
    _topic("preallocate", _B, "false", "Whether segments are allocated in advance.",
           "log.preallocate"),
    _topic("retention.bytes", _L, "-1", "Size of a partition kept; -1: all.",
           "log.retention.bytes", least=-1),
    _topic("retention.ms", _L, "604800000", "Time records are kept; -1: for ever.",
           "log.retention.ms", "log.retention.minutes", "log.retention.hours", least=-1),
    _topic("segment.bytes", _I, "1073741824", "Size at which a segment is closed.",
           "log.segment.bytes", least=1048576),
    _topic("segment.index.bytes", _I, "10485760", "Largest index.",
           "log.index.size.max.bytes", least=4),
    _topic("segment.jitter.ms", _L, "0", "Largest time by which segment.ms is shortened, differently for each log.",
           "log.roll.jitter.ms", "log.roll.jitter.hours", least=0),
    _topic("segment.ms", _L, "604800000", "Age at which a segment is closed.",
           "log.roll.ms", "log.roll.hours", least=1),
    _topic("unclean.leader.election.enable", _B, "false",
           "Whether a replica outside ISR and ELR may lead, losing records.", "unclean.leader.election.enable"),
)

_NODE_TABLE = (
    _node("node.id", _NODE, _I, None, "Id of this node.", least=0),
    _node("broker.id", _NODE, _I, None, "Older name of node.id.", least=0),
    _node("process.roles", _NODE, _LIST, "broker", "broker, controller or both."),
    _node("listeners", _NODE, _LIST, "PLAINTEXT://:9092",
          "name://host:port, where this node listens. Without a host it takes every address of IPv4 and IPv6."),
    _node("advertised.listeners", _BROKER, _LIST, None,
          "name://host:port, which clients and other brokers dial; by default the listener's own. A listener on every "
          "address gets the name of this machine, or localhost where all quorum nodes are at loopback addresses."),
    _node("listener.security.protocol.map", _NODE, _S, None, "name:protocol of each listener."),
    _node("inter.broker.listener.name", _BROKER, _S, None, "The listener that brokers use among them."),
    _node("controller.listener.names", _NODE, _LIST, "CONTROLLER", "The quorum's listener."),
    _node("controller.quorum.voters", _NODE, _LIST, None, "id@host:port of each quorum node."),
    _node("cluster.id", _NODE, _S, None, "The cluster that this node belongs to."),
    _node("cluster.secret.file", _NODE, _S, None, "File with the secret that all nodes share."),
    _node("quorum.secret.file", _QUORUM, _S, None,
          "File with the secret of quorum nodes alone, which brokers must not have; without it the cluster's serves."),
    ConfigKey("cluster.link.encryption", _S, "preferred",
              "Links of quorum nodes with each other and with brokers: encrypted unless the other node has an older "
              "version (preferred), or always, which refuses such nodes (required).", _NODE,
              allowed=("preferred", "required")),
    _node("ottla.node.principals", _NODE, _S, None,
          "Principals of the nodes' certificates, where the quorum's listener has TLS, separated by ;: "
          "User:CN=quorum-1;User:CN=broker-1."),
    _node("authorizer.class.name", _NODE, _S, "",
          "org.apache.kafka.metadata.authorizer.StandardAuthorizer: ACLs decide about operations; without it every "
          "principal may do everything."),
    _node("super.users", _NODE, _S, "",
          "Principals that may do everything, whatever ACLs say, with ; between: User:ann;User:bob."),
    _node("allow.everyone.if.no.acl.found", _NODE, _B, "false",
          "Whether every principal may do everything with resources that no ACL covers."),
    _node("metrics.listener", _NODE, _S, None,
          "host:port, or unix:/path, of the HTTP endpoint: /metrics, /healthz, /readyz; none without it."),
    _node("metrics.bearer.token.file", _NODE, _S, None,
          "File with tokens, one per line; a reader of /metrics has to present one of them."),
    ConfigKey("mirror.allowed.paths", _LIST, "",
              "Folders of a broker whose files the options of a mirror's source may name; none without it.", _BROKER),
    _node("log.dirs", _NODE, _LIST, None, "Data folders."),
    _node("log.dir", _NODE, _LIST, None, "One data folder, if log.dirs is not given."),
    _node("cordoned.log.dirs", _DYNAMIC, _LIST, "",
          "Data folders that new replicas stay out of while others can take them; * for all."),
    _node("replica.alter.log.dirs.io.max.bytes.per.second", _DYNAMIC, _L, _LONG_MAX,
          "How fast replicas are copied from one data folder into another.", least=1),
    _node("metadata.log.dir", _QUORUM, _S, None, "Folder of the Raft log."),
    _node("metadata.log.max.record.bytes.between.snapshots", _QUORUM, _L, "20971520",
          "Bytes of the Raft log after which a snapshot is made.", least=1),
    _node("broker.rack", _BROKER, _S, None, "Rack, for placing replicas."),
    _node("broker.host", _BROKER, _S, None,
          "Machine, for placing replicas: the same for all brokers on it; without it each broker counts as a machine."),
    _node("broker.session.timeout.ms", _NODE, _I, "3000",
          "Silence after which a broker is fenced.", least=100),
    _node("broker.silence.fence.ms", _NODE, _I, "900",
          "Silence after which a broker is fenced if no other broker hears it either; irregular heartbeats prolong it. "
          "From broker.session.timeout.ms on, no broker is fenced earlier than that.", least=100),
    ConfigKey("broker.fence.on.refusal", _S, "local",
              "Which brokers are fenced at once if their session ends and their heartbeat port is refused: those on "
              "the machine of the quorum's leader (local), or all (any). The latter trusts the network not to forge "
              "refusals.", _QUORUM, allowed=("local", "any")),
    _node("broker.fenced.linger.ms", _BROKER, _I, "9000",
          "Time for which answers to clients still contain a fenced broker; 0: not at all.", least=0),
    _node("broker.heartbeat.interval.ms", _BROKER, _I, "500", "Time between heartbeats.", least=1),
    _node("num.partitions", _BROKER, _I, "1", "Partitions of a topic, if its creator gives no number.", least=1),
    _node("default.replication.factor", _BROKER, _I, "1",
          "Replicas of a topic, if its creator gives no number.", least=1, most=32767),
    _node("auto.create.topics.enable", _BROKER, _B, "true",
          "Whether a Metadata request for an unknown topic creates it."),
    _node("delete.topic.enable", _BROKER, _B, "true", "Whether topics may be deleted."),
    _node("offsets.topic.num.partitions", _BROKER, _I, "50", "Partitions of __consumer_offsets.", least=1),
    _node("offsets.topic.replication.factor", _BROKER, _I, "3", "Replicas of __consumer_offsets.", least=1,
          most=32767),
    _node("offsets.topic.segment.bytes", _BROKER, _I, "104857600",
          "Segment size of __consumer_offsets.", least=1048576),
    _node("offsets.retention.minutes", _BROKER, _I, "10080",
          "How long offsets of empty groups stay.", least=1),
    _node("offsets.retention.check.interval.ms", _BROKER, _L, "600000",
          "Time between checks for expired offsets.", least=1),
    _node("offsets.commit.timeout.ms", _BROKER, _I, "5000",
          "Time within which a group's writes must be replicated.", least=1),
    _node("offset.metadata.max.bytes", _BROKER, _I, "4096",
          "Largest metadata of a committed offset.", least=0),
    _node("group.initial.rebalance.delay.ms", _BROKER, _I, "3000",
          "Wait for more members of a new group.", least=0),
    _node("group.min.session.timeout.ms", _BROKER, _I, "6000", "Least session timeout of members.", least=1),
    _node("group.max.session.timeout.ms", _BROKER, _I, "1800000",
          "Greatest session timeout of members.", least=1),
    _node("group.max.size", _BROKER, _I, _INT_MAX, "Most members of a group.", least=1),
    _node("group.consumer.session.timeout.ms", _BROKER, _I, "45000",
          "Silence after which a member of a consumer group is fenced.", least=1),
    _node("group.consumer.min.session.timeout.ms", _BROKER, _I, "45000",
          "Lowest session timeout that a group's own setting may have.", least=1),
    _node("group.consumer.max.session.timeout.ms", _BROKER, _I, "60000",
          "Highest session timeout that a group's own setting may have.", least=1),
    _node("group.consumer.heartbeat.interval.ms", _BROKER, _I, "5000",
          "Time between heartbeats of members of consumer groups.", least=1),
    _node("group.consumer.min.heartbeat.interval.ms", _BROKER, _I, "5000",
          "Shortest time between heartbeats that a group's own setting may have.", least=1),
    _node("group.consumer.max.heartbeat.interval.ms", _BROKER, _I, "15000",
          "Longest time between heartbeats that a group's own setting may have.", least=1),
    _node("group.consumer.max.size", _BROKER, _I, _INT_MAX, "Most members of a consumer group.", least=1),
    _node("group.consumer.assignors", _BROKER, _LIST, "uniform,range",
          "Assignors of consumer groups; the first is for members that do not choose."),
    ConfigKey("group.consumer.migration.policy", _S, "bidirectional",
              "Whether groups with members change between the classic and the consumer protocol.", _BROKER,
              allowed=("bidirectional", "upgrade", "downgrade", "disabled")),
    _node("log.retention.minutes", _BROKER, _I, None, "retention.ms in minutes."),
    _node("log.retention.hours", _BROKER, _I, "168", "retention.ms in hours."),
    _node("log.roll.hours", _BROKER, _I, "168", "segment.ms in hours.", least=1),
    _node("log.roll.jitter.hours", _BROKER, _I, "0", "segment.jitter.ms in hours.", least=0),
    _node("log.retention.check.interval.ms", _BROKER, _L, "300000",
          "Time between retention checks.", least=1),
    _node("log.verify.bytes.per.second", _BROKER, _L, "4194304",
          "Rate at which closed segments are read repeatedly to find damage; 0: never.", least=0),
    _node("log.cleaner.enable", _BROKER, _B, "true", "Whether logs are compacted."),
    _node("log.cleaner.threads", _DYNAMIC, _I, "1", "Threads that compact.", least=0),
    _node("log.cleaner.backoff.ms", _DYNAMIC, _L, "15000",
          "Time between searches for logs to compact, if there were none.", least=0),
    _node("log.cleaner.dedupe.buffer.size", _DYNAMIC, _L, "134217728",
          "Memory for keys while a log is compacted; 24 bytes each.", least=1048576),
    _node("log.cleaner.io.buffer.size", _DYNAMIC, _I, "524288", "Bytes read and written at a time.", least=512),
    _node("log.cleaner.io.buffer.load.factor", _DYNAMIC, _D, "0.9",
          "How full that memory for keys may get.", least=0.01, most=1),
    _node("log.cleaner.io.max.bytes.per.second", _DYNAMIC, _D, "1.7976931348623157E308",
          "Bytes that compaction reads and writes per second.", least=1, most=1.7976931348623157e308),
    _node("log.flush.scheduler.interval.ms", _BROKER, _L, _LONG_MAX,
          "Default of log.flush.interval.ms; the interval is kept without periodic checks.", least=1),
    _node("log.flush.offset.checkpoint.interval.ms", _BROKER, _I, "60000",
          "Time between checkpoints.", least=0),
    _node(
        "num.recovery.threads.per.data.dir",
        _BROKER,
        _I,
        "1",
        "Threads that open logs at start. After kill -9 they are 16 or more, unless the disk is slow at random places.",
        least=1,
    ),
    _node("producer.id.expiration.ms", _DYNAMIC, _I, "86400000",
          "How long idle producer ids are kept.", least=1),
    _node("producer.id.expiration.check.interval.ms", _BROKER, _I, "600000",
          "Time between checks for idle producer ids.", least=1),
    _node("replica.lag.time.max.ms", _BROKER, _L, "30000",
          "Lag after which a follower leaves the ISR.", least=1),
    _node("replica.fetch.max.bytes", _BROKER, _I, "1048576",
          "Bytes per partition a follower fetches.", least=0),
    _node("replica.fetch.response.max.bytes", _BROKER, _I, "10485760",
          "Bytes per fetch of a follower.", least=0),
    _node("replica.fetch.wait.max.ms", _BROKER, _I, "500", "Longest wait of a follower's fetch for records.", least=0),
    _node("replica.fetch.min.bytes", _BROKER, _I, "1", "Number of bytes that a follower's fetch waits for.", least=0),
    _node("replica.socket.timeout.ms", _BROKER, _I, "30000",
          "Silence after which a follower reconnects.", least=1),
    _node("replica.fetch.backoff.ms", _BROKER, _I, "1000", "Wait of a follower after an error.", least=0),
    _node("replica.high.watermark.checkpoint.interval.ms", _BROKER, _L, "5000",
          "Time between checkpoints.", least=1),
    _node("socket.request.max.bytes", _BROKER, _I, "104857600", "Largest request.", least=1),
    _node("socket.listen.backlog.size", _BROKER, _I, "50", "Connections waiting to be accepted.", least=1),
    _node("max.connections", _DYNAMIC, _I, _INT_MAX, "Most connections of clients.", least=0),
    _node("max.connections.per.ip", _DYNAMIC, _I, _INT_MAX, "Most connections of one address.", least=0),
    _node("max.connections.per.ip.overrides", _DYNAMIC, _S, "",
          "Other limits for addresses and networks, like 10.0.0.0/8:100,::1:5; the smallest network counts.",
          check=AddressLimits),
    _node("max.connection.creation.rate", _DYNAMIC, _I, _INT_MAX,
          "Connections that are accepted in a second; others wait.", least=1),
    _node("connections.max.idle.ms", _BROKER, _L, "600000",
          "Silence after which a connection closes.", least=-1),
    _node("quota.window.num", _BROKER, _I, "11", "Number of samples over which rates of quotas are measured.", least=1),
    _node("quota.window.size.seconds", _BROKER, _I, "1", "Duration of one such sample.", least=1),
    _node("fetch.max.bytes", _BROKER, _I, "57671680", "Most bytes of one fetch.", least=1024),
    _node("max.incremental.fetch.session.cache.slots", _BROKER, _I, "1000",
          "Fetch sessions of clients kept.", least=0),
    _node("replica.selector.class", _BROKER, _S, None,
          "Choice of the replica that consumers read from: Kafka's LeaderSelector or RackAwareReplicaSelector."),
    _node("queued.max.request.bytes", _BROKER, _L, "-1", "Most bytes of requests in memory.", least=-1),
    _node("controlled.shutdown.enable", _BROKER, _B, "true", "Whether leaderships move before a stop."),
    _node("controlled.shutdown.timeout.ms", _BROKER, _I, "30000",
          "Time that a stopping broker waits for the moves of its leaderships.", least=0),
    _node("leader.replication.throttled.rate", _DYNAMIC, _L, _LONG_MAX,
          "Bytes/s that a broker sends to throttled followers out of sync, all together.", least=0),
    _node("follower.replication.throttled.rate", _DYNAMIC, _L, _LONG_MAX,
          "Bytes/s that throttled replicas of a broker catch up with, all together.", least=0),
    _node("auto.leader.rebalance.enable", _NODE, _B, "true",
          "Whether preferred replicas get leadership back."),
    _node("leader.imbalance.check.interval.seconds", _NODE, _L, "300",
          "Time between checks whether leaderships are balanced.", least=1),
    _node("leader.imbalance.per.broker.percentage", _NODE, _I, "10",
          "Imbalance of leaderships that is tolerated, in percent.", least=0),
    _node("transaction.max.timeout.ms", _BROKER, _I, "900000",
          "Longest timeout that a producer may ask for its transactions.", least=1),
    _node("transactional.id.expiration.ms", _NODE, _I, "604800000",
          "How long a transactional id is remembered that no client uses.", least=1),
    _node("transaction.remove.expired.transaction.cleanup.interval.ms", _NODE, _I, "3600000",
          "Time between checks for unused transactional ids.", least=1),
    _node("transaction.abort.timed.out.transaction.cleanup.interval.ms", _NODE, _I, "10000",
          "Time between checks for transactions that are open for too long.", least=1),
)
# fmt: on

NOT_IN_EFFECT: Mapping[str, str] = {
    "broker.id": "give node.id",
    "log.cleaner.threads": "one process compacts one log at a time",
    "controlled.shutdown.enable": "leaderships always move before a stop",
    "replica.fetch.backoff.ms": "a follower asks again after 1 ms, 2 ms, up to 200 ms",
    "replica.fetch.min.bytes": "a follower takes whatever there is",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "it is checked several times per second",
    "log.flush.offset.checkpoint.interval.ms": "checkpoints are written every 60 s",
    **dict.fromkeys(("preallocate", "log.preallocate"), "segments grow as they are written"),
    **JAVAS_OWN,
    **ABSENT_NOT_IN_EFFECT,
    **OAUTH_NOT_IN_EFFECT,
    **SHARE_SETTINGS.not_in_effect,
    "principal.builder.class": "there is one way, which is Kafka's own",
}
"""Keys that are checked, stored and described, but have no effect so far, each with the behaviour instead."""


CLUSTER_WIDE_KEYS = ("min.insync.replicas", "unclean.leader.election.enable")
"""Broker keys that elections use. They are equal for all brokers: given to quorum nodes, or set dynamically."""


def _behind(key: ConfigKey) -> ConfigKey:
    """Return the table row of the broker key that gives a topic key its default. If there are several such keys, it has
    no default."""
    default = None if len(key.synonyms) > 1 else key.default
    name = key.synonyms[0]
    scope = _DYNAMIC | _QUORUM if name in CLUSTER_WIDE_KEYS else _DYNAMIC
    return ConfigKey(name, key.type, default, key.doc, scope, key.least, key.most, key.allowed)


TOPIC_KEYS: Mapping[str, ConfigKey] = {
    key.name: key for key in (*_TOPIC_TABLE, *SHARE_SETTINGS.topics, *LAKE_TABLE)
}
NODE_KEYS: Mapping[str, ConfigKey] = {
    **{key.synonyms[0]: _behind(key) for key in _TOPIC_TABLE if key.synonyms},
    **{
        key.name: key
        for key in (*_NODE_TABLE, *TLS_TABLE, *SASL_TABLE, *TOKEN_TABLE, *SHARE_SETTINGS.nodes, *ABSENT_TABLE)
    },
}
