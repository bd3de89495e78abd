"""The settings of a topic that say how it is written as a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..protocol.settings.config_fields import from_settings, setting
from ..protocol.settings.config_lake import hold_group, partition_fields, table_name
from .failures import TableRefused

LETTERS: Final = "__dlq"
"""The end of the name of the table with rows that do not fit."""


@dataclass(frozen=True, slots=True)
class LakeTopicKeys:
    """The values of a topic's keys `ottla.lake.*`."""

    enable: bool = setting("ottla.lake.enable", bool)
    mode: str = setting("ottla.lake.mode", str)
    table: str = setting("ottla.lake.table", str)
    partition_by: str = setting("ottla.lake.partition_by", str)
    commit_ms: int = setting("ottla.lake.commit.ms")
    bad_records: str = setting("ottla.lake.bad_records", str)
    group: str = setting("ottla.lake.group", str)
    hold: bool = setting("ottla.lake.hold", bool)


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of one table."""

    topic: str
    table: str
    """The name with its namespace: `lake.orders`."""
    mode: str
    partition_by: tuple[str, ...]
    commit_ms: int
    bad_records: str
    group: str
    """The group of tables that commit at the same cuts; empty for a table by itself."""
    hold: bool
    """True if the topic's retention waits for the table."""

    @property
    def letters(self) -> str:
        """The name of the table with the rows that do not fit."""
        return self.table + LETTERS

    @property
    def hold_group(self) -> str:
        """The group that gets the offsets that the table still needs."""
        return hold_group(self.table)


def table_settings(topic: str, values: Mapping[str, str]) -> TableSettings | None:
    """Return how a topic is written as a table, by its settings; None if it is not. Raises ConfigError."""
    given = from_settings(LakeTopicKeys, values)
    if not given.enable:
        return None
    return TableSettings(
        topic,
        table_name(topic, given.table),
        given.mode,
        tuple(partition_fields(given.partition_by)),
        given.commit_ms,
        given.bad_records,
        given.group,
        given.hold,
    )


def check_apart(settings: Iterable[TableSettings]) -> None:
    """Check that no two topics are written to one table. Raises TableRefused."""
    owners: dict[str, str] = {}
    for given in settings:
        for table in (given.table, given.letters):
            owner = owners.setdefault(table.lower(), given.topic)
            if owner != given.topic:
                raise TableRefused(
                    f"topics {owner!r} and {given.topic!r} both name table {table}: set ottla.lake.table of one of them"
                )


def grouped(settings: Iterable[TableSettings]) -> list[tuple[TableSettings, ...]]:
    """Return the settings of tables that commit together. A table without a group is alone."""
    groups: dict[tuple[str, str], list[TableSettings]] = {}
    for given in sorted(settings, key=lambda given: given.table):
        groups.setdefault((given.group, "" if given.group else given.table), []).append(given)
    return [tuple(members) for members in groups.values()]
