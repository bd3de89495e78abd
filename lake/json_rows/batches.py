"""The rows of a batch of records in JSON, and the records that do not fit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .kinds import Misfit, Struct, with_row
from .parsing import parse_row


class BadRecord(NamedTuple):
    """A record that does not fit: its number in the batch, and the reason."""

    number: int
    reason: str


class JsonBatch(NamedTuple):
    """The rows of a batch: their numbers in the batch, their fields, the columns they need, and the other records."""

    numbers: list[int]
    rows: list[dict[str, Any]]
    columns: Struct
    bad: list[BadRecord]


def read_batch(
    columns: Struct, values: Iterable[bytes | None], is_left_out: Callable[[int], bool] = lambda number: False
) -> JsonBatch:
    """Return the rows of a batch of values. `is_left_out` says whether the record with a number is skipped.

    The columns of the result may be wider. A new column may have grown after a row was taken, so all rows are then
    compared with the final columns once more.
    """
    wider = columns
    numbers, rows, bad = [], [], []
    for number, value in enumerate(values):
        if is_left_out(number):
            continue
        try:
            row = parse_row(value)
            wider = with_row(wider, row)
        except Misfit as error:
            bad.append(BadRecord(number, str(error)))
        else:
            numbers.append(number)
            rows.append(row)
    if wider is columns:
        return JsonBatch(numbers, rows, columns, bad)
    kept = JsonBatch([], [], wider, bad)
    for number, row in zip(numbers, rows, strict=True):
        try:
            with_row(wider, row)
        except Misfit as error:
            bad.append(BadRecord(number, str(error)))
        else:
            kept.numbers.append(number)
            kept.rows.append(row)
    return kept
