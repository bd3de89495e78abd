"""The changes of a table's columns that make room for new rows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from .kinds import Kind, Listing, Plain, Struct, described

ELEMENT: Final = "element"
"""Iceberg's name of a list's elements in the path of a column."""
PROMOTED: Final = {(Plain.INT, Plain.LONG), (Plain.FLOAT, Plain.DOUBLE)}
"""The changes of a column's type that Iceberg has."""


class Added(NamedTuple):
    """A new column, or a new field of a struct."""

    path: tuple[str, ...]
    kind: Kind


class Widened(NamedTuple):
    """A column of another type from now on."""

    path: tuple[str, ...]
    kind: Plain


class CannotEvolve(ValueError):
    """The table's columns cannot become the wanted columns. Somebody else has changed the table meanwhile."""


def changes(known: Struct, wanted: Struct, path: tuple[str, ...] = ()) -> Iterator[Added | Widened]:
    """Yield the changes by which a table with the columns `known` gets all columns of `wanted`. It keeps others.

    Raises CannotEvolve.
    """
    for name, part in wanted.fields.items():
        there = known.fields.get(name)
        if there is None:
            yield Added((*path, name), part.kind)
        else:
            yield from _between(there.kind, part.kind, (*path, name))


def _between(known: Kind, wanted: Kind, path: tuple[str, ...]) -> Iterator[Added | Widened]:
    match known, wanted:
        case Struct(), Struct():
            yield from changes(known, wanted, path)
        case Listing(), Listing():
            yield from _between(known.element.kind, wanted.element.kind, (*path, ELEMENT))
        case Plain(), Plain() if known is wanted or (wanted, known) in PROMOTED:
            return  # Another worker may have widened it already.
        case Plain(), Plain() if (known, wanted) in PROMOTED:
            yield Widened(path, wanted)
        case _:
            raise CannotEvolve(
                f"column {'.'.join(path)} is {described(known)} in the table by now, and rows have {described(wanted)}"
            )
