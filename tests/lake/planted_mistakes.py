"""Mistakes that are planted into the lake's tables, and which the seeds have to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from ottla.client.records import TopicPartition
from ottla.lake.iceberg.tables import LakeTable
from ottla.lake.table_group import TableGroup
from ottla.lake.topic_table import TopicTable


@contextmanager
def everybody_commits() -> Iterator[None]:
    """Let a worker commit though another has taken the table over, or moved its position."""
    with patch.object(LakeTable, "_check_epoch", lambda self: None):
        seen = LakeTable._position
        with patch.object(
            LakeTable, "_position", lambda self: seen(self) if self._seen is None else self._seen
        ):
            yield


@contextmanager
def letters_ahead_are_forgotten() -> Iterator[None]:
    """Do not complete a round of which a dead worker has committed the dead letters alone."""
    original = TopicTable._open

    def opened(self: TopicTable) -> None:
        original(self)

    with patch.object(TopicTable, "_open", opened):
        yield


@contextmanager
def rows_before_letters() -> Iterator[None]:
    """Commit the rows, and with them the position, before the dead letters."""

    def commit(self: TopicTable, pending: Any, even_without_rows: bool) -> None:
        if pending.rows or pending.letters or even_without_rows:
            self.table.append(pending.rows, self.position, pending.end)
        if pending.letters:
            self._letter_table().append(pending.letters, self.position, pending.end)

    with patch.object(TopicTable, "_commit", commit):
        yield


@contextmanager
def lost_answers_are_failures() -> Iterator[None]:
    """Read from the former position after a failed commit, without a look at the table's position."""
    original = TopicTable.open
    known: dict[str, Any] = {}

    async def opened(self: TopicTable, epoch: Any, beginnings: Mapping[TopicPartition, int]) -> None:
        await original(self, epoch, beginnings)
        self.position = known.get(self.settings.table, self.position)
        known[self.settings.table] = self.position

    with patch.object(TopicTable, "open", opened):
        yield


@contextmanager
def tags_without_a_common_cut() -> Iterator[None]:
    """Tag the tables of a group though one of them is behind the cut."""
    cut = property(lambda self: max(table.position.cut for table in self.tables))
    with patch.object(TableGroup, "_common_cut", cut):
        yield


MISTAKES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "everybody-commits": everybody_commits,
    "letters-ahead-are-forgotten": letters_ahead_are_forgotten,
    "rows-before-letters": rows_before_letters,
    "lost-answers-are-failures": lost_answers_are_failures,
    "tags-without-a-common-cut": tags_without_a_common_cut,
}
