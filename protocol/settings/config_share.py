"""Configuration keys of share groups (KIP-932), as those of Apache Kafka, unless stated here.

Nodes know a key if they have the function behind it, as `features.SHARE_SERVED` says. Otherwise they accept files with
the key, and say that it has no effect.

Different on purpose: `share.coordinator.state.topic.segment.bytes` is at least 1 MiB, as `segment.bytes` of topics.

Key of our own: `ottla.share.ordering`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..features import SHARE_GROUPS, SHARE_SERVED, SHARE_WITH_DEAD_LETTERS
from .config_key import ConfigError, ConfigKey, ConfigType, Scope

_B, _I, _S, _LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING, ConfigType.LIST
_BROKER, _DYNAMIC, _GROUP = Scope.BROKER, Scope.BROKER | Scope.DYNAMIC, Scope.GROUP
_BY_DURATION: Final = "by_duration:"
LATEST: Final = "latest"
EARLIEST: Final = "earliest"
"""Values of `share.auto.offset.reset` without a duration."""
ORDERING: Final = "ottla.share.ordering"
BY_KEY: Final = "key"
"""Value of `ottla.share.ordering` that keeps the order of keys."""


def reset_duration_ms(text: str) -> int | None:
    """Return how far behind the present a value of `share.auto.offset.reset` begins, in ms; None for `latest` and
    `earliest`.

    Raises ConfigError for another value. The duration of `by_duration:PT1H` is in ISO 8601, without years and months.
    """
    if text in (LATEST, EARLIEST):
        return None
    # A late import: only nodes with such a setting load the module `datetime`.
    from ..iso_times import iso_duration_ms

    try:
        if text.startswith(_BY_DURATION) and (ms := iso_duration_ms(text.removeprefix(_BY_DURATION))) >= 0:
            return ms
    except ValueError:
        pass
    raise ConfigError(
        f"{text[:100]!r} is not allowed: it must be {LATEST}, {EARLIEST} or {_BY_DURATION}PnDTnHnMn.nS, with a "
        "duration of at least 0"
    )


def _check_letters_topic(text: str) -> None:
    if text.startswith("__"):
        raise ConfigError(
            f"{text[:100]!r} is not allowed: the name of a dead letter topic may not begin with '__'"
        )


def _bounded(stem: str, default: int, least: int, most: int | None, doc: str) -> ConfigKey:
    """Return the table row of a group's key whose default is a broker key, and whose bounds are two others."""
    return ConfigKey(
        f"share.{stem}", _I, str(default), doc, _GROUP, least, most, synonyms=(f"group.share.{stem}",)
    )


# fmt: off
_GROUP_KEYS: Final = (
    _bounded("session.timeout.ms", 45_000, 1, None, "Silence after which a member of a share group is removed."),
    _bounded("heartbeat.interval.ms", 5_000, 1, None, "How often members of a share group heartbeat."),
    _bounded("record.lock.duration.ms", 30_000, 1_000, None,
             "How long a member may hold a record before other members may get it."),
    _bounded("delivery.count.limit", 5, 2, None, "How often a record is delivered at most."),
    _bounded("partition.max.record.locks", 2_000, 100, None,
             "Most records of a partition that members hold at the same time."),
    ConfigKey("share.auto.offset.reset", _S, LATEST,
              "Where a share group begins in a partition: latest, earliest, or by_duration:PnDTnHnMn.nS before the "
              "present.", _GROUP, check=reset_duration_ms),
    ConfigKey("share.isolation.level", _S, "read_uncommitted",
              "Whether records of open and of aborted transactions are delivered.", _GROUP,
              allowed=("read_committed", "read_uncommitted")),
    ConfigKey("share.renew.acknowledge.enable", _B, "true", "Whether members may prolong their locks (KIP-1222).",
              _GROUP),
)

_GROUP_LETTER_KEYS: Final = (
    ConfigKey("errors.deadletterqueue.topic.name", _S, "",
              "Topic of the records that could not be delivered (KIP-1191); empty: they are dropped.", _GROUP,
              check=_check_letters_topic),
    ConfigKey("errors.deadletterqueue.copy.record.enable", _B, "false",
              "Whether a dead letter has the key and the value of its record, or headers alone.", _GROUP),
)

_GROUP_ORDER_KEYS: Final = (
    ConfigKey(ORDERING, _S, "none",
              "key: of the records with the same key in a partition, the next is delivered once the one before is "
              "finished.", _GROUP, allowed=("none", BY_KEY)),
)


