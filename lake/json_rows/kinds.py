"""The types of columns that JSON can fill, and how they grow with the values that come. Pure.

A column is added for a new field. A number of 32 bits may become one of 64, and a float a double. A column that the
table does not have yet may also become a double from a whole number. Any other value of another type does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

DEPTH_MAX: Final = 16
"""Levels of objects and lists in a record."""
COLUMNS_MAX: Final = 1_000
"""Columns of a table, with the fields of nested objects."""
NAME_CHARACTERS_MAX: Final = 255
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
EXACT_MAX: Final = 2**53
"""The largest whole number up to which a double has every whole number."""


class Misfit(ValueError):
    """A value that does not fit the columns. The message names its field."""


class Plain(Enum):
    """Types without parts. The values are Iceberg's names."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Struct:
    """The type of an object: its fields in the order of the table's columns."""

    fields: Mapping[str, JsonField] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listing:
    """The type of a list."""

    element: JsonField


Kind = Plain | Struct | Listing


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field's type. `is_new`: the table does not have the field yet."""

    kind: Kind
    is_new: bool = False


EMPTY: Final = Struct()


def with_row(columns: Struct, row: Mapping[str, Any]) -> Struct:
    """Return the columns that the table needs for a further row; `columns` itself if they suffice.

    Raises Misfit. Then the row must not be written, and has changed nothing.
    """
    wider = _struct(columns, row, "", 1)
    if wider is not columns and count(wider) > COLUMNS_MAX:
        raise Misfit(f"with its fields the table would have more than {COLUMNS_MAX} columns")
    return wider


def count(kind: Kind) -> int:
    """Return the number of fields of a type, with those of its parts."""
    match kind:
        case Struct():
            return sum(1 + count(part.kind) for part in kind.fields.values())
        case Listing():
            return count(kind.element.kind)
        case _:
            return 0


def settled(columns: Struct) -> Struct:
    """Return the columns once the table has them: none is new."""

    def old(part: JsonField) -> JsonField:
        match part.kind:
            case Struct():
                return JsonField(settled(part.kind))
            case Listing():
                return JsonField(Listing(old(part.kind.element)))
            case _:
                return JsonField(part.kind)

    return Struct({name: old(part) for name, part in columns.fields.items()})


def _struct(known: Struct, row: Mapping[str, Any], path: str, depth: int) -> Struct:
    if depth > DEPTH_MAX:
        raise Misfit(f"{path or 'the record'} is nested more than {DEPTH_MAX} levels deep")
    changed: dict[str, JsonField] = {}
    for name, value in row.items():
        if value is None:
            continue
        part = known.fields.get(name)
        wider = _field(part, value, f"{path}.{name}" if path else name, depth)
        if wider is not None and wider is not part:
            changed[name] = wider
    if not changed:
        return known
    _check_names(known, changed, path)
    return replace(known, fields={**known.fields, **changed})


def _field(part: JsonField | None, value: Any, path: str, depth: int) -> JsonField | None:
    """Return the field that takes `value` and all earlier values; None while the type is unknown."""
    if value is None:
        return part
    if part is None:
        return _inferred(value, path, depth)
    match part.kind:
        case Struct() if isinstance(value, dict):
            inner = _struct(part.kind, value, path, depth + 1)
            return part if inner is part.kind else replace(part, kind=inner)
        case Listing() if isinstance(value, list):
            element = _element(part.kind.element, value, path, depth)
            return part if element is part.kind.element else replace(part, kind=Listing(element))
        case Plain():
            kind = _plain(part, value, path)
            return part if kind is part.kind else replace(part, kind=kind)
    raise _misfit(part.kind, value, path)


def _inferred(value: Any, path: str, depth: int) -> JsonField | None:
    """Return the field for a first value; None for an empty object or list, whose parts are unknown."""
    match value:
        case bool():
            return JsonField(Plain.BOOLEAN, True)
        case int():
            _check_long(value, path)
            return JsonField(Plain.LONG, True)
        case float():
            return JsonField(Plain.DOUBLE, True)
        case str():
            _check_text(value, path)
            return JsonField(Plain.STRING, True)
        case dict():
            inner = _struct(EMPTY, value, path, depth + 1)
            return JsonField(inner, True) if inner.fields else None
        case _:
            element = _element(None, value, path, depth)
            return None if element is None else JsonField(Listing(element), True)


def _element(part: Any, values: list[Any], path: str, depth: int) -> Any:
    if depth >= DEPTH_MAX:
        raise Misfit(f"{path} is nested more than {DEPTH_MAX} levels deep")
    for value in values:
        part = _field(part, value, f"{path}[]", depth + 1)
    return part


def _plain(part: JsonField, value: Any, path: str) -> Kind:
    """Return the type without parts that takes `value` and all earlier values."""
    kind = part.kind
    match kind, value:
        case Plain.BOOLEAN, bool():
            return kind
        case Plain.STRING, str():
            _check_text(value, path)
            return kind
        case _, bool():
            raise _misfit(kind, value, path)
        case Plain.INT, int():
            _check_long(value, path)
            return kind if -INT_MAX - 1 <= value <= INT_MAX else Plain.LONG
        case Plain.LONG, int():
            _check_long(value, path)
            return kind
        case ((Plain.INT | Plain.LONG), float()):
            if value.is_integer() and abs(value) <= EXACT_MAX:
                return _plain(part, int(value), path)
            if part.is_new:
                return Plain.DOUBLE
        case ((Plain.FLOAT | Plain.DOUBLE), float()):
            return Plain.DOUBLE
        case ((Plain.FLOAT | Plain.DOUBLE), int()) if abs(value) <= EXACT_MAX:
            return Plain.DOUBLE
    raise _misfit(kind, value, path)


def _check_names(known: Struct, changed: Mapping[str, JsonField], path: str) -> None:
    """Check the names of new fields. Engines that ignore case could not tell two that differ in it alone."""
    folded = {name.casefold(): name for name in known.fields}
    for name in changed:
        if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
            raise Misfit(f"{path or 'the record'} has a field whose name cannot be a column's: {name[:50]!r}")
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            raise Misfit(f"field {name!r} and column {other!r} differ in upper and lower case alone")


def _check_long(value: int, path: str) -> None:
    if not -LONG_MAX - 1 <= value <= LONG_MAX:
        raise Misfit(f"{path} is a whole number of more than 64 bits")


def _check_text(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit(f"{path} has half of a surrogate pair, which is no text in UTF-8") from None


def _misfit(kind: Kind, value: Any, path: str) -> Misfit:
    is_what = {
        bool: "a boolean",
        int: "a whole number",
        float: "a number",
        str: "text",
        dict: "an object",
    }.get(type(value), "a list")
    if kind in (Plain.FLOAT, Plain.DOUBLE) and type(value) is int:
        is_what = "a whole number that a double does not have"
    return Misfit(f"{path} is {is_what}, and the column is {described(kind)}")


def described(kind: Kind) -> str:
    """Return the name of a type, for people."""
    match kind:
        case Struct():
            return "a struct"
        case Listing():
            return f"a list of {described(kind.element.kind)}"
        case _:
            return kind.value
