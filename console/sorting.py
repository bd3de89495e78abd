"""The order of a table's rows by a column that the page's address names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

DESCENDING: Final = "-"
"""The sign before a column's name for descending order, as in `?sort=-size`."""


@dataclass(frozen=True)  # With slots, `Column[Row](...)` would fail.
class Column(Generic[T]):
    """A column of a table.

    `name` stands in addresses, `title` in the table's head. `key` returns a row's value to compare, or None if it is
    unknown; without a key the rows cannot be sorted by the column. `is_number` aligns the column to the right.
    `descending_first` is the order of the first click.
    """

    name: str
    title: str
    key: Callable[[T], Any] | None = None
    is_number: bool = False
    descending_first: bool = False


@dataclass(frozen=True, slots=True)
class Sorted(Generic[T]):
    """All rows of a table in order of one of its columns.

    `default` is the order without a wish of the user. `address` returns the URL of the page in another order, such as
    `-size`. `parameter` is the query parameter with the order.
    """

    rows: Sequence[T]
    columns: Sequence[Column[T]]
    column: Column[T]
    is_descending: bool
    default: str
    parameter: str
    address: Callable[[str], str]

    @property
    def order(self) -> str:
        """The order as it stands in addresses: `size`, or `-size` for descending order."""
        return f"{DESCENDING if self.is_descending else ''}{self.column.name}"

    def named(self, name: str) -> Column[T]:
        """Return the column with this name. Raises StopIteration for a name that a template misspells."""
        return next(column for column in self.columns if column.name == name)

    def next_order(self, column: Column[T]) -> str:
        """Return the order after a click on the column's head. A click on the sorted column turns the order around."""
        is_sorted = column.name == self.column.name
        is_descending = not self.is_descending if is_sorted else column.descending_first
        return f"{DESCENDING if is_descending else ''}{column.name}"

    def aria_sort(self, column: Column[T]) -> str:
        """Return the order of a column in ARIA's words; empty for a column that does not order the rows."""
        if column.name != self.column.name:
            return ""
        return "descending" if self.is_descending else "ascending"


def in_order(
    rows: Sequence[T],
    columns: Sequence[Column[T]],
    order: str,
    *,
    default: str,
    parameter: str,
    address: Callable[[str], str],
) -> Sorted[T]:
    """Sort rows by `order`, such as `size` or `-size`.

    Rows with an unknown value come last in both directions. Rows with equal values are in order of the first column,
    or as given, if the first column has no key. Raises ValueError with the allowed names for another column.
    """
    name = order.removeprefix(DESCENDING)
    keys = {column.name: column.key for column in columns if column.key is not None}
    key = keys.get(name)
    if key is None:
        allowed = ", ".join(keys)
        raise ValueError(
            f"{parameter!r} is one of {allowed}, with {DESCENDING} before it for descending order, not {order[:40]!r}"
        )
    is_descending = order.startswith(DESCENDING)
    column = next(column for column in columns if column.name == name)
    keyed = [(key(row), row) for row in rows]
    if (first := columns[0].key) is not None and column is not columns[0]:
        keyed.sort(key=lambda pair: first(pair[1]))
    known = [pair for pair in keyed if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=is_descending)
    unknown = [row for value, row in keyed if value is None]
    return Sorted(
        [*(row for _, row in known), *unknown], columns, column, is_descending, default, parameter, address
    )
