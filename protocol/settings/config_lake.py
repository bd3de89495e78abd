"""Configuration keys of topics that `ottla lake` writes as Iceberg tables. All are Ottla's own. `ottla.lake` acts by
them, and brokers by those of the hold."""

from __future__ import annotations

import re
from typing import Final

from .config_key import INT_MAX, ConfigError, ConfigKey, ConfigType, Scope

RAW: Final = "raw"
JSON: Final = "json"
UPSERT: Final = "upsert"
DEAD_LETTER: Final = "dead-letter"
FAIL: Final = "fail"
SKIP: Final = "skip"
TABLE_CHARACTERS_MAX: Final = 200
NAMESPACE: Final = "lake"
"""The namespace of tables whose topic does not name a table, and of the worker's own tables."""
HOLD_GROUPS: Final = "ottla-lake-"
"""The beginning of the ids of the groups with the offsets that tables still need."""
HOLD_MS_MIN: Final = 1_000
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+", re.ASCII)
_GROUP: Final = re.compile(r"[A-Za-z0-9_-]{0,100}", re.ASCII)
_FIELD: Final = re.compile(r"partition|(year|month|day|hour)\(timestamp\)", re.ASCII)


def _check_mode(text: str) -> None:
    if text == "registry":
        raise ConfigError(
            "rows by the schemas of a registry are not there yet; there are raw, json and upsert"
        )
    if text not in (RAW, JSON, UPSERT):
        raise ConfigError(f"{text[:100]!r} is not allowed: it must be raw, json or upsert")


def _check_table(text: str) -> None:
    if text and (not _TABLE.fullmatch(text) or len(text) > TABLE_CHARACTERS_MAX):
        raise ConfigError(
            f"{text[:100]!r} is not allowed: it must be NAMESPACE.NAME, of letters, digits and _, with at most "
            f"{TABLE_CHARACTERS_MAX} characters"
        )


def _check_group(text: str) -> None:
    if not _GROUP.fullmatch(text):
        raise ConfigError(f"{text[:100]!r} is not allowed: it must be at most 100 letters, digits, _ and -")


def partition_fields(text: str) -> list[str]:
    """Return the fields of a value of `ottla.lake.partition_by`. Raises ConfigError."""
    fields = [field.strip() for field in text.split(",") if field.strip()]
    for field in fields:
        if not _FIELD.fullmatch(field):
            raise ConfigError(
                f"{field[:100]!r} is not allowed: there are partition, year(timestamp), month(timestamp), "
                "day(timestamp) and hour(timestamp). A table that exists keeps its own partitioning"
            )
    if len({field.partition("(")[2] for field in fields}) < len(fields):
        raise ConfigError(f"{text[:100]!r} names a column twice")
    return fields


def table_name(topic: str, given: str) -> str:
    """Return the name of a topic's table, with its namespace. `given`: the value of `ottla.lake.table`."""
    return given or f"{NAMESPACE}.{_plain_name(topic)}"


def hold_group(table: str) -> str:
    """Return the group whose committed offsets are the first ones that a table still needs."""
    return HOLD_GROUPS + table


def _plain_name(topic: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return name if not name[:1].isdigit() else f"_{name}"


# fmt: off
LAKE_TABLE: Final = (
    ConfigKey("ottla.lake.enable", ConfigType.BOOLEAN, "false", "Whether `ottla lake run` writes the topic as a table.",
              Scope.TOPIC),
    ConfigKey("ottla.lake.mode", ConfigType.STRING, RAW,
              "Columns of the table. raw: the record's value as it is. json: a column for each field of its JSON. "
              "upsert: the same, and ottla_op, for a view of the newest row of each key.",
              Scope.TOPIC, check=_check_mode),
    ConfigKey("ottla.lake.table", ConfigType.STRING, "",
              "NAMESPACE.NAME of the table; empty: lake, and the topic's name with _ for other characters.",
              Scope.TOPIC, check=_check_table),
    ConfigKey("ottla.lake.partition_by", ConfigType.STRING, "",
              "Partitioning of a new table: partition, and one of year, month, day and hour, as in day(timestamp).",
              Scope.TOPIC, check=partition_fields),
    ConfigKey("ottla.lake.commit.ms", ConfigType.INT, "60000", "Time between commits of the table.", Scope.TOPIC,
              1_000, INT_MAX),
    ConfigKey("ottla.lake.bad_records", ConfigType.STRING, DEAD_LETTER,
              "Records that do not fit the columns: into the table NAME__dlq, an error that stops the table, or left "
              "out.", Scope.TOPIC, allowed=(DEAD_LETTER, FAIL, SKIP)),
    ConfigKey("ottla.lake.group", ConfigType.STRING, "",
              "Tables of one group commit at the same cuts, and get a tag for each; empty: a table by itself.",
              Scope.TOPIC, check=_check_group),
    ConfigKey("ottla.lake.hold", ConfigType.BOOLEAN, "false",
              "Whether retention by time and size waits for the table, for ottla.lake.hold.max.ms at most.",
              Scope.TOPIC),
    ConfigKey("ottla.lake.hold.max.ms", ConfigType.INT, "86400000",
              "The longest time that retention waits for the table.", Scope.TOPIC, HOLD_MS_MIN, INT_MAX),
)
# fmt: on