def _node(
    name: str, default: int, doc: str, least: int, most: int | None = None, scope: Scope = _BROKER
) -> ConfigKey:
    return ConfigKey(name, _I, str(default), doc, scope, least, most)


_NODE_KEYS: Final = (
    _node("group.share.session.timeout.ms", 45_000, "Silence after which a member of a share group is removed.", 1),
    _node("group.share.min.session.timeout.ms", 45_000,
          "Lowest session timeout that a share group's own setting may have.", 1),
    _node("group.share.max.session.timeout.ms", 60_000,
          "Highest session timeout that a share group's own setting may have.", 1),
    _node("group.share.heartbeat.interval.ms", 5_000, "Time between heartbeats of members of share groups.", 1),
    _node("group.share.min.heartbeat.interval.ms", 5_000,
          "Shortest time between heartbeats that a share group's own setting may have.", 1),
    _node("group.share.max.heartbeat.interval.ms", 15_000,
          "Longest time between heartbeats that a share group's own setting may have.", 1),
    _node("group.share.record.lock.duration.ms", 30_000,
          "How long a member may hold a record before other members may get it.", 1_000, 3_600_000),
    _node("group.share.min.record.lock.duration.ms", 15_000,
          "Shortest lock of records that a share group's own setting may have.", 1_000, 30_000),
    _node("group.share.max.record.lock.duration.ms", 60_000,
          "Longest lock of records that a share group's own setting may have.", 30_000, 3_600_000),
    _node("group.share.delivery.count.limit", 5, "How often a record is delivered at most.", 2, 10),
    _node("group.share.min.delivery.count.limit", 2,
          "Lowest limit of deliveries that a share group's own setting may have.", 2, 5),
    _node("group.share.max.delivery.count.limit", 10,
          "Highest limit of deliveries that a share group's own setting may have.", 5, 25),
    _node("group.share.partition.max.record.locks", 2_000,
          "Most records of a partition that members of a share group hold at the same time.", 100, 10_000),
    _node("group.share.min.partition.max.record.locks", 100,
          "Lowest limit of held records that a share group's own setting may have.", 100, 2_000),
    _node("group.share.max.partition.max.record.locks", 4_000,
          "Highest limit of held records that a share group's own setting may have.", 2_000, 10_000),
    _node("group.share.max.size", 200, "Most members of a share group.", 1, 1_000),
    _node("group.share.max.share.sessions", 2_000, "Most share sessions of a broker.", 1),
    ConfigKey("group.share.assignors", _LIST, "simple", "Assignor of share groups.", _BROKER, allowed=("simple",)),
    _node("share.coordinator.snapshot.update.records.per.snapshot", 500,
          "Changes of a share-partition's state between two snapshots of it.", 0, 500),
    _node("share.coordinator.write.timeout.ms", 5_000,
          "Time within which writes to __share_group_state must be replicated.", 1),
    _node("share.coordinator.state.topic.num.partitions", 50, "Partitions of __share_group_state.", 1),
    _node("share.coordinator.state.topic.replication.factor", 3, "Replicas of __share_group_state.", 1, 32_767),
    _node("share.coordinator.state.topic.min.isr", 2, "min.insync.replicas of __share_group_state.", 1, 32_767),
    _node("share.coordinator.state.topic.segment.bytes", 104_857_600,
          "Segment size of __share_group_state.", 1_048_576),
)

_NODE_LETTER_KEYS: Final = (
    ConfigKey("errors.deadletterqueue.auto.create.topics.enable", _B, "false",
              "Whether a share group's dead letter topic is created if it does not exist.", _DYNAMIC),
    ConfigKey("errors.deadletterqueue.topic.name.prefix", _S, "dlq.",
              "Text that the names of dead letter topics must begin with; empty: any name.", _DYNAMIC),
)

_TOPIC_LETTER_KEYS: Final = (
    ConfigKey("errors.deadletterqueue.group.enable", _B, "false",
              "Whether share groups may write dead letters into the topic.", Scope.TOPIC),
)
# fmt: on

