"""The text of docs/CONFIGURATION.md, made from the table of keys; `python -m tests.render_configuration` writes the
page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ottla.protocol.settings.config_keys import (
    IGNORED_FAMILIES,
    IGNORED_KEYS,
    NODE_KEYS,
    NOT_IN_EFFECT,
    TOPIC_KEYS,
    ConfigKey,
    ConfigType,
    Scope,
    is_dynamic,
)
from ottla.protocol.settings.config_resources import CLIENT_METRICS_KEYS, GROUP_KEYS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "CONFIGURATION.md"

HEAD = """\
# Configuration

This page lists every setting of topics, nodes, groups and client metrics. Names, types and meanings are Apache
Kafka's.

A node reads its settings from the file that `-c` names: YAML, or `key=value` lines if the name ends in `.properties`.
Such a file is read as Java reads it: a backslash stands for itself only where there are two.
In YAML a value is the text that stands there, as in a `.properties` file: `010` is 010, and a rack named `no` is no. A
setting that is declared to be a boolean takes an unquoted `yes`, `no`, `on` or `off` as well.
A variable such as `KAFKA_LOG_SEGMENT_BYTES` overrides the file, and `--set log.segment.bytes=...` overrides both. An
unknown key or a value of the wrong type ends the start. The message names the nearest key, or what is allowed.

Keys of listeners (`ssl.*`, but for `ssl.handshake.timeout.ms`) may be given for one listener: `listener.name.clients.`
and the key, with the listener in lower case. That counts before the key alone. `max.connections` and
`max.connection.creation.rate` may be given for one listener, too, and then both limits hold. In names of variables that
begin with `KAFKA_LISTENER_NAME_`, two underscores stand for an underscore and three for a dash.

With `config.providers`, values may refer to variables and files:
[SECURITY-GUIDE.md](SECURITY-GUIDE.md#secrets-out-of-the-configuration).

Settings of topics are given when a topic is created (`ottla topic create orders --config min.insync.replicas=2`). Any
Kafka admin client changes them later (IncrementalAlterConfigs, AlterConfigs). The broker key in the last column of
the first table gives the default.

`python -m tests.render_configuration` makes this page from `protocol/settings/config_table.py`, the tables beside it,
and `protocol/settings/config_resources.py`, and a test compares them.

| sign | means |
|---|---|
| scope B | a broker's file |
| scope Q | a quorum node's file |
| scope D | also while brokers run, for one broker or all. It acts at once. Other keys of this page are refused then |
| a dash as the default | the key is optional, or has to be given where the meaning says so |
| a key in italics | checked, kept and described, and [without effect so far](#without-effect-so-far) |

While brokers run, `listener.name.NAME.ssl.*` is changed for one broker, but for mapping rules.

With `metrics.` in front, the same keys give `metrics.listener` TLS ([METRICS.md](METRICS.md#who-reads-them)).

Names that are not on this page are kept without effect, as Kafka keeps them for plugins. `ottla config` says so.
"""

REQUIRED = """\
Every node needs `node.id`, `cluster.id`, `cluster.secret.file` (at least 16 bytes, the same on all nodes),
`controller.quorum.voters` and `log.dirs` (or `log.dir`; for a quorum node also `metadata.log.dir`). Quorum nodes should
have `quorum.secret.file`, too: [OPERATIONS.md](OPERATIONS.md#two-secrets).
"""

GROUPS = """\
These are settings of one consumer group, whether it exists or not: `kafka-configs.sh --entity-type groups`. They must
lie within the `group.consumer.min.` and `group.consumer.max.` settings of the broker that is asked.
"""

CLIENT_METRICS = """\
These are subscriptions of clients' metrics (KIP-714), by name: `kafka-configs.sh --entity-type client-metrics`. They
are checked, kept and described. No client is asked for metrics; a Kafka broker without a plugin that takes them asks
none either.
"""

_TYPES = {
    ConfigType.BOOLEAN: "boolean",
    ConfigType.INT: "int",
    ConfigType.LONG: "long",
    ConfigType.DOUBLE: "double",
    ConfigType.LIST: "list",
    ConfigType.STRING: "string",
    ConfigType.PASSWORD: "password",
}
_LARGEST = {str(2**31 - 1): "2^31 - 1", str(2**63 - 1): "2^63 - 1"}
_SCOPES = ((Scope.BROKER, "B"), (Scope.QUORUM, "Q"), (Scope.DYNAMIC, "D"))


def render() -> str:
    """Return the text of the whole page."""
    return "\n".join(
        [
            HEAD,
            "## Topics\n",
            *_table(
                ("key", "type", "default", "allowed", "meaning", "broker key"),
                map(_topic_row, _sorted(TOPIC_KEYS.values())),
            ),
            "## Brokers and quorum nodes\n",
            REQUIRED,
            *_table(
                ("key", "scope", "type", "default", "allowed", "meaning"),
                map(_node_row, _sorted(NODE_KEYS.values())),
            ),
            "## Groups\n",
            GROUPS,
            *_table(
                ("key", "type", "default", "allowed", "meaning", "broker key"),
                map(_topic_row, _sorted(GROUP_KEYS.values())),
            ),
            "## Client metrics\n",
            CLIENT_METRICS,
            *_table(
                ("key", "type", "default", "allowed", "meaning"),
                (_topic_row(key)[:-1] for key in _sorted(CLIENT_METRICS_KEYS.values())),
            ),
            "## Without effect so far\n",
            *_table(
                ("key", "what happens instead"),
                ((f"`{name}`", why) for name, why in sorted(NOT_IN_EFFECT.items())),
            ),
            "## Ignored\n",
            "Files written for Apache Kafka may have these. They are accepted, with a note in the log. A star stands "
            "for the rest of a name. So a node knows every key that Kafka 4.4 has.\n",
            *_table(
                ("key", "why it changes nothing"),
                ((f"`{name}`", why) for name, why in sorted(_ignored())),
            ),
        ]
    )


def _ignored() -> Iterator[tuple[str, str]]:
    yield from IGNORED_KEYS.items()
    for family, why in IGNORED_FAMILIES.items():
        yield f"{family}*", why


def _sorted(keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    return sorted(keys, key=lambda key: key.name)


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = tuple(columns)
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _topic_row(key: ConfigKey) -> tuple[str, ...]:
    synonyms = ", ".join(f"`{name}`" for name in key.synonyms)
    return (_name(key), _TYPES[key.type], _default(key), _allowed(key), key.doc, synonyms)


def _node_row(key: ConfigKey) -> tuple[str, ...]:
    scope = " ".join(
        letter
        for flag, letter in _SCOPES
        if flag in key.scope and (flag is not Scope.DYNAMIC or is_dynamic(key.name))
    )
    return (_name(key), scope, _TYPES[key.type], _default(key), _allowed(key), key.doc)


def _name(key: ConfigKey) -> str:
    return f"*`{key.name}`*" if key.name in NOT_IN_EFFECT else f"`{key.name}`"


def _default(key: ConfigKey) -> str:
    return "-" if key.default is None else f"`{_LARGEST.get(key.default, key.default)}`"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**63 else f"{value:g}"


def _allowed(key: ConfigKey) -> str:
    bounds = [f">= {_number(key.least)}"] if key.least is not None else []
    bounds += [f"<= {_number(key.most)}"] if key.most is not None else []
    return ", ".join([f"`{value}`" for value in key.allowed] or bounds)


if __name__ == "__main__":
    PAGE.write_text(render())
