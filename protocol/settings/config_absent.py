"""Configuration keys of Kafka for functions that do not exist here. Nodes start with files that were written for Kafka
and have such keys.

Every key of a node of Kafka 4.4 is in one of the tables of this package (`tests/protocol/test_config_keys.py`). Most
keys of this module change nothing, whatever their value is. Where a value asks for a function that its author would
rely on, only the value that asks for nothing is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .config_key import ConfigError, ConfigKey, ConfigType, Scope
from .config_share import SHARE_SETTINGS


def _no_class(text: str) -> None:
    if text:
        raise ConfigError(
            "classes of your own are not loaded, so nothing would do what it does: leave it empty"
        )


def _not_enabled(text: str) -> None:
    if text == "true":
        raise ConfigError("there is no tiered storage: only false is allowed")


_NODE: Final = Scope.BROKER | Scope.QUORUM
ABSENT_TABLE: Final = (
    ConfigKey("alter.config.policy.class.name", ConfigType.STRING, "",
              "A class that accepts or refuses settings: only empty.", _NODE, check=_no_class),
    ConfigKey("client.quota.callback.class", ConfigType.STRING, "", "A class that sets quotas: only empty.",
              _NODE, check=_no_class),
    ConfigKey("create.topic.policy.class.name", ConfigType.STRING, "",
              "A class that accepts or refuses new topics: only empty.", _NODE, check=_no_class),
    ConfigKey("remote.log.storage.system.enable", ConfigType.BOOLEAN, "false", "Tiered storage: only false.",
              _NODE, check=_not_enabled),
)  # fmt: skip
"""Keys that accept a single value."""
ABSENT_NOT_IN_EFFECT: Final = {
    key.name: "a node does not start with another value than the default" for key in ABSENT_TABLE
}
"""Keys without effect, each with the reason."""

_ONE_LOOP = "requests are served on one event loop"
_NO_PURGATORY = "requests that wait are forgotten when they are answered"
_BUFFERS = "the operating system sizes socket buffers"
_TICKETS = "a broker's key comes from its keytab, and it needs no ticket"
_BY_SECRET = "brokers log in to each other by the cluster secret"
_IN_QUORUM = "transactions are kept in the metadata quorum"
_OWN_JOURNAL = "the quorum decides itself when its journal is cut"
_OWN_RAFT = "the quorum decides itself when it elects, and what it sends"
_OWN_METRICS = "metrics are served at metrics.listener"
_AT_ONCE = "an assignment is computed at once"
_OWN_WINDOWS = "its samples are fixed here"
_TIERED = "there is no tiered storage"
_FIXED = "what it sets is fixed here"

_DYNAMIC: Final[Mapping[str, str]] = {
    "background.threads": _ONE_LOOP,
    "follower.fetch.last.tiered.offset.enable": _TIERED,
    "group.consumer.assignment.interval.ms": _AT_ONCE,
    "group.consumer.assignor.offload.enable": _AT_ONCE,
    "group.coordinator.cached.buffer.max.bytes": _ONE_LOOP,
    "max.decompressed.message.bytes": "a batch may expand to 64 times max.message.bytes, from 16 MiB to 256 MiB",
    "metric.reporters": _OWN_METRICS,
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.replica.fetchers": "one connection per leader broker carries all partitions",
    "sasl.kerberos.kinit.cmd": _TICKETS,
    "sasl.kerberos.min.time.before.relogin": _TICKETS,
    "sasl.kerberos.ticket.renew.jitter": _TICKETS,
    "sasl.kerberos.ticket.renew.window.factor": _TICKETS,
    "sasl.mechanism.inter.broker.protocol": _BY_SECRET,
    "transaction.partition.verification.enable": "whether a transaction has begun is always checked",
}
"""Keys that Kafka's brokers can change while they run, each with the reason why it has no effect here."""

