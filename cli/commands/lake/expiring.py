"""`ottla lake expire`: the removal of old snapshots."""

from __future__ import annotations

import argparse
import time

from ...arguments.selection import milliseconds_of
from ...failures import UsageError
from ...terminal.output import none_of, print_json, print_table
from .place import lake_of, refusals


def expire_snapshots(arguments: argparse.Namespace) -> None:
    """Remove old snapshots of tables from their metadata, and print the number for each table."""
    place = lake_of(arguments)
    from ....lake.iceberg.catalogs import open_catalog
    from ....lake.iceberg.expiry import KeptSnapshots, expire, lake_tables

    if arguments.keep < 1:
        raise UsageError(f"lake expire: --keep takes a number of at least 1, not {arguments.keep}")
    since_ms = int(time.time() * 1000) - milliseconds_of(arguments.older_than, "--older-than")
    kept = KeptSnapshots(since_ms, arguments.keep)
    found: dict[str, int] = {}
    with refusals():
        catalog = open_catalog(place)
        for name in arguments.tables or lake_tables(catalog):
            found[name] = expire(catalog, name, kept, only_look=arguments.dry_run)
    if arguments.output == "json":
        print_json([{"table": name, "expired": count} for name, count in found.items()])
        return
    heading = "WOULD-EXPIRE" if arguments.dry_run else "EXPIRED"
    print_table(("TABLE", heading), list(found.items()), empty=none_of("tables"))
