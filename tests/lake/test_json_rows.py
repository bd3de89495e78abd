"""Rows of JSON: columns that follow the records, and the verdict about each record."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

from ottla.lake.failures import TableRefused
from ottla.lake.iceberg.json_columns import evolve, json_columns, json_rows
from ottla.lake.iceberg.schemas import JSON_TABLE
from ottla.lake.json_rows import batches
from ottla.lake.json_rows.batches import BadRecord, BatchReader, JsonBatch
from ottla.lake.json_rows.evolution import Added, CannotEvolve, Widened, changes
from ottla.lake.json_rows.kinds import (
    COLUMNS_MAX,
    DEPTH_MAX,
    EMPTY,
    JsonField,
    Listing,
    Misfit,
    Plain,
    Struct,
    count,
    settled,
    with_row,
)
from ottla.lake.json_rows.parsing import parse_row
from ottla.lake.record_columns import RECORD

NAMES = st.sampled_from(["a", "b", "c", "A", "x.y", "ottla", ""])
WHOLE = st.integers(-(2**64), 2**64)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | WHOLE
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=8)
SPELLINGS = [
    *(
        b'{"a": %s}' % number
        for number in (b"1.0", b"1e2", b"-0", b"0.5", b"1e999", b"1e-999", b"01", b"9223372036854775808")
    ),
    *(b'{"c": %s}' % number for number in (b"NaN", b"-Infinity", b"9007199254740993", b"0.1", b"7")),
    *(
        b'{"b": %s}' % text
        for text in (b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"a\nb"')
    ),
    *(
        b'{"a": 1, "a": 2}',
        b'{"d": null, "d": null}',
        b'{"x.y": null, "x_y": null}',
        b'{"e": {"f": 1, "f": 1}}',
    ),
    *(
        b"",
        b" ",
        b"{}{}",
        b'{"a": 1}{"a": 2}',
        b"[1]",
        b"null",
        b'{"a": [',
        b'1], "b": 2}',
        b"{",
        b"}",
        b'"}',
        b"\xef\xbb\xbf{}",
    ),
    *(
        b' {"a": 1}\n',
        b'{"a":\r\n\t1}',
        b'{"d": null}',
        b'{"d": []}',
        b'{"d": {}}',
        b'{"d": {"e": null}}',
        b'{"e": {"g": null}}',
    ),
    *(
        b'{"l": [1, null]}',
        b'{"l": [1.5]}',
        b'{"l": [{}]}',
        b'{"ottla": null}',
        b'{"A": null}',
        b'{"": null}',
        b'{"\\ud800": null}',
    ),
]
"""Values whose verdict depends on their spelling."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> InMemoryCatalog:
    """Return a catalog in memory, whose files are in a folder of the test."""
    return InMemoryCatalog("memory", warehouse=tmp_path_factory.mktemp("warehouse").as_uri())


def new_table(catalog: InMemoryCatalog) -> Table:
    catalog.create_namespace_if_not_exists("lake")
    return catalog.create_table(f"lake.rows_{uuid.uuid4().hex}", JSON_TABLE)


def read_batch(columns: Struct, values: Sequence[bytes | None]) -> JsonBatch:
    return BatchReader().read(columns, pa.array(values, pa.binary()))


def read_row_by_row(
    columns: Struct, values: Sequence[bytes]
) -> tuple[dict[int, Any], Struct, list[BadRecord]]:
    """Return rows by their numbers, the columns, and the other records, by the rules for single rows."""
    rows: dict[int, dict[str, Any]] = {}
    bad = []
    wider = columns
    for number, value in enumerate(values):
        try:
            row = parse_row(value)
            wider = with_row(wider, row)
            rows[number] = row
        except Misfit as error:
            bad.append(BadRecord(number, str(error)))
    for number, row in list(rows.items()):
        try:
            with_row(wider, row)
        except Misfit as error:
            bad.append(BadRecord(number, str(error)))
            del rows[number]
    return rows, wider, sorted(bad)


def expected(value: Any, kind: Any) -> Any:
    """Return a value as a column of the type has it: fields that the type lacks are left out."""
    match kind:
        case _ if value is None:
            return None
        case Struct():
            return {name: expected(value.get(name), part.kind) for name, part in kind.fields.items()}
        case Listing():
            return [expected(element, kind.element.kind) for element in value]
        case Plain.DOUBLE:
            return float(value)
        case Plain.LONG:
            return int(value)
        case _:
            return value


