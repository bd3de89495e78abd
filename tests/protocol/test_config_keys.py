"""The table of configuration keys, their accepted values, and the messages about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.settings.config_keys import (
    CLUSTER_WIDE_KEYS,
    IGNORED_FAMILIES,
    IGNORED_KEYS,
    NODE_KEYS,
    NOT_IN_EFFECT,
    TOPIC_KEYS,
    ConfigError,
    Scope,
    check_dynamic_broker_config,
    check_properties,
    check_topic_config,
    check_topic_configs,
    node_key,
    why_ignored,
)
from ottla.protocol.settings.config_lake import LAKE_TABLE
from ottla.protocol.settings.config_share import SHARE_SETTINGS

# Apache Kafka 4.4.0's DescribeConfigs answer for a topic without settings.
KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_topics_have_kafkas_defaults() -> None:
    of_share = {key.name for key in SHARE_SETTINGS.topics}  # compared in test_share_settings.py
    own = of_share | {key.name for key in LAKE_TABLE}
    assert {name: key.default for name, key in TOPIC_KEYS.items() if name not in own} == KAFKA_TOPIC_DEFAULTS


def test_every_key_says_what_it_means() -> None:
    silent = [key.name for key in (*TOPIC_KEYS.values(), *NODE_KEYS.values()) if not key.doc.endswith(".")]
    assert not silent, "\n".join(silent)


def test_every_key_accepts_its_own_default() -> None:
    defaults = [
        (key, key.default) for key in (*TOPIC_KEYS.values(), *NODE_KEYS.values()) if key.default is not None
    ]
    assert len(defaults) > 100
    other = [f"{key.name}: {default!r}" for key, default in defaults if key.normal(default) != default]
    assert not other, "\n".join(other)


def test_a_topic_key_names_broker_keys_that_exist() -> None:
    for key in TOPIC_KEYS.values():
        if key.name.endswith(".replication.throttled.replicas") or key in (
            *SHARE_SETTINGS.topics,
            *LAKE_TABLE,
        ):
            assert not key.synonyms
            continue
        assert set(key.synonyms) <= NODE_KEYS.keys()
        assert NODE_KEYS[key.synonyms[0]].scope & Scope.DYNAMIC


def test_what_is_declared_without_effect_is_a_key_and_what_is_ignored_is_none() -> None:
    assert NOT_IN_EFFECT.keys() <= NODE_KEYS.keys() | TOPIC_KEYS.keys()
    assert not IGNORED_KEYS.keys() & NODE_KEYS.keys()
    in_families = [name for name in IGNORED_KEYS if name.startswith(tuple(IGNORED_FAMILIES))]
    assert not in_families


def test_every_key_of_a_node_of_kafka_is_known() -> None:
    """The list is that of Apache Kafka 4.4.0. `config.providers` is read before the others."""
    names = (Path(__file__).parent / "kafka_node_keys.txt").read_text().split()
    assert len(names) > 350
    unknown = [name for name in names if node_key(name) is None and why_ignored(name) is None]
    assert unknown == ["config.providers"]


def test_a_file_for_kafka_starts_a_node_with_a_note_about_what_has_no_effect() -> None:
    given = {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.sasl.mechanism.inter.broker.protocol": "PLAIN",
        "offsets.commit.timeout.ms": "500",
        "remote.log.storage.system.enable": "false",
        "create.topic.policy.class.name": "",
        "zookeeper.connection.timeout.ms": "18000",
        "share.coordinator.threads": "3",
    }
    notes = check_properties(given, Scope.BROKER)
    assert [note.split(" has no effect")[0] for note in notes] == [
        name for name in given if name != "offsets.commit.timeout.ms"
    ]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("remote.log.storage.system.enable", "TRUE", "there is no tiered storage: only false is allowed"),
        ("create.topic.policy.class.name", "org.example.Strict", "classes of your own are not loaded"),
        ("alter.config.policy.class.name", "org.example.Strict", "classes of your own are not loaded"),
        ("client.quota.callback.class", "org.example.Quotas", "classes of your own are not loaded"),
        ("controller.quorum.voterz", "1@a:1", "did you mean controller.quorum.voters"),
    ],
)
def test_a_value_that_asks_for_what_is_not_there_ends_the_start(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_properties({name: value}, Scope.BROKER)


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("preallocate", " TRUE ", "true"),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("leader.replication.throttled.replicas", "0:1, 0:2,12:1", "0:1,0:2,12:1"),
        ("retention.ms", " -1", "-1"),
        ("retention.ms", "+5", "+5"),
        ("segment.bytes", "1048576", "1048576"),
        ("segment.bytes", "2147483647", "2147483647"),
        ("flush.messages", "9223372036854775807", "9223372036854775807"),
        ("min.cleanable.dirty.ratio", "1", "1"),
        ("min.cleanable.dirty.ratio", "2e-1", "2e-1"),
        ("cleanup.policy", "compact , delete", "compact,delete"),
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", "", ""),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ],
)
def test_values_that_are_accepted(name: str, given: str, kept: str) -> None:
    assert check_topic_config(name, given) == kept


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "retention.ms",
            "soon",
            "Invalid value 'soon' for configuration retention.ms: it must be a whole number",
        ),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "1_000", "a whole number of 64 bits"),
        ("retention.ms", "", "a whole number of 64 bits"),
        ("retention.ms", "9223372036854775808", "a whole number of 64 bits"),
        ("retention.ms", "9" * 5000, "a whole number of 64 bits"),
        ("retention.ms", "\u0665", "a whole number of 64 bits"),
        ("segment.bytes", "1048575", "at least 1048576"),
        ("segment.bytes", "2147483648", "a whole number of 32 bits"),
        ("min.insync.replicas", "0", "at least 1"),
        ("min.cleanable.dirty.ratio", "1.5", "at most 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number"),
        ("min.cleanable.dirty.ratio", "1e999", "at most 1"),
        ("preallocate", "yes", "true or false"),
        ("follower.replication.throttled.replicas", "0", "'*' or partition:broker"),
        ("follower.replication.throttled.replicas", "0:1,*", "'*' or partition:broker"),
        ("follower.replication.throttled.replicas", "0:-1", "'*' or partition:broker"),
        ("compression.type", "rar", "one of uncompressed, gzip, snappy, lz4, zstd, producer"),
        ("compression.type", "GZIP", "one of uncompressed"),
        ("cleanup.policy", "shrink", "any of delete, compact"),
        ("cleanup.policy", "compact,", "any of delete, compact"),
        ("retention.mss", "5", "Unknown topic config name: retention.mss: did you mean retention.ms?"),
        ("zzzzzz", "5", "Unknown topic config name: zzzzzz"),
    ],
)
def test_values_that_are_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_topic_config(name, value)
    assert said in str(refused.value)


def test_compaction_lags_have_to_fit_each_other() -> None:
    check_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match=r"greater than max\.compaction"):
        check_topic_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_running_brokers_take_only_dynamic_keys() -> None:
    assert check_dynamic_broker_config("log.retention.ms", "60000") == "60000"
    with pytest.raises(ConfigError, match=r"dynamically: .num\.partitions"):
        check_dynamic_broker_config("num.partitions", "3")
    for name in ("ssl.keystore.password", "listener.name.clients.plain.sasl.jaas.config"):
        with pytest.raises(ConfigError, match=r"dynamically: .*(password|jaas)"):
            check_dynamic_broker_config(name, "3")
    for name in ("my.plugin.password", "plugin.api.key", "my.access_token"):
        with pytest.raises(ConfigError, match="looks like a secret"):
            check_dynamic_broker_config(name, "3")
    assert check_dynamic_broker_config("monkeys.in.the.keyboard", "3") == "3"
    for name, value in (("num.io.threads", "x"), ("num.network.threads", "0"), ("n" * 256, "1")):
        with pytest.raises(ConfigError):
            check_dynamic_broker_config(name, value)


def test_brokers_take_names_that_nothing_knows() -> None:
    """Kafka accepts them for plugins, and clients set the names that they know from there."""
    for name in ("sasl.kerberos.min.time.before.relogin", "my.plugin.limit", "num.io.threads"):
        assert check_dynamic_broker_config(name, "70000") == "70000"


def test_a_file_is_checked_whole_and_told_what_has_no_effect() -> None:
    notes = check_properties({"node.id": "1", "zookeeper.connect": "x", "broker.rack": "r"}, Scope.QUORUM)
    assert notes == [
        "zookeeper.connect has no effect: there is no ZooKeeper",
        "broker.rack has no effect in this role",
    ]
    with pytest.raises(ConfigError, match=r"did you mean log\.segment\.bytes"):
        check_properties({"log.segment.byte": "1"}, Scope.BROKER)
    with pytest.raises(ConfigError, match=r"node\.id"):
        check_properties({"node.id": "-1"}, Scope.BROKER)
    for name in CLUSTER_WIDE_KEYS:
        assert NODE_KEYS[name].scope & Scope.QUORUM
