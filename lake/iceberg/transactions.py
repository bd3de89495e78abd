"""Transactions of pyiceberg that stay quick with many snapshots."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import ManageSnapshots


class QuickTransaction(Transaction):  # type: ignore[misc]  # pyiceberg is not followed
    """A transaction that calculates its metadata once for each change.

    pyiceberg calculates it whenever a step of a commit looks at it, 14 times for an append. Each time it copies all
    snapshots of the table.
    """

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        super().__init__(table, autocommit)
        self._calculated: TableMetadata | None = table.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the changes of this transaction."""
        if self._calculated is None:
            self._calculated = super().table_metadata
        return self._calculated

    def _stage(self, *arguments: Any, **named: Any) -> Transaction:
        staged = super()._stage(*arguments, **named)
        self._calculated = None
        return staged

    def _rebuild_snapshot_updates(self) -> None:
        self._calculated = None
        super()._rebuild_snapshot_updates()
        self._calculated = None


def snapshot_changes(table: Table) -> ManageSnapshots:
    """Return a change of a table's tags and branches, as `Table.manage_snapshots` does."""
    return ManageSnapshots(transaction=QuickTransaction(table, autocommit=True))
