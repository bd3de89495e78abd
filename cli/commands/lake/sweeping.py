"""`ottla lake sweep`: deletes files of tables that no snapshot names, after a confirmation."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from ...arguments.selection import milliseconds_of
from ...failures import UsageError
from ...terminal.confirmation import confirm
from ...terminal.output import bytes_text, none_of, print_json, print_table
from ...terminal.text import counted
from .place import lake_of, refusals

LEAST_AGE_MS: Final = 24 * 60 * 60 * 1000
"""The youngest age of a deleted file: a worker or an engine writes files before the snapshot that names them."""


def sweep_tables(arguments: argparse.Namespace) -> None:
    """Delete old files of tables that no snapshot names, and print the number for each table."""
    place = lake_of(arguments)
    from ....lake.iceberg.catalogs import open_catalog
    from ....lake.iceberg.expiry import lake_tables
    from ....lake.iceberg.orphans import delete, orphans

    age_ms = milliseconds_of(arguments.older_than, "--older-than")
    if age_ms < LEAST_AGE_MS:
        raise UsageError(
            "lake sweep: --older-than is at least 1d, since files are written before the snapshot that names them"
        )
    before_ms = int(time.time() * 1000) - age_ms
    with refusals():
        catalog = open_catalog(place)
        tables = arguments.tables or lake_tables(catalog)
        folders = {name: orphans(catalog, name, before_ms) for name in tables}
        found = {name: files for name, (_, files) in folders.items()}
        count = sum(len(files) for files in found.values())
        if count and not arguments.dry_run:
            size = bytes_text(sum(orphan.size for files in found.values() for orphan in files))
            names = ", ".join(name for name, files in found.items() if files)
            confirm(f"Delete {counted(count, 'file')}, {size}, of {names}?", yes=arguments.yes)
            found = {name: delete(folder, files) for name, (folder, files) in folders.items()}
    _print(
        [
            {"table": name, "files": len(files), "bytes": sum(orphan.size for orphan in files)}
            for name, files in found.items()
        ],
        arguments,
    )


def _print(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    if arguments.output == "json":
        print_json([{**row, "dry_run": arguments.dry_run} for row in rows])
        return
    heading = "WOULD-DELETE" if arguments.dry_run else "DELETED"
    print_table(
        ("TABLE", heading, "BYTES"),
        [(row["table"], row["files"], bytes_text(row["bytes"])) for row in rows],
        empty=none_of("tables"),
    )
