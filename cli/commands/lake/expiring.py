"""`ottla lake expire`: the removal of old snapshots."""

from __future__ import annotations

import argparse
import time

from ....lake.requirements import require_extra
from ...arguments.selection import milliseconds_of
from ...failures import CommandFailed, UsageError
from ...terminal.output import none_of, print_json, print_table


def expire_snapshots(arguments: argparse.Namespace) -> None:
    """Remove old snapshots of tables from their metadata, and print the number for each table."""
    try:
        require_extra()
    except ModuleNotFoundError as error:
        raise CommandFailed(str(error)) from None
    from ....lake.failures import TableRefused
    from ....lake.iceberg.catalogs import lake_place, open_catalog
    from ....lake.iceberg.expiry import KeptSnapshots, expire, lake_tables

    try:
        place = lake_place(arguments.lake, arguments.catalog)
    except ValueError as error:
        raise UsageError(f"lake expire: {error}") from None
    if arguments.keep < 1:
        raise UsageError(f"lake expire: --keep takes a number of at least 1, not {arguments.keep}")
    since_ms = int(time.time() * 1000) - milliseconds_of(arguments.older_than, "--older-than")
    kept = KeptSnapshots(since_ms, arguments.keep)
    found: dict[str, int] = {}
    try:
        catalog = open_catalog(place)
        for name in arguments.tables or lake_tables(catalog):
            found[name] = expire(catalog, name, kept, only_look=arguments.dry_run)
    except TableRefused as error:
        raise CommandFailed(str(error)) from None
    if arguments.output == "json":
        print_json([{"table": name, "expired": count} for name, count in found.items()])
        return
    heading = "WOULD-EXPIRE" if arguments.dry_run else "EXPIRED"
    print_table(("TABLE", heading), list(found.items()), empty=none_of("tables"))
