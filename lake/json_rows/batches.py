"""The rows of a batch of records in JSON, and the records that do not fit. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa

from .arrow_rows import ArrowRows, arrow_type
from .kinds import EMPTY, Misfit, Struct, with_row
from .parsing import parse_row

ROWS_MAX: Final = 1 << 20
"""Rows of a piece that is read at once."""
ROWS_MIN: Final = 512
"""Rows of a piece that is read row by row if Arrow's parser cannot read it. Each call of that parser takes as long as
some hundred rows."""
SMALLER_BY: Final = 8
LARGER_BY: Final = 4


class BadRecord(NamedTuple):
    """A record that does not fit: its number in the batch, and the reason."""

    number: int
    reason: str


class JsonBatch(NamedTuple):
    """The rows of a batch: their numbers in the batch, their fields, the columns they need, and the other records."""

    numbers: Sequence[int]
    rows: pa.ChunkedArray
    columns: Struct
    bad: list[BadRecord]


class _Piece(NamedTuple):
    """Rows that were read as rows of some columns: the numbers of all records, and of those that are rows."""

    records: range
    numbers: Sequence[int]
    columns: Struct
    rows: pa.StructArray


class BatchReader:
    """A reader of batches. It reads pieces of them by Arrow's parser, and row by row where that parser cannot.

    A piece that Arrow's parser cannot read is tried again in smaller pieces. So a few records that do not fit make a
    few rows slow.
    """

    def __init__(self) -> None:
        self._size = ROWS_MAX
        """Rows of the next piece."""
        self._arrow = ArrowRows(EMPTY)

    def read(self, columns: Struct, values: pa.BinaryArray) -> JsonBatch:
        """Return the rows of a batch of values for a table with these columns.

        The columns of the result may be wider. A new column may have grown after a row was read, so all rows are then
        compared with the final columns once more.
        """
        wider, bad = columns, list[BadRecord]()
        pieces: list[_Piece] = []
        position = 0
        while position < len(values):
            records = range(position, min(position + self._size, len(values)))
            piece = self._by_arrow(records, wider, values)
            if piece is not None:
                self._size = min(self._size * LARGER_BY, ROWS_MAX)
            elif len(records) > ROWS_MIN:
                self._size = max(len(records) // SMALLER_BY, ROWS_MIN)
                continue
            else:
                piece = self._by_row(records, records, wider, values, bad)
                wider = piece.columns
            pieces.append(piece)
            position = records.stop
        if wider is not columns:
            pieces = [self._again(piece, wider, values, bad) for piece in pieces]
        numbers = pieces[0].numbers if len(pieces) == 1 else [*chain(*(piece.numbers for piece in pieces))]
        rows = pa.chunked_array([piece.rows for piece in pieces], arrow_type(wider))
        return JsonBatch(numbers, rows, wider, bad)

    def _again(self, piece: _Piece, columns: Struct, values: pa.BinaryArray, bad: list[BadRecord]) -> _Piece:
        """Read a piece as rows of the final columns."""
        if piece.columns is columns:
            return piece
        is_whole = len(piece.numbers) == len(piece.records)
        again = self._by_arrow(piece.records, columns, values) if is_whole else None
        return again or self._by_row(piece.records, piece.numbers, columns, values, bad)

    def _by_arrow(self, records: range, columns: Struct, values: pa.BinaryArray) -> _Piece | None:
        if self._arrow.columns is not columns:
            self._arrow = ArrowRows(columns)
        rows = self._arrow.read(values.slice(records.start, len(records)))
        return None if rows is None else _Piece(records, records, columns, rows)

    def _by_row(
        self,
        records: range,
        wanted: Collection[int],
        columns: Struct,
        values: pa.BinaryArray,
        bad: list[BadRecord],
    ) -> _Piece:
        """Read records one by one, and add those that do not fit to `bad`."""
        rows: dict[int, dict[str, Any]] = {}
        wider = columns
        for number in wanted:
            try:
                row = parse_row(values[number].as_py())
                wider = with_row(wider, row)
            except Misfit as error:
                bad.append(BadRecord(number, str(error)))
            else:
                rows[number] = row
        if wider is not columns:
            rows = _fitting(wider, rows, bad)
        if self._arrow.columns is not wider:
            self._arrow = ArrowRows(wider)
        self._arrow.note_empty(rows.values())
        return _Piece(records, [*rows], wider, pa.array([*rows.values()], arrow_type(wider)))


def _fitting(
    columns: Struct, rows: dict[int, dict[str, Any]], bad: list[BadRecord]
) -> dict[int, dict[str, Any]]:
    """Return the rows that fit columns which have grown since, and add the others to `bad`."""
    kept = {}
    for number, row in rows.items():
        try:
            with_row(columns, row)
        except Misfit as error:
            bad.append(BadRecord(number, str(error)))
        else:
            kept[number] = row
    return kept
