"""A program's data to be sent as columns: the roles of its columns, and its rows in Arrow's layout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.record_codec import encode_headers
from ...arguments import whole_number
from ...arrow import need_pyarrow, number_bytes
from ..serialization import TIMESTAMP_MAX_MS
from .rows import BlobBuffers, Rows

if TYPE_CHECKING:
    import pyarrow

BLOCK_ROWS = 50_000
"""The number of rows after which other tasks of the event loop get a turn."""
KEY = "key"


class Block:
    """A block of consecutive rows to send. `first`: the index of its first row in the program's data."""

    def __init__(self, first: int, count: int, rows: Rows, partitions: bytes | None) -> None:
        self.first = first
        self.count = count
        self.rows = rows
        self.partitions = partitions
        """The partition of each row, int32; None if partitions are to be chosen."""


class ColumnSource:
    """The rows of a pyarrow record batch or table that a program sends, and the columns for key, value, partition,
    timestamp and headers."""

    def __init__(
        self,
        data: pyarrow.RecordBatch | pyarrow.Table,
        *,
        key: str | None,
        value: str,
        partition: int | str | None,
        timestamp: int | str | datetime | None,
        headers: str | None,
    ) -> None:
        """Check the columns.

        Raises TypeError for columns and arguments of other types, ValueError for missing columns, ModuleNotFoundError
        without pyarrow.
        """
        pa = need_pyarrow()
        if isinstance(partition, bool) or not (partition is None or isinstance(partition, int | str)):
            raise TypeError(f"partition is a number, the name of a column, or None, not {partition!r}")
        if isinstance(partition, int):
            whole_number("partition", partition)
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        elif not isinstance(data, pa.Table):
            raise TypeError(f"data is a pyarrow.RecordBatch or Table, not {type(data).__name__}")
        if key == KEY and key not in data.schema.names:
            key = None
        self._key, self._value, self._headers = key, value, headers
        self._partition = partition if isinstance(partition, str) else None
        self.partition = None if isinstance(partition, str) else partition
        """The partition given for all rows; None if rows name theirs, or partitions are to be chosen."""
        self._timestamp = timestamp if isinstance(timestamp, str) else None
        self._stamp_ms = _stamp_ms(timestamp)
        wanted = [
            name for name in (key, value, self._partition, self._timestamp, headers) if name is not None
        ]
        for name in dict.fromkeys(wanted):
            if data.schema.names.count(name) != 1:
                known = ", ".join(data.schema.names)
                raise ValueError(f"there is no one column {name!r} among {known}")
        self._data = data.select(list(dict.fromkeys(wanted)))
        for index, field in enumerate(self._data.schema):
            if pa.types.is_null(field.type) and field.name in (key, value):  # a column with nulls only
                self._data = self._data.set_column(
                    index, field.name, self._data[field.name].cast(pa.binary())
                )
        self._check_types()

    @property
    def has_keys(self) -> bool:
        """True if there is a column of keys."""
        return self._key is not None

    def partition_bounds(self) -> tuple[int, int] | None:
        """Return the lowest and the highest partition named by the rows, or given for all.

        None if there is neither. Raises ValueError for a row without partition, or with one below 0.
        """
        if self._partition is None or not self._data.num_rows:
            return None if self.partition is None else (self.partition, self.partition)
        compute = need_pyarrow().compute
        column = self._data[self._partition]
        if column.null_count:
            row = compute.index(column.is_null(), True).as_py()
            raise ValueError(f"row {row}: column {self._partition!r} has no partition")
        bounds = compute.min_max(column).as_py()
        if bounds["min"] < 0:
            row = compute.index(compute.less(column, 0), True).as_py()
            raise ValueError(
                f"row {row}: column {self._partition!r} has {column[row]}, partitions are 0 or more"
            )
        return bounds["min"], bounds["max"]

    async def check_sizes(self, limit: int) -> None:
        """Check the rows. Raises MESSAGE_TOO_LARGE for a row of more than `limit` bytes, and the errors of `blocks`."""
        for block in self.blocks():
            if (found := block.rows.first_above(limit)) is not None:
                row, size = found
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"row {block.first + row} takes {size} bytes, max_request_size is {limit}",
                )
            await asyncio.sleep(0)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in blocks. Raises ValueError for invalid headers, and for unreadable rows."""
        first = 0
        for chunk in self._data.to_batches(max_chunksize=BLOCK_ROWS):
            rows = Rows(
                chunk.num_rows,
                None if self._key is None else _blob_buffers(chunk[self._key]),
                _blob_buffers(chunk[self._value]),
                self._stamps(chunk),
                None if self._headers is None else _encoded_headers(chunk[self._headers], first),
            )
            yield Block(first, chunk.num_rows, rows, self._partitions(chunk))
            first += chunk.num_rows

    def _check_types(self) -> None:
        pa = need_pyarrow()
        is_a = pa.types
        schema = self._data.schema
        for name in (self._key, self._value):
            if name is None:
                continue
            kind = schema.field(name).type
            tests = (is_a.is_binary, is_a.is_string, is_a.is_large_binary, is_a.is_large_string)
            if not any(test(kind) for test in tests):
                raise TypeError(f"column {name!r} is of {kind}, and has to be of binary or string: cast it")
        if self._partition is not None and not is_a.is_integer(kind := schema.field(self._partition).type):
            raise TypeError(f"column {self._partition!r} is of {kind}, and partitions are whole numbers")
        if self._timestamp is not None:
            kind = schema.field(self._timestamp).type
            if not is_a.is_timestamp(kind) and not is_a.is_int64(kind):
                raise TypeError(
                    f"column {self._timestamp!r} is of {kind}, and has to be of timestamp or int64"
                )
        if self._headers is not None:
            kind = schema.field(self._headers).type
            if not is_a.is_list(kind) or not is_a.is_struct(kind.value_type):
                raise TypeError(
                    f"column {self._headers!r} is of {kind}, and has to be of "
                    "list<struct<key: string, value: binary>>"
                )

    def _stamps(self, chunk: pyarrow.RecordBatch) -> Any:
        if self._timestamp is None:
            return self._stamp_ms
        pa = need_pyarrow()
        column = chunk[self._timestamp]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
        return number_bytes(column.cast(pa.int64()).fill_null(self._stamp_ms))

    def _partitions(self, chunk: pyarrow.RecordBatch) -> bytes | None:
        if self._partition is None:
            return None
        return bytes(number_bytes(chunk[self._partition].cast(need_pyarrow().int32())))


def _stamp_ms(timestamp: int | str | datetime | None) -> int:
    """Return the timestamp of rows without one. Raises TypeError and ValueError for a value that is no time since
    1970.
    """
    if timestamp is None or isinstance(timestamp, str):
        return int(time.time() * 1000)
    given = int(timestamp.timestamp() * 1000) if isinstance(timestamp, datetime) else timestamp
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(
            f"timestamp is a number of ms, a datetime, the name of a column, or None, not {timestamp!r}"
        )
    if not 0 <= given <= TIMESTAMP_MAX_MS:
        raise ValueError(f"timestamp is a whole number of milliseconds since 1970, not {timestamp!r}")
    return given


def _blob_buffers(column: pyarrow.Array) -> BlobBuffers:
    pa = need_pyarrow()
    valid, ends, data = column.buffers()
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    if ends is None or not ends.size:  # as Arrow allows without rows
        return 0, None, bytes(8), None, wide
    return column.offset, valid if column.null_count else None, ends, data, wide


def _encoded_headers(column: pyarrow.Array, first: int) -> list[bytes | None]:
    if column.null_count == len(column):
        return [None] * len(column)
    encoded: list[bytes | None] = []
    for row, listed in enumerate(column.to_pylist()):
        if not listed:
            encoded.append(None)
            continue
        try:
            encoded.append(encode_headers([_header(header) for header in listed]))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"row {first + row}: headers are of key and value, not {listed!r}") from error
    return encoded


def _header(header: Mapping[str, Any]) -> tuple[str, bytes | None]:
    name, value = header["key"], header["value"]
    if not isinstance(name, str):
        raise TypeError("the key of a header is a string")
    return name, value.encode() if isinstance(value, str) else value
