"""The data files of a table's newest snapshot, one manifest at a time."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table

from ..failures import TableRefused


def live_files(table: Table) -> Iterator[DataFile]:
    """Yield the data files of the newest snapshot. Raises TableRefused if rows of them are deleted by other files."""
    snapshot = table.current_snapshot()
    for manifest in [] if snapshot is None else snapshot.manifests(table.io):
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if manifest.content == ManifestContent.DATA:
            yield from (entry.data_file for entry in entries)
        elif entries:
            raise TableRefused(
                f"table {'.'.join(table.name())}: another engine has deleted rows by delete files, which `ottla lake` "
                "does not apply. Compact the table with that engine: in Spark by rewrite_data_files"
            )