@settings(max_examples=60)
@given(ROWS, ROWS)
def test_every_row_that_fits_is_in_the_table_as_it_was(
    catalog: InMemoryCatalog, first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    """The second batch comes to a table that has the columns of the first."""
    table = new_table(catalog)
    for batch in (first, second):
        columns = json_columns(table.schema(), "rows")
        values = [json.dumps(row).encode() for row in batch]
        found = read_batch(columns, values)
        assert sorted([*found.numbers, *(record.number for record in found.bad)]) == [*range(len(batch))]
        evolve(table, found.columns)
        now = json_columns(table.schema(), "rows")
        assert now == settled(found.columns)
        records = pa.array([{"partition": 0, "offset": number} for number in found.numbers], RECORD)
        rows = json_rows(
            schema_to_pyarrow(table.schema()), records, found.rows, pa.nulls(len(found.numbers), pa.string())
        )
        written = rows.drop_columns(["ottla"]).to_pylist() if found.numbers else []
        assert written == [expected(parse_row(values[number]), now) for number in found.numbers]


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(SPELLINGS), max_size=3),
    st.lists(st.sampled_from(SPELLINGS), max_size=4),
    ROWS,
    st.permutations(range(120)),
)
def test_pieces_and_single_rows_get_the_same_verdict(
    first: list[bytes], second: list[bytes], rows: list[dict[str, Any]], order: list[int]
) -> None:
    """A reader may learn from a batch. The next is read in pieces, some of them by Arrow's parser."""
    reader, columns = BatchReader(), EMPTY
    given_rows = [json.dumps(row).encode() for row in rows] or [b"{}"]
    mostly = (given_rows * 120)[:114] + second[:3] + [b'{"a": 1}', b'{"b": "x"}', b'{"c": 0.5}']
    mixed = [mostly[number] for number in order if number < len(mostly)]
    for values in ([*first, *given_rows], mixed):
        kept, wider, bad = read_row_by_row(columns, values)
        found = reader.read(columns, pa.array(values, pa.binary()))
        assert sorted(found.bad) == bad
        assert found.columns == wider
        assert [*found.numbers] == [*kept]
        assert found.rows.to_pylist() == [expected(row, wider) for row in kept.values()]
        columns = settled(wider)


def test_few_records_that_do_not_fit_make_few_rows_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    monkeypatch.setattr(batches, "parse_row", lambda value: parsed.append(value) or parse_row(value))
    columns = settled(with_row(EMPTY, {"a": 1, "b": "x"}))
    values = [b'{"a": %d, "b": "y", "never": null, "none": {"of": []}}' % number for number in range(20_000)]
    values[12_345] = b'{"a": "text"}'
    reader = BatchReader()
    for _ in range(2):
        found = reader.read(columns, pa.array(values, pa.binary()))
        assert [record.number for record in found.bad] == [12_345]
        assert len(found.numbers) == found.rows.length() == 19_999
    assert len(parsed) <= 4 * batches.ROWS_MIN


@given(ROWS)
def test_columns_only_grow(rows: list[dict[str, Any]]) -> None:
    columns = EMPTY
    for row in rows:
        try:
            wider = with_row(columns, parse_row(json.dumps(row).encode()))
        except Misfit:
            continue
        names = [change.path for change in changes(settled(columns), settled(columns))]
        assert names == []
        assert count(wider) >= count(columns)
        assert wider.fields.keys() >= columns.fields.keys()
        columns = wider


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\xff", "UTF-8"),
        (b"{", "not JSON"),
        (b"[1]", "not an object"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1e999}', "too large for a double"),
        (b'{"a": 9223372036854775808}', "64 bits"),
        (b'{"a": ' + b"9" * 5000 + b"}", "64 bits"),
        (b'{"a": 1, "a": 2}', "a field twice"),
        (b'{"a.b": 1, "a_b": 2}', r"'\.' and '_'"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"": 1}', "cannot be a column's"),
        (b'{"a\\nb": 1}', "cannot be a column's"),
        (b'{"a": 1, "A": 2}', "upper and lower case"),
        (b'{"ottla": 1, "ottla_": 2}', "the same column"),
        (b'{"a": [1, "x"]}', "a\\[\\] is text, and the column is long"),
        (b'{"a":' + b"[" * 50 + b"]" * 50 + b"}", "levels deep"),
        (b"[" * 200_000, "nested too deep"),
        (json.dumps({f"c{number}": 1 for number in range(COLUMNS_MAX + 1)}).encode(), "columns"),
    ],
    ids=lambda given: given[:20] if isinstance(given, bytes) else None,
)
def test_a_record_that_does_not_fit_says_why(value: bytes, reason: str) -> None:
    found = read_batch(EMPTY, [value])
    assert found.columns == EMPTY
    assert len(found.bad) == 1
    with pytest.raises(Misfit, match=reason):
        with_row(EMPTY, parse_row(value))


