"""Commits that put the rows of some files into others, while workers and other engines write to the table."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from ..failures import TableRefused
from .catalogs import existing_table
from .live_files import live_files
from .tables import ATTEMPTS_MAX, MAY_PASS, attempts, summary_of
from .transactions import QuickTransaction

logger = logging.getLogger(__name__)

REPLACEMENT: Final = "ottla.replacement"
"""A random name of an attempt to commit, by which it is recognised if its answer was lost."""


class Replacement(NamedTuple):
    """Files, and the new files that have the same rows, or fewer."""

    old: Sequence[DataFile]
    new: Sequence[DataFile]
    keeps_rows: bool = True


def replace_files(catalog: Catalog, name: str, wanted: Sequence[Replacement]) -> list[Replacement]:
    """Replace files of a table in one commit, and return the replacements that were done.

    The others are skipped, as somebody else has replaced some of their files meanwhile; their new files are deleted.
    The snapshot has no position: the worker's is in an earlier one. Raises TableRefused, and errors of the store.
    """
    tried: dict[str, list[Replacement]] = {}
    failure: Exception | None = None
    for number in attempts():
        try:
            table = existing_table(catalog, name)
            done = _found(table, tried)
            if done is None:
                done = _still_right(table, wanted)
                if done:
                    mark = uuid.uuid4().hex
                    tried[mark] = done
                    _commit(table, done, mark)
            kept = {file.file_path for replacement in done for file in replacement.new}
            discard(table, [file for made in wanted for file in made.new if file.file_path not in kept])
            return done
        except (*MAY_PASS, ValidationException) as error:
            failure = error
            logger.info("table %s: attempt %d to replace files failed: %s", name, number, error)
    raise TableRefused(
        f"table {name}: {ATTEMPTS_MAX} attempts to replace files failed, the last with: {failure}"
    )


def discard(table: Table, files: Sequence[DataFile]) -> None:
    """Delete files that no snapshot names. A file that cannot be deleted stays, for the sweep."""
    for file in files:
        with suppress(OSError):
            table.io.delete(file.file_path)


def _found(table: Table, tried: Mapping[str, list[Replacement]]) -> list[Replacement] | None:
    """Return what an attempt has committed whose answer was lost."""
    marks = {summary_of(snapshot).get(REPLACEMENT) for snapshot in table.snapshots()} if tried else set()
    return next((done for mark, done in tried.items() if mark in marks), None)


def _still_right(table: Table, wanted: Sequence[Replacement]) -> list[Replacement]:
    """Return the replacements whose old files are all in the newest snapshot, and whose new files fit the table."""
    old = {file.file_path for replacement in wanted for file in replacement.old}
    there = {file.file_path for file in live_files(table) if file.file_path in old}
    return [
        replacement
        for replacement in wanted
        if all(file.file_path in there for file in replacement.old)
        and all(file.spec_id == table.spec().spec_id for file in replacement.new)
    ]


def _commit(table: Table, replacements: Sequence[Replacement], mark: str) -> None:
    transaction = QuickTransaction(table)
    keeps_rows = all(replacement.keeps_rows for replacement in replacements)
    with (_ReplaceFiles if keeps_rows else _OverwriteFiles)(
        Operation.OVERWRITE, transaction, table.io, snapshot_properties={REPLACEMENT: mark}
    ) as producer:
        producer.delete_by_predicate(AlwaysTrue())  # Look for the files in all manifests.
        for replacement in replacements:
            for file in replacement.old:
                producer.delete_data_file(file)
            for file in replacement.new:
                producer.append_data_file(file)
    transaction.commit_transaction()


class _ReplaceFiles(_OverwriteFiles):  # type: ignore[misc]  # pyiceberg is not followed
    """A snapshot that replaces files by others with the same rows. Engines that follow new rows skip it.

    pyiceberg makes no such snapshots: to engines its overwrites are new rows.
    """

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        summary = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **summary.additional_properties)
