"""Tables of a client's options, made from their declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING
from itertools import groupby

from ottla.client.declared_options import DeclaredOption, group_title
from ottla.client.security.options import SecurityOptions
from tests.reference.markdown import code, plain, table

COLUMNS = ("option", "type", "default", "unit", "meaning")


def option_tables(options: Sequence[DeclaredOption]) -> Iterator[str]:
    """Yield a headline and a table for each group of options. The options of security have their own page."""
    for group, members in groupby(options, key=lambda option: option.group):
        rows = [option_row(option) for option in members]
        if group is SecurityOptions:
            yield "### Options of secured clusters\n"
            yield f"[Options of secured clusters](security.md), {len(rows)} of them, are common to all clients.\n"
        else:
            yield f"### {group_title(group)}\n"
            yield table(COLUMNS, rows)


def option_row(option: DeclaredOption) -> tuple[str, ...]:
    """Return the row of an option."""
    default = "required" if option.default is MISSING else code(option.default_text)
    return (code(option.name), option.type_text, default, option.unit, plain(option.meaning))
