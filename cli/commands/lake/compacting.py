"""`ottla lake compact`: small files of tables become larger ones."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ...terminal.output import bytes_text, none_of, print_json, print_table
from ...terminal.progress import ProgressLine
from .place import lake_of, refusals


def compact_tables(arguments: argparse.Namespace) -> None:
    """Rewrite the small files of tables, and print the number for each table."""
    place = lake_of(arguments)
    from ....lake.iceberg.catalogs import open_catalog
    from ....lake.iceberg.compaction import Compacted, compact, planned
    from ....lake.iceberg.expiry import lake_tables

    found: list[Compacted] = []
    with refusals(), ProgressLine() as line:
        catalog = open_catalog(place)
        for name in arguments.tables or lake_tables(catalog):

            def tell(done: int, total: int, name: str = name) -> None:
                line.show(f"{name}: {bytes_text(done)} of {bytes_text(total)} rewritten")

            found.append(planned(catalog, name) if arguments.dry_run else compact(catalog, name, tell))
    if arguments.output == "json":
        print_json([asdict(table) for table in found])
        return
    heading = "WOULD-REPLACE" if arguments.dry_run else "REPLACED"
    print_table(
        ("TABLE", heading, "BYTES", "BY", "ROWS-DROPPED", "SKIPPED"),
        [
            (
                table.table,
                table.replaced,
                bytes_text(table.replaced_bytes),
                table.by,
                table.dropped,
                table.skipped,
            )
            for table in found
        ],
        empty=none_of("tables"),
    )
