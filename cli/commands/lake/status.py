"""`ottla lake status`: the state of each table."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING

from ....client.admin import Admin
from ...connection.precedence import connection_of
from ...run_client import run_client
from ...terminal.output import none_of, print_json, print_table
from ...terminal.shades import lag, state
from ...terminal.text import note
from .place import lake_of, refusals

if TYPE_CHECKING:
    from ....lake.iceberg.catalogs import LakePlace
    from ....lake.status import TableStatus


def show_status(arguments: argparse.Namespace) -> int:
    """Print a line for each table. Returns 1 if a topic's settings, or its table, need a person."""
    place = lake_of(arguments)
    with refusals():
        tables, errors = run_client(_statuses(arguments, place))
    if arguments.output == "json":
        print_json([table.to_json() for table in tables])
    else:
        _print(tables, is_wide=arguments.output == "wide")
    for topic, reason in errors.items():
        note(f"topic {topic}: {reason}")
    return int(bool(errors) or any(table.problem for table in tables))


async def _statuses(
    arguments: argparse.Namespace, place: LakePlace
) -> tuple[list[TableStatus], dict[str, str]]:
    from ....lake.cluster_view import LakeView
    from ....lake.iceberg.catalogs import open_catalog
    from ....lake.status import table_status

    catalog = await asyncio.to_thread(open_catalog, place)
    async with Admin(**connection_of(arguments)) as admin:
        view = LakeView(admin)
        await view.start()
        settings, errors = await view.tables(arguments.topics)
        return [await table_status(given, view, catalog) for given in settings], errors


def _print(tables: list[TableStatus], *, is_wide: bool) -> None:
    now_ms = time.time() * 1000
    rows = [
        (
            table.table,
            table.topic,
            table.mode,
            table.group or "-",
            "-" if table.cut in (None, -1) else table.cut,
            table.rows,
            table.letters,
            table.files,
            lag(str(table.behind)),
            "-" if table.committed_ms is None else f"{max(0, now_ms - table.committed_ms) / 1000:.0f} s",
            "yes" if table.hold else "-",
            state("refused") if table.problem else state("ok"),
        )
        for table in tables
    ]
    print_table(
        ("TABLE", "TOPIC", "MODE", "GROUP", "CUT", "ROWS", "BAD", "FILES", "BEHIND", "AGE", "HOLD", "STATE"),
        rows,
        spare=("GROUP", "FILES", "MODE", "HOLD", "TOPIC"),
        empty=none_of("topics with ottla.lake.enable=true"),
        wide=is_wide,
    )
    for table in tables:
        if table.problem:
            note(table.problem)
