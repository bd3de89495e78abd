"""Fetched columns as a record batch of pyarrow."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....protocol.records.record_columns import ColumnBuffers
from ...arrow import blob_array, need_pyarrow, number_array
from ...records import TopicPartition

if TYPE_CHECKING:
    import pyarrow

Run = tuple[TopicPartition, int]
"""A partition and a number of consecutive rows of it."""


def record_batch(columns: ColumnBuffers, runs: Sequence[Run]) -> pyarrow.RecordBatch:
    """Return the fetched columns as a record batch, without copying buffers. `runs` name the rows' partitions."""
    pa = need_pyarrow()
    topics: dict[str, int] = {}
    indices, partitions = array("i"), array("i")
    for (topic, partition), rows in runs:
        indices += array("i", [topics.setdefault(topic, len(topics))]) * rows
        partitions += array("i", [partition]) * rows
    names = pa.array(list(topics), pa.string())
    arrays = {
        "topic": pa.DictionaryArray.from_arrays(number_array(pa.int32(), indices, columns.rows), names),
        "partition": number_array(pa.int32(), partitions, columns.rows),
        "offset": number_array(pa.int64(), columns.offsets, columns.rows),
        "timestamp": number_array(pa.timestamp("ms", tz="UTC"), columns.timestamps, columns.rows),
        "key": blob_array(columns.keys, columns.rows),
        "value": blob_array(columns.values, columns.rows),
    }
    if columns.headers is not None:
        header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
        listed = [[{"key": name, "value": value} for name, value in headers] for headers in columns.headers]
        arrays["headers"] = pa.array(listed, pa.list_(header))
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