_AT_ONCE = "an assignment is computed at once"
_ONE_LOOP = "requests are served on one event loop"
_OWN_CLASS = "there is one way, which is Kafka's own"
_FIXED = "what it sets is fixed here"
# Keys that change nothing although share groups are served. Kafka's brokers can change these while they run,
_IGNORED: Final[Mapping[str, str]] = {
    "group.share.assignment.interval.ms": _AT_ONCE,
    "group.share.assignor.offload.enable": _AT_ONCE,
    "share.coordinator.cached.buffer.max.bytes": _ONE_LOOP,
}
# but not these.
_IGNORED_AT_START: Final[Mapping[str, str]] = {
    "group.share.dlq.manager.class.name": _OWN_CLASS,
    "group.share.initialize.retry.interval.ms": _FIXED,
    "group.share.max.assignment.interval.ms": _AT_ONCE,
    "group.share.min.assignment.interval.ms": _AT_ONCE,
    "group.share.persister.class.name": _OWN_CLASS,
    "share.coordinator.append.linger.ms": _ONE_LOOP,
    "share.coordinator.cold.partition.snapshot.interval.ms": _FIXED,
    "share.coordinator.load.buffer.size": _FIXED,
    "share.coordinator.state.topic.compression.codec": "the states are stored uncompressed",
    "share.coordinator.state.topic.prune.interval.ms": _FIXED,
    "share.coordinator.threads": _ONE_LOOP,
    "share.fetch.purgatory.purge.interval.requests": "requests that wait are forgotten when they are answered",
}


class ShareSettings(NamedTuple):
    """Settings of share groups that a program knows. Keys without effect have the reason as their value."""

    groups: tuple[ConfigKey, ...]
    nodes: tuple[ConfigKey, ...]
    topics: tuple[ConfigKey, ...]
    not_in_effect: Mapping[str, str]
    ignored: Mapping[str, str]
    ignored_at_start: Mapping[str, str]
    ignored_families: Mapping[str, str]


def share_settings(served: int) -> ShareSettings:
    """Return the settings of a program whose brokers serve share groups up to the level `served` of `share.version`."""
    groups, letters = served >= SHARE_GROUPS, served >= SHARE_WITH_DEAD_LETTERS
    absent = "share groups write no dead letters" if groups else "there are no share groups"
    return ShareSettings(
        groups=(
            *((*_GROUP_KEYS, *_GROUP_ORDER_KEYS) if groups else ()),
            *(_GROUP_LETTER_KEYS if letters else ()),
        ),
        nodes=(*(_NODE_KEYS if groups else ()), *(_NODE_LETTER_KEYS if letters else ())),
        topics=_TOPIC_LETTER_KEYS if letters else (),
        not_in_effect={"group.share.assignors": "there is one assignor"} if groups else {},
        ignored=_IGNORED if groups else {},
        ignored_at_start=_IGNORED_AT_START if groups else {},
        ignored_families={
            **({} if letters else {"errors.deadletterqueue.": absent}),
            **({} if groups else {"group.share.": absent, "share.": absent}),
        },
    )


SHARE_SETTINGS: Final = share_settings(SHARE_SERVED)
"""Settings of share groups that this program knows."""
_EVERY_NODE_KEY: Final[Mapping[str, ConfigKey]] = {key.name: key for key in _NODE_KEYS}
_DECLARED: Final = frozenset(key.name for key in SHARE_SETTINGS.nodes)

_WITHIN_BOUNDS: Final = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "record.lock.duration.ms",
    "delivery.count.limit",
    "partition.max.record.locks",
)
"""Ends of the names of nodes' keys that have a lowest and a highest value in two other keys."""


def check_share_numbers(properties: Mapping[str, str]) -> None:
    """Check the nodes' keys of share groups that bound each other. Raises ConfigError.

    The checks are Kafka's: each default is within the bounds of groups' settings, and members heartbeat more often than
    their sessions end.
    """
    for name in _WITHIN_BOUNDS:
        keys = tuple(f"group.share.{bound}{name}" for bound in ("min.", "", "max."))
        least, value, most = (share_number(key, properties) for key in keys)
        if not least <= value <= most:
            raise ConfigError(
                f"{keys[1]} is {value}: it must be from {least} to {most} ({keys[0]}, {keys[2]})"
            )
    session, heartbeat = (f"group.share.{name}" for name in _WITHIN_BOUNDS[:2])
    session_ms, heartbeat_ms = share_number(session, properties), share_number(heartbeat, properties)
    if heartbeat_ms >= session_ms:
        raise ConfigError(f"{heartbeat} ({heartbeat_ms}) must be less than {session} ({session_ms})")


def share_number(name: str, properties: Mapping[str, str]) -> int:
    """Return the value of a node's key of share groups that is a whole number. Raises ConfigError.

    A key that is not declared has no effect, and its value is the default.
    """
    key = _EVERY_NODE_KEY[name]
    given = properties.get(name, "") if name in _DECLARED else ""
    value = key.parse(given if given.strip() else key.default or "")
    assert isinstance(value, int), f"{name} is no whole number by its type"
    return value
