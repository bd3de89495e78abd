"""Files in a table's folder that no snapshot names: of workers that were killed, and of expired snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from ..failures import TableRefused
from .catalogs import existing_table
from .version_hints import HINT, HINTED


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no snapshot names: its path in its file system, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of a table, in the file system of its store."""

    table: Table
    files: FileSystem
    path: str

    def path_of(self, location: str) -> str:
        """Return the path of a file by its address. `s3:` and `s3a:` name the same files."""
        return str(PyArrowFileIO.parse_location(location)[2])


def orphans(catalog: Catalog, name: str, before_ms: int) -> tuple[TableFolder, list[Orphan]]:
    """Return the folder of a table, and its files of before a time (ms since 1970) that no snapshot names.

    Raises TableRefused for a table that does not exist, whose files cannot be listed, or whose folder has another
    table, and errors of the catalog and the store.
    """
    folder = _folder(catalog, name)
    _check_alone(catalog, folder)
    # The files are listed first. A file that is committed afterwards is in the metadata that is loaded then.
    listed = {
        file.path: file for file in folder.files.get_file_info(FileSelector(folder.path, recursive=True))
    }
    old = {
        path: Orphan(path, file.size or 0)
        for path, file in listed.items()
        if file.type == FileType.File
        and file.mtime_ns is not None
        and file.mtime_ns // 1_000_000 < before_ms
        and file.base_name != HINT
        and not HINTED.fullmatch(file.base_name)
    }
    table = existing_table(catalog, name)
    for location in metadata_files(table):
        old.pop(folder.path_of(location), None)
    inside = folder.path.rstrip("/") + "/"
    for location in snapshot_files(table):
        path = folder.path_of(location)
        if path.startswith(inside) and path not in listed and not _is_there(folder, path):
            raise TableRefused(
                f"table {name}: the list of its folder lacks {path}, which a snapshot names; nothing is swept, since "
                "the table is damaged, or the store spells paths in two ways"
            )
        old.pop(path, None)
    return folder, sorted(old.values(), key=lambda orphan: orphan.path)


def delete(folder: TableFolder, found: Sequence[Orphan]) -> list[Orphan]:
    """Delete files, and return those that were still there."""
    deleted = []
    for orphan in found:
        with suppress(FileNotFoundError):
            folder.files.delete_file(orphan.path)
            deleted.append(orphan)
    return deleted


def metadata_files(table: Table) -> Iterator[str]:
    """Yield the addresses of a table's metadata, of earlier metadata that it names, and of statistics."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (file.statistics_path for file in metadata.statistics)
    yield from (file.statistics_path for file in metadata.partition_statistics)


def snapshot_files(table: Table) -> Iterator[str]:
    """Yield the addresses of all files of all snapshots, some of them repeatedly."""
    seen = set[str]()
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    yield entry.data_file.file_path


def _folder(catalog: Catalog, name: str) -> TableFolder:
    table = existing_table(catalog, name)
    if not isinstance(table.io, PyArrowFileIO):
        raise TableRefused(
            f"table {name}: its files are read by {type(table.io).__name__}, which cannot list a folder with the times "
            "of its files; pyiceberg's PyArrowFileIO can (property py-io-impl of the catalog)"
        )
    scheme, host, path = PyArrowFileIO.parse_location(table.location(), table.io.properties)
    return TableFolder(table, table.io.fs_by_scheme(scheme, host), path)


def _check_alone(catalog: Catalog, folder: TableFolder) -> None:
    """Check that no other table of the catalog has files in the folder. Raises TableRefused."""
    own = folder.path.rstrip("/") + "/"
    for namespace in catalog.list_namespaces():
        for other in catalog.list_tables(namespace):
            if other == folder.table.name():
                continue
            path = folder.path_of(catalog.load_table(other).location()).rstrip("/") + "/"
            if path.startswith(own) or own.startswith(path):
                raise TableRefused(
                    f"table {'.'.join(folder.table.name())} is in {own}, and table {'.'.join(other)} in {path}: the "
                    "files of two tables in one folder cannot be told apart"
                )


def _is_there(folder: TableFolder, path: str) -> bool:
    return bool(folder.files.get_file_info(path).type == FileType.File)
