"""Transactions of pyiceberg that stay quick with many snapshots."""

from __future__ import annotations

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate, update_table_metadata
from pyiceberg.table.update.snapshot import ManageSnapshots


class QuickTransaction(Transaction):  # type: ignore[misc]  # pyiceberg is not followed
    """A transaction that calculates its metadata once for each change.

    pyiceberg calculates it whenever a step of a commit looks at it, 14 times for an append. Each time it copies all
    snapshots of the table.
    """

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        super().__init__(table, autocommit)
        self._known: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the changes of this transaction."""
        base, updates = self._table.metadata, self._updates
        if not updates:
            return base
        if self._known is None or self._known[0] is not base or self._known[1] is not updates:
            self._known = base, updates, update_table_metadata(base, updates)
        return self._known[2]


def snapshot_changes(table: Table) -> ManageSnapshots:
    """Return a change of a table's tags and branches, as `Table.manage_snapshots` does."""
    return ManageSnapshots(transaction=QuickTransaction(table, autocommit=True))
