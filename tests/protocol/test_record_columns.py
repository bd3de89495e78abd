"""Records as columns equal a cursor's single records, and damage is detected equally, by both codecs."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.consuming.columns.arrow_batch import record_batch
from ottla.client.records import TopicPartition
from ottla.protocol.errors import KafkaError
from ottla.protocol.records import record_codec
from ottla.protocol.records.record_columns import column_buffers
from tests.protocol.record_codecs import BOTH, NEEDS_C, in_c

HERE = TopicPartition("t", 3)
blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), blobs), max_size=3)
new_records = st.lists(st.tuples(blobs, blobs, st.integers(0, 1 << 42), headers), min_size=1, max_size=30)


class Row(NamedTuple):
    """A row with fields on both sides."""

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Any
    leader_epoch: int


def by_rows(
    codec: ModuleType, body: bytes, count: int, base_ms: int, portions: Random, **options: Any
) -> Any:
    """Return all rows, and the final error."""
    found: list[Any] = []
    try:
        cursor = codec.RecordCursor(body, count, 7, base_ms, Row, ("t",), (1,), **options)
        while rows := cursor.take(portions.randint(1, 4)):
            found += [tuple(row[1:6]) for row in rows]
    except KafkaError as error:
        return found, f"{error.code.name} {error.message}"
    return found, None


def by_columns(
    codec: ModuleType, body: bytes, count: int, base_ms: int, portions: Random, **options: Any
) -> Any:
    """Return the rows and the error from columns, in the form that pyarrow sees."""
    columns = codec.Columns(with_headers=True)
    message = None
    try:
        cursor = codec.RecordCursor(body, count, 7, base_ms, Row, ("t",), (1,), **options)
        while taken := cursor.take_into(columns, portions.randint(1, 4)):
            assert taken <= 4
    except KafkaError as error:
        message = f"{error.code.name} {error.message}"
    rows = columns.rows
    buffers = column_buffers(columns.finish())
    assert columns.rows == 0
    batch = record_batch(buffers, [(HERE, rows)])
    batch.validate(full=True)
    names = ("offset", "timestamp", "key", "value")
    lists = [batch[name].cast(pa.int64()).to_pylist() for name in names[:2]]
    lists += [batch[name].to_pylist() for name in names[2:]]
    assert buffers.headers is not None
    return list(zip(*lists, map(list, buffers.headers), strict=True)), message, buffers[:5]


def compared(body: bytes, count: int, base_ms: int, seed: int, **options: Any) -> None:
    rows, end = by_rows(record_codec, body, count, base_ms, Random(seed), **options)
    found, message, buffers = by_columns(record_codec, body, count, base_ms, Random(seed), **options)
    if message is not None and "timestamp" in message:
        assert [(*row[:4], list(row[4])) for row in rows[: len(found)]] == found
    else:
        assert [(*row[:4], list(row[4])) for row in rows] == found
        assert message == end
    if in_c is not None:
        assert by_columns(in_c, body, count, base_ms, Random(seed), **options) == (found, message, buffers)


@given(
    records=new_records,
    seed=st.integers(0, 1 << 32),
    from_offset=st.none() | st.integers(0, 40),
    stamp_ms=st.none() | st.integers(0, 1 << 42),
    more=st.integers(-2, 2),
)
@settings(max_examples=150)
def test_columns_hold_what_rows_do(
    records: list[Any], seed: int, from_offset: int | None, stamp_ms: int | None, more: int
) -> None:
    body, count, base_ms, _ = record_codec.encode_records(records)
    compared(body, count + more, base_ms, seed, from_offset=from_offset, stamp_ms=stamp_ms)


@given(records=new_records, seed=st.integers(0, 1 << 32), from_offset=st.none() | st.integers(0, 40))
@settings(max_examples=600)
def test_damage_is_found_alike(records: list[Any], seed: int, from_offset: int | None) -> None:
    chance = Random(seed)
    body, count, base_ms, _ = record_codec.encode_records(records)
    damaged = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        damaged[chance.randrange(len(damaged))] = chance.choice(
            [0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)]
        )
    if chance.random() < 0.3:
        del damaged[chance.randrange(len(damaged)) :]
    compared(bytes(damaged), count, base_ms, seed, from_offset=from_offset)


@pytest.mark.parametrize("codec", BOTH)
def test_a_timestamp_that_no_column_can_hold_is_damage(codec: ModuleType) -> None:
    body, count, _, _ = record_codec.encode_records([(None, b"a", 0), (None, b"b", 5)])
    columns = codec.Columns()
    cursor = codec.RecordCursor(body, count, 0, (1 << 63) - 5, Row, ("t",), (1,))
    assert cursor.take_into(columns, 9) == 1
    for _ in range(2):
        with pytest.raises(KafkaError, match="its timestamp has more than 64 bits"):
            cursor.take_into(columns, 9)
    assert columns.last_offset == 0
    assert columns.size == 1


@pytest.mark.parametrize("codec", BOTH)
def test_rows_and_columns_can_be_taken_in_turn(codec: ModuleType) -> None:
    body, count, _, _ = record_codec.encode_records([(None, b"%d" % index, 0) for index in range(10)])
    columns = codec.Columns()
    cursor = codec.RecordCursor(body, count, 0, 0, Row, ("t",), (1,))
    assert [row.offset for row in cursor.take(3)] == [0, 1, 2]
    assert cursor.take_into(columns, 4) == 4
    assert [row.offset for row in cursor.take(3)] == [7, 8, 9]
    assert cursor.take_into(columns, 4) == 0
    batch = record_batch(column_buffers(columns.finish()), [(HERE, 4)])
    assert batch["offset"].to_pylist() == [3, 4, 5, 6]
    assert "headers" not in batch.schema.names


@NEEDS_C
def test_columns_of_one_codec_are_not_for_the_other() -> None:
    body, count, _, _ = record_codec.encode_records([(None, b"a", 0)])
    with pytest.raises(TypeError, match="Columns of this codec"):
        in_c.RecordCursor(body, count, 0, 0, Row, ("t",), (1,)).take_into(record_codec.Columns(), 1)
