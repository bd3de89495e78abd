"""The catalog of the tables: SQLite in the lake's folder, or a catalog that pyiceberg's own configuration names."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.table import CommitTableResponse, Table
from sqlalchemy.exc import IntegrityError

from ..failures import TableRefused
from .version_hints import write_hint

logger = logging.getLogger(__name__)

CATALOG_FILE = "catalog.db"
NAME = "ottla"
"""The catalog's name in its own database, by which other programs open it."""
SQLITE_TIMEOUT_S = 30
"""Time in seconds for which a commit waits for that of another process."""


class FolderCatalog(SqlCatalog):  # type: ignore[misc]  # pyiceberg is not followed
    """The catalog in a lake's folder. After each commit the table's version hint names the new metadata."""

    def create_table(self, *arguments: Any, **named: Any) -> Table:
        """Create a table as `SqlCatalog` does."""
        table = super().create_table(*arguments, **named)
        self._hint(table.metadata_location, is_new=True)
        return table

    def commit_table(self, *arguments: Any, **named: Any) -> CommitTableResponse:
        """Commit as `SqlCatalog` does."""
        done = super().commit_table(*arguments, **named)
        self._hint(done.metadata_location)
        return done

    @staticmethod
    def _hint(metadata_location: str, *, is_new: bool = False) -> None:
        try:
            write_hint(metadata_location, is_new=is_new)
        except OSError as error:
            # The commit is done. Readers by path see the former snapshot until the next.
            logger.warning("%s: the version hint was not written: %s", metadata_location, error)


@dataclass(frozen=True, slots=True)
class LakePlace:
    """The place of the tables. `folder`: the lake's folder; `catalog`: a name from `.pyiceberg.yaml`. One is set."""

    folder: Path | None = None
    catalog: str | None = None


def lake_place(lake: str | None, catalog: str | None) -> LakePlace:
    """Return the place that two options name, of which one is given. Raises ValueError."""
    if (lake is None) == (catalog is None):
        raise ValueError("give --lake FOLDER, or --catalog NAME for a catalog of .pyiceberg.yaml")
    if lake is None:
        return LakePlace(catalog=catalog)
    parts = urlsplit(lake)
    if parts.scheme not in ("", "file") or parts.netloc:
        raise ValueError(
            f"--lake is a folder of this machine, such as /srv/lake or file:///srv/lake, not {lake!r}: tables in an "
            "object store need a catalog of yours, which --catalog names"
        )
    return LakePlace(folder=Path(unquote(parts.path) if parts.scheme else lake).absolute())


def ensure_namespace(catalog: Catalog, name: str) -> None:
    """Create the namespace of a table by the table's name, unless it exists. Raises errors of the catalog."""
    namespace = name.rpartition(".")[0]
    try:
        catalog.create_namespace_if_not_exists(namespace)
    except IntegrityError:  # Somebody else has created it in the same moment.
        if not catalog.namespace_exists(namespace):
            raise


def existing_table(catalog: Catalog, name: str) -> Table:
    """Load a table. Raises TableRefused if it does not exist, and errors of the catalog."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        raise TableRefused(f"there is no table {name}") from None


def doubt_refusals(catalog: Catalog) -> Catalog:
    """Let a commit that the catalog refuses count as a commit of unknown outcome. Returns the catalog.

    A proxy may repeat a request whose answer it has lost: the catalog has accepted the first, and refuses the second.
    pyiceberg deletes the manifests of a refused commit, and the newest snapshot of the table would lack them. Those of
    an unknown outcome stay, for the sweep. The commits of the lake look by themselves whether they were done.
    """
    commit = catalog.commit_table

    def commit_table(*arguments: Any, **named: Any) -> CommitTableResponse:
        try:
            return commit(*arguments, **named)
        except CommitFailedException as error:
            raise CommitStateUnknownException(str(error)) from error

    catalog.commit_table = commit_table
    return catalog


def open_catalog(place: LakePlace, *, create: bool = False) -> Catalog:
    """Open the catalog. With `create` the folder and its catalog are made.

    Raises TableRefused if the folder has no catalog, ValueError if pyiceberg's configuration does not know the name.
    """
    if place.folder is None:
        return doubt_refusals(load_catalog(place.catalog))
    file = place.folder / CATALOG_FILE
    if create:
        place.folder.mkdir(parents=True, exist_ok=True)
    elif not file.exists():
        raise TableRefused(f"{place.folder} is no lake: it has no {CATALOG_FILE}")
    folder = FolderCatalog(
        NAME, uri=f"sqlite:///{file}?timeout={SQLITE_TIMEOUT_S}", warehouse=place.folder.as_uri()
    )
    return doubt_refusals(folder)
