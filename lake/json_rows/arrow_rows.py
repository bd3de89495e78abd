"""Values in JSON as rows of Arrow, read by Arrow's parser where it surely decides as that of single rows does. Pure.

Arrow's parser is many times faster, and differs: it rounds whole numbers in columns of doubles, takes NaN for a number,
does not check UTF-8, and knows no other names than those that it is given. In such cases it is not asked, or its rows
are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from .kinds import COLUMNS_MAX, DEPTH_MAX, EXACT_MAX, INT_MAX, Kind, Listing, Plain, Struct
from .parsing import OWN_COLUMNS

TEXT_BYTES_MAX: Final = 1 << 30
"""Bytes of values that are parsed at once; Arrow counts them in 32 bits."""
EMPTY_FIELDS_MAX: Final = COLUMNS_MAX
"""Fields without a column that are known by name."""
_SPACE: Final = " \t\n\r"
_PLAIN: Final = {
    Plain.BOOLEAN: pa.bool_(),
    Plain.INT: pa.int64(),
    Plain.LONG: pa.int64(),
    Plain.FLOAT: pa.float64(),
    Plain.DOUBLE: pa.float64(),
    Plain.STRING: pa.string(),
}


class ArrowRows:
    """A reader of values as rows of some columns."""

    def __init__(self, columns: Struct) -> None:
        self.columns = columns
        self._kind = arrow_type(columns)
        self._parsed = self._kind
        """The columns, with fields that have no column since they are null or empty in every row."""
        self._is_able = bool(columns.fields) and _are_found_by_name(columns)

    def read(self, values: pa.BinaryArray) -> pa.StructArray | None:
        """Return the rows of some values; None if it is not sure that all fit these columns and need no others."""
        if not self._is_able or values.nbytes > TEXT_BYTES_MAX:
            return None
        try:
            lines = _lines(values)
            if lines is None:
                return None
            parsed = pj.read_json(
                pa.BufferReader(lines),
                read_options=pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema(list(self._parsed)), unexpected_field_behavior="error"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowCapacityError):
            return None
        if parsed.num_rows != len(values):  # A value had several objects.
            return None
        rows = pa.StructArray.from_arrays(
            [parsed.column(field.name).combine_chunks().cast(field.type) for field in self._kind],
            fields=list(self._kind),
        )
        return rows if _is_exact(self.columns, rows) else None

    def note_empty(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Note the fields of rows that are null or empty, and have no column. Values with them can then be read."""
        for row in rows:
            parsed = _with_empty(self._parsed, row)
            if _fields(parsed) <= _fields(self._kind) + EMPTY_FIELDS_MAX:
                self._parsed = parsed


def arrow_type(kind: Kind) -> pa.DataType:
    """Return the type in which rows are read. Numbers have 64 bits, also for columns of 32."""
    match kind:
        case Struct():
            return pa.struct([pa.field(name, arrow_type(part.kind)) for name, part in kind.fields.items()])
        case Listing():
            return pa.list_(arrow_type(kind.element.kind))
        case _:
            return _PLAIN[kind]


def _are_found_by_name(columns: Struct) -> bool:
    """Return whether fields have the names of their columns. `parse_row` changes some names, and looks at the depth."""
    own = {name.casefold() for name in columns.fields} & {*OWN_COLUMNS}
    return not own and _are_plain(columns, 1)


def _are_plain(kind: Kind, depth: int) -> bool:
    match kind:
        case Struct():
            return depth <= DEPTH_MAX and all(
                "." not in name and _are_plain(part.kind, depth + 1) for name, part in kind.fields.items()
            )
        case Listing():
            return depth <= DEPTH_MAX and _are_plain(kind.element.kind, depth + 1)
        case _:
            return True


def _lines(values: pa.BinaryArray) -> pa.Buffer | None:
    """Return the values as lines; None if a value does not look like an object. A null value is an empty object.

    Each line begins and ends with a brace. JSON has no text in which a brace that ends follows a brace that begins but
    between two documents. So if the parser finds as many documents as there are lines, each line is a document.
    Raises ArrowInvalid for text that is not UTF-8.
    """
    text = values.fill_null(b"{}").cast(pa.string())
    if not _look_like_objects(text):
        text = pc.ascii_trim(text, characters=_SPACE)
        if not _look_like_objects(text):
            return None
    return pc.binary_join_element_wise(text, "", "\n").buffers()[2]


def _look_like_objects(text: pa.StringArray) -> bool:
    return all(
        pc.all(looks, min_count=0).as_py() for looks in (pc.starts_with(text, "{"), pc.ends_with(text, "}"))
    )


def _is_exact(kind: Kind, found: pa.Array) -> bool:
    """Return whether all values are as JSON has them, and leave the column's type as it is."""
    match kind:
        case Struct():
            return all(_is_exact(part.kind, found.field(name)) for name, part in kind.fields.items())
        case Listing():
            return _is_exact(kind.element.kind, found.values)
        case Plain.FLOAT:
            return bool(found.null_count == len(found))
        case Plain.DOUBLE:
            return bool(pc.all(pc.less(pc.abs(found), EXACT_MAX), min_count=0).as_py())
        case Plain.INT:
            fits = pc.and_(pc.less_equal(found, INT_MAX), pc.greater_equal(found, -INT_MAX - 1))
            return bool(pc.all(fits, min_count=0).as_py())
        case _:
            return True


def _with_empty(kind: pa.DataType, value: Any) -> pa.DataType:
    """Return a type with the fields of `kind`, and those of `value` that are null or empty."""
    match value:
        case dict() if pa.types.is_null(kind) or pa.types.is_struct(kind):
            fields = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
            for name, part in value.items():
                # Other values have columns. A name that cannot be printed may be no text at all.
                if (part is None or isinstance(part, (dict, list))) and name.isprintable():
                    fields[name] = _with_empty(fields.get(name, pa.null()), part)
            return pa.struct(list(fields.items()))
        case list() if pa.types.is_null(kind) or pa.types.is_list(kind):
            element = kind.value_type if pa.types.is_list(kind) else pa.null()
            for part in value:
                element = _with_empty(element, part)
            return pa.list_(element)
        case _:
            return kind


def _fields(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(1 + _fields(field.type) for field in kind)
    return _fields(kind.value_type) if pa.types.is_list(kind) else 0