_AT_START: Final[Mapping[str, str]] = {
    "add.partitions.to.txn.retry.backoff.max.ms": _IN_QUORUM,
    "add.partitions.to.txn.retry.backoff.ms": _IN_QUORUM,
    "alter.log.dirs.replication.quota.window.num": _OWN_WINDOWS,
    "alter.log.dirs.replication.quota.window.size.seconds": _OWN_WINDOWS,
    "controller.performance.always.log.threshold.ms": _OWN_METRICS,
    "controller.performance.sample.period.ms": _OWN_METRICS,
    "controller.quorum.append.linger.ms": _OWN_RAFT,
    "controller.quorum.auto.join.enable": "controller.quorum.voters names the quorum",
    "controller.quorum.bootstrap.servers": "controller.quorum.voters names the quorum",
    "controller.quorum.election.backoff.max.ms": _OWN_RAFT,
    "controller.quorum.election.timeout.ms": _OWN_RAFT,
    "controller.quorum.fetch.max.bytes": _OWN_RAFT,
    "controller.quorum.fetch.snapshot.max.bytes": _OWN_RAFT,
    "controller.quorum.fetch.timeout.ms": _OWN_RAFT,
    "controller.quorum.request.timeout.ms": _OWN_RAFT,
    "controller.quorum.retry.backoff.ms": _OWN_RAFT,
    "controller.quota.window.num": _OWN_WINDOWS,
    "controller.quota.window.size.seconds": _OWN_WINDOWS,
    "controller.socket.timeout.ms": _FIXED,
    "delete.records.purgatory.purge.interval.requests": _NO_PURGATORY,
    "early.start.listeners": _FIXED,
    "fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "group.consumer.max.assignment.interval.ms": _AT_ONCE,
    "group.consumer.min.assignment.interval.ms": _AT_ONCE,
    "group.consumer.regex.refresh.interval.ms": "patterns are resolved when topics or ACLs change",
    "group.coordinator.append.linger.ms": _ONE_LOOP,
    "group.coordinator.background.threads": _ONE_LOOP,
    "group.coordinator.rebalance.protocols": "groups of both protocols, classic and consumer, are always served",
    "group.coordinator.threads": _ONE_LOOP,
    "initial.broker.registration.timeout.ms": _FIXED,
    "inter.broker.protocol.version": "nodes agree on versions by themselves",
    "log.dir.failure.timeout.ms": _FIXED,
    "log.flush.start.offset.checkpoint.interval.ms": _FIXED,
    "log.initial.task.delay.ms": _FIXED,
    "log.message.format.version": "records are stored in format v2",
    "max.request.partition.size.limit": "DescribeTopicPartitions answers at most 2,000 partitions a page",
    "metadata.log.max.snapshot.interval.ms": _OWN_JOURNAL,
    "metadata.log.segment.bytes": _OWN_JOURNAL,
    "metadata.log.segment.ms": _OWN_JOURNAL,
    "metadata.max.idle.interval.ms": _OWN_JOURNAL,
    "metadata.max.retention.bytes": _OWN_JOURNAL,
    "metadata.max.retention.ms": _OWN_JOURNAL,
    "metrics.num.samples": _OWN_METRICS,
    "metrics.recording.level": _OWN_METRICS,
    "metrics.sample.window.ms": _OWN_METRICS,
    "num.replica.alter.log.dirs.threads": _ONE_LOOP,
    "offsets.load.buffer.size": _FIXED,
    "offsets.topic.compression.codec": "offsets are stored uncompressed",
    "producer.purgatory.purge.interval.requests": _NO_PURGATORY,
    "queued.max.requests": _ONE_LOOP,
    "replica.socket.receive.buffer.bytes": _BUFFERS,
    "replication.quota.window.num": _OWN_WINDOWS,
    "replication.quota.window.size.seconds": _OWN_WINDOWS,
    "request.timeout.ms": _FIXED,
    "sasl.client.callback.handler.class": _BY_SECRET,
    "sasl.mechanism.controller.protocol": _BY_SECRET,
    "security.providers": "it is about Java; TLS here is OpenSSL's",
    "server.max.startup.time.ms": _FIXED,
    "socket.connection.setup.timeout.max.ms": _FIXED,
    "socket.connection.setup.timeout.ms": _FIXED,
    "socket.receive.buffer.bytes": _BUFFERS,
    "socket.send.buffer.bytes": _BUFFERS,
    "telemetry.max.bytes": "clients push no metrics",
    "transaction.two.phase.commit.enable": "transactions of two phases are refused",
    "unclean.leader.election.interval.ms": _FIXED,
}
"""Keys that Kafka refuses to change while brokers run, or does not know any more, each with the reason."""

IGNORED_FAMILIES: Final[Mapping[str, str]] = {
    **SHARE_SETTINGS.ignored_families,
    "group.streams.": "there are no groups of the streams protocol",
    "internal.metadata.": _OWN_JOURNAL,
    "kafka.metrics.": _OWN_METRICS,
    "log.local.": _TIERED,
    "log.remote.": _TIERED,
    "remote.": _TIERED,
    "transaction.state.log.": _IN_QUORUM,
    "unstable.": "no version of an API or a feature is unstable",
    "zookeeper.": "there is no ZooKeeper",
}
"""Prefixes of keys that change nothing, each with the reason."""
IGNORED_KEYS: Final[Mapping[str, str]] = {
    **_DYNAMIC,
    **_AT_START,
    **SHARE_SETTINGS.ignored,
    **SHARE_SETTINGS.ignored_at_start,
}
"""Other keys of Kafka that change nothing here, each with the reason."""
IGNORED_NUMBERS: Final = (
    "num.network.threads",
    "num.io.threads",
    "background.threads",
    "num.replica.fetchers",
)
"""Keys of IGNORED_KEYS that Kafka's brokers can change while they run, and whose values are numbers. They are accepted,
and stored without effect."""
_FIXED_FAMILIES: Final = (
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
)
IGNORED_AT_START: Final = frozenset({*_AT_START, *SHARE_SETTINGS.ignored_at_start, *_FIXED_FAMILIES}) - {
    "inter.broker.protocol.version",
    "log.message.format.version",
}
"""Keys that Kafka refuses to change while brokers run. Kafka accepts keys that it no longer knows, like any unknown
name, so these are left out."""


def why_ignored(name: str) -> str | None:
    """Return the reason why a key of Kafka has no effect here; None for keys with an effect, and for unknown names."""
    if (why := IGNORED_KEYS.get(name)) is not None:
        return why
    return next((why for family, why in IGNORED_FAMILIES.items() if name.startswith(family)), None)
