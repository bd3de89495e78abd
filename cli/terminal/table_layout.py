"""Layout of a table in the columns of a terminal. Pure.

Numbers, ids, sizes and states are never cut, and neither are headings. In a narrow terminal a table gives up width in
this order:

1. its spare columns, the first named first,
2. prose, which goes on in further lines of the row,
3. the middle of names, the longest first.

A table that is still too wide keeps its width, and the terminal wraps its lines.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.cells import cell_len, chop_cells, set_cell_size

GAP: Final = 2
"""Blanks between columns."""
NAME_MIN: Final = 12
"""The width below which names are not shortened."""
PROSE_MIN: Final = 24
"""The width below which prose is not wrapped."""
NAMES: Final = frozenset(
    (
        "ADDRESS",
        "ADVERTISED",
        "BOOTSTRAP",
        "CLIENT-ID",
        "COORDINATOR",
        "FOLDER",
        "GROUP",
        "HOST",
        "MEMBER-ID",
        "MIRROR",
        "NAME",
        "OWNER",
        "PATH",
        "PRINCIPAL",
        "RENEWERS",
        "REQUESTER",
        "SYNONYM",
        "TOPIC",
        "TRANSACTIONAL-ID",
        "USER",
    )
)
"""Headings of columns with names."""
PROSE: Final = frozenset(
    ("CERTIFICATE", "LOGINS", "LOSS", "REASON", "RESULT", "RULE", "SOURCE", "VALUE", "WHY")
)
"""Headings of columns with sentences, lists or values of any length."""
_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?( ?[kMGT]?B(/s)?|%)?\+?|[-?]")


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns of a table that a terminal shows: their places among all columns, and their widths.

    `left_out` are the headings of the other columns, and `shortened` the headings of columns with shortened names.
    """

    shown: tuple[int, ...]
    widths: tuple[int, ...]
    left_out: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The width of a line in cells of the terminal."""
        return sum(self.widths) + GAP * (len(self.widths) - 1)


def lay_out(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, spare: Sequence[str] = ()
) -> TableLayout:
    """Return the layout of a table for a terminal of this width; None stands for any width."""
    widths = [
        max(map(cell_len, (heading, *(row[place] for row in rows)))) for place, heading in enumerate(headings)
    ]
    layout = TableLayout(tuple(range(len(headings))), tuple(widths))
    if width is None:
        return layout
    layout = _without_spare(layout, headings, width, spare, _without_content(headings, rows))
    for kind, least in ((PROSE, PROSE_MIN), (NAMES, NAME_MIN)):
        layout = _narrower(layout, headings, width, kind, least)
    return replace(
        layout,
        shortened=tuple(
            headings[place]
            for place, kept in zip(layout.shown, layout.widths, strict=True)
            if headings[place] in NAMES and kept < widths[place]
        ),
    )


def _without_content(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> set[str]:
    """Return the headings of columns in which no row has a value."""
    return {
        heading
        for place, heading in enumerate(headings)
        if rows and all(row[place] in ("", "-") for row in rows)
    }


def _without_spare(
    layout: TableLayout, headings: Sequence[str], width: int, spare: Sequence[str], void: Collection[str]
) -> TableLayout:
    """Leave out spare columns until the others fit with prose at its least width. Columns without content go first,
    and are not named."""
    for heading in sorted(spare, key=lambda heading: heading not in void):
        if _narrower(layout, headings, width, PROSE, PROSE_MIN).width <= width:
            break
        kept = [
            pair for pair in zip(layout.shown, layout.widths, strict=True) if headings[pair[0]] != heading
        ]
        if len(kept) == len(layout.shown):
            continue
        layout = TableLayout(
            tuple(place for place, _ in kept),
            tuple(width for _, width in kept),
            layout.left_out if heading in void else (*layout.left_out, heading),
        )
    return layout


def _narrower(
    layout: TableLayout, headings: Sequence[str], width: int, kind: frozenset[str], least: int
) -> TableLayout:
    """Take the missing width from the columns of a kind, the widest first, down to their least width."""
    widths = list(layout.widths)
    floors = {
        number: max(least, cell_len(headings[place]))
        for number, place in enumerate(layout.shown)
        if headings[place] in kind
    }
    missing = layout.width - width
    while missing > 0 and (able := [number for number, floor in floors.items() if widths[number] > floor]):
        widest = max(able, key=widths.__getitem__)
        others = [widths[number] for number in able if widths[number] < widths[widest]]
        step = max(1, min(missing, widths[widest] - max([floors[widest], *others])))
        widths[widest] -= step
        missing -= step
    return replace(layout, widths=tuple(widths))


def lines_of(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    layout: TableLayout,
    paint: Callable[[int, int, str], str] = lambda row, place, text: text,
) -> list[str]:
    """Return the lines of a table, the headings first.

    `paint` adds escape codes to the text of a cell, by the number of its row (-1: the headings) and its place. Widths
    are those of the text alone.
    """
    rights = {place for place in layout.shown if _is_numeric([row[place] for row in rows])}
    lines = []
    for number, cells in enumerate((headings, *rows), start=-1):
        pieces = [
            _pieces(headings[place], cells[place], width)
            for place, width in zip(layout.shown, layout.widths, strict=True)
        ]
        for level in range(max(map(len, pieces))):
            padded = []
            for place, width, parts in zip(layout.shown, layout.widths, pieces, strict=True):
                text = parts[level] if level < len(parts) else ""
                blanks = " " * (width - cell_len(text))
                painted = paint(number, place, text) if text else ""
                padded.append(blanks + painted if place in rights else painted + blanks)
            lines.append((" " * GAP).join(padded).rstrip())
    return lines


def remark_lines(layout: TableLayout, width: int | None) -> list[str]:
    """Return the lines under a table that name its hidden columns and its shortened names; none if all is shown."""
    hidden = [f"left out: {', '.join(layout.left_out)}"] if layout.left_out else []
    hidden += [f"shortened: {', '.join(layout.shortened)}"] if layout.shortened else []
    if not hidden or width is None:
        return []
    return textwrap.wrap(f"({'; '.join(hidden)}. -o wide, -o json or a wider terminal shows all)", width)


def shorten(text: str, width: int) -> str:
    """Return a name in at most `width` cells of a terminal: the sign … stands for its middle."""
    if cell_len(text) <= width:
        return text
    end = (width - 1) // 2
    kept = width - 1 - end
    tail = text[-end:] if end else ""
    while cell_len(tail) > end:
        tail = tail[1:]
    return f"{set_cell_size(text, kept).rstrip()}…{tail}"


def _pieces(heading: str, text: str, width: int) -> list[str]:
    """Return the lines of a cell: one line, or several lines of prose."""
    if cell_len(text) <= width:
        return [text]
    if heading in PROSE:
        lines = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
        return [piece for line in lines for piece in chop_cells(line, width)] or [""]
    return [shorten(text, width)] if heading in NAMES else [text]


def _is_numeric(cells: Sequence[str]) -> bool:
    """Return whether a column has numbers or sizes only, so that they stand to the right."""
    return any(cell[-1:].isalnum() for cell in cells) and all(_NUMBER.fullmatch(cell) for cell in cells)
