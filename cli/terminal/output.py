"""Output of commands: tables for people, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from .text import json_escaped, say, say_lines, visible


def print_json(value: object) -> None:
    """Print a JSON document on standard output."""
    say_lines(json_escaped(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with headings; in a pipe, print tab-separated lines with the headings first."""
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            say("\t".join(str(cell) for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column)
    for row in rows:
        cells = [
            Text(visible(str(cell)), justify="right" if isinstance(cell, int) else "left") for cell in row
        ]
        table.add_row(*cells)
    Console().print(table)


def numbers(values: Sequence[int]) -> str:
    """Join broker ids with commas: `1,2,3`."""
    return ",".join(str(value) for value in values)


def bytes_text(count: int) -> str:
    """Format a number of bytes with a unit: `1.5 MB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
