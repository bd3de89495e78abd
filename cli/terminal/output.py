"""Output of commands: tables for people, JSON for machines."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence

from .shades import Shaded, has_colours, heading, painted
from .text import json_escaped, note, say, say_lines, shown, visible


def print_json(value: object) -> None:
    """Print a JSON document on standard output."""
    say_lines(json_escaped(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    spare: Sequence[str] = (),
    empty: str = "",
    wide: bool = False,
) -> None:
    """Print a table with headings; in a pipe, print tab-separated lines with the headings first.

    `spare` are the columns that a narrow terminal leaves out, the least important first, unless the table is `wide`.
    `empty` is the sentence for people if there are no rows.
    """
    is_terminal = sys.stdout.isatty()
    if not rows and empty:
        note(empty)
    if not is_terminal:
        for row in (columns, *rows):
            sys.stdout.write("\t".join(map(shown, row)) + "\n")
    elif rows or not empty:
        _print_for_people(columns, rows, spare, None if wide else shutil.get_terminal_size().columns)


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print names and values, a line for each."""
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        sys.stdout.write(f"{name:<{width}} {shown(value)}\n")


def none_of(things: str, *, asked: bool = False) -> str:
    """Return the sentence for people about an empty table; `asked` if options have narrowed the choice."""
    return f"There are no {'such ' if asked else ''}{things}."


def separate() -> None:
    """Print an empty line between two tables on a terminal."""
    if sys.stdout.isatty():
        say()


def _print_for_people(
    columns: Sequence[str], rows: Sequence[Sequence[object]], spare: Sequence[str], width: int | None
) -> None:
    # loaded late, since most commands start without a table
    from .table_layout import lay_out, lines_of, remark_lines

    texts = [[visible(str(cell)) for cell in row] for row in rows]
    layout = lay_out(columns, texts, width, spare)
    coloured = has_colours(sys.stdout)

    def paint(row: int, place: int, text: str) -> str:
        if not coloured:
            return text
        if row < 0:
            return heading(text)
        cell = rows[row][place]
        return painted(text, cell.shade) if isinstance(cell, Shaded) else text

    sys.stdout.writelines(f"{line}\n" for line in lines_of(columns, texts, layout, paint))
    for line in remark_lines(layout, width):
        say(line)


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