def test_a_number_with_a_fraction_makes_a_new_column_a_double_but_not_a_column_of_the_table() -> None:
    values = [b'{"n": 1}', b'{"n": 1.5}', b'{"n": 9007199254740993}']
    found = read_batch(EMPTY, values)
    assert found.columns == Struct({"n": JsonField(Plain.DOUBLE, True)})
    assert found.rows.to_pylist() == [{"n": 1.0}, {"n": 1.5}]
    assert [record.number for record in found.bad] == [2]
    there = Struct({"n": JsonField(Plain.LONG)})
    later = read_batch(there, values)
    assert later.columns is there
    assert [record.reason for record in later.bad] == ["n is a number, and the column is long"]


def test_whole_numbers_with_a_point_are_whole_numbers() -> None:
    there = Struct({"n": JsonField(Plain.LONG)})
    assert read_batch(there, [b'{"n": 2.0}']).bad == []


@pytest.mark.parametrize("columns", [EMPTY, Struct({"n": JsonField(Plain.LONG)})], ids=["none", "one"])
def test_a_null_value_is_a_row_of_nulls(columns: Struct) -> None:
    found = read_batch(columns, [None, b"{}"])
    assert [*found.numbers] == [0, 1]
    assert found.rows.to_pylist() == [dict.fromkeys(columns.fields)] * 2
    assert found.bad == []


def test_columns_of_32_bits_widen() -> None:
    table = Schema(NestedField(1, "i", IntegerType()), NestedField(2, "f", FloatType()))
    columns = json_columns(table, "rows")
    small = with_row(columns, {"i": 7})
    assert small is columns
    wide = with_row(columns, {"i": 2**40, "f": 0.1})
    assert list(changes(columns, wide)) == [Widened(("i",), Plain.LONG), Widened(("f",), Plain.DOUBLE)]


def test_changes_name_new_fields_inside_of_lists_and_structs() -> None:
    there = settled(with_row(EMPTY, {"a": [{"b": 1}]}))
    wider = with_row(there, {"a": [{"c": "x"}], "d": {"e": True}})
    assert list(changes(there, wider)) == [
        Added(("a", "element", "c"), Plain.STRING),
        Added(("d",), Struct({"e": JsonField(Plain.BOOLEAN, True)})),
    ]


def test_a_column_that_somebody_else_made_with_another_type_is_refused() -> None:
    there = Struct({"a": JsonField(Plain.STRING)})
    with pytest.raises(CannotEvolve, match="column a is string in the table by now, and rows have long"):
        list(changes(there, Struct({"a": JsonField(Plain.LONG, True)})))
    assert list(changes(Struct({"a": JsonField(Plain.LONG)}), Struct({"a": JsonField(Plain.INT)}))) == []


@pytest.mark.parametrize(
    "field",
    [NestedField(1, "t", TimestampType()), NestedField(1, "t", StringType(), required=True)],
    ids=["timestamp", "required"],
)
def test_a_table_with_columns_that_json_cannot_fill_is_refused(field: NestedField) -> None:
    with pytest.raises(TableRefused, match="column t is"):
        json_columns(Schema(field), "rows")


def test_depth_is_counted_as_the_page_says() -> None:
    value: Any = 1
    for _ in range(DEPTH_MAX - 1):
        value = {"a": value}
    assert with_row(EMPTY, {"a": value})
    with pytest.raises(Misfit, match="levels deep"):
        with_row(EMPTY, {"a": {"a": value}})


def test_infinite_numbers_are_no_doubles() -> None:
    assert math.isfinite(parse_row(b'{"a": 1e308}')["a"])
    assert json_columns(
        Schema(NestedField(1, "a", DoubleType()), NestedField(2, "b", LongType())), "t"
    ).fields
