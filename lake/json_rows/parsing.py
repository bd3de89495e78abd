"""The row of a record's value in JSON. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from .kinds import Misfit

OWN_COLUMNS: Final = ("ottla", "ottla_op")
"""The record's own columns. A field of this name becomes a column with `_` at the end."""


def parse_row(value: bytes | None) -> dict[str, Any]:
    """Return the fields of a value in JSON, under the names of their columns. A null value is a row without fields.

    A `.` in a name becomes `_`, since engines take it for a path. Raises Misfit unless the value is an object.
    """
    if value is None:
        return {}
    try:
        row = _DECODER.decode(value.decode())
    except UnicodeDecodeError as error:
        raise Misfit(f"the value is not text in UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Misfit(f"the value is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise Misfit("the value is nested too deep") from None
    if not isinstance(row, dict):
        raise Misfit("the value is not an object of JSON")
    if any(name.casefold() in OWN_COLUMNS for name in row):
        return _escaped(row)
    return row


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Misfit("an object has a field twice")
    if any("." in name for name in found):
        renamed = {name.replace(".", "_"): value for name, value in pairs}
        if len(renamed) < len(found):
            raise Misfit("an object has two fields whose names differ in '.' and '_' alone")
        return renamed
    return found


def _escaped(row: dict[str, Any]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for name, value in row.items():
        column = f"{name.casefold()}_" if name.casefold() in OWN_COLUMNS else name
        if column in renamed or (column != name and column in row):
            raise Misfit(f"the record has fields {name!r} and {column!r}, which are the same column")
        renamed[column] = value
    return renamed


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Misfit(f"the number {text[:50]} is too large for a double")
    return value


def _int(text: str) -> int:
    if len(text) > 20:
        raise Misfit(f"the number {text[:50]} is a whole number of more than 64 bits")
    return int(text)


def _no_number(text: str) -> NoReturn:
    raise Misfit(f"{text} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_no_number
)
