"""Values in an object store as rows of the source: with a store of a folder, without Spark and with Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.objects.opening import open_store
from ottla.client.objects.references import REFERENCE_HEADER, ObjectReference
from ottla.client.sync.loop_thread import shared_loop
from ottla.spark_integration.source import stored_values
from ottla.spark_integration.source.data_loss import DataLoss, DataLost
from ottla.spark_integration.source.stored_values import StoredValues

from .reading import Topics, values

MARK = (REFERENCE_HEADER, b"")
Row = tuple[bytes | None, Sequence[tuple[str, bytes | None]] | None]
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return an Arrow batch as the source makes it; offsets are the numbers of the rows."""
    headers = [
        None if row[1] is None else [{"key": key, "value": value} for key, value in row[1]] for row in rows
    ]
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([row[0] for row in rows], pa.binary()),
            "topic": pa.array(["t"] * len(rows), pa.string()),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(range(len(rows)), pa.int64()),
            "headers": pa.array(headers, HEADERS),
        }
    )


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    """Return a function that keeps a value in a store, and returns a row with its reference."""
    store = open_store(tmp_path.as_uri(), 5)

    def keep(key: str, value: bytes, *headers: tuple[str, bytes | None]) -> Row:
        asyncio.run(store.put_new(key, value))
        return ObjectReference.to(key, value).encoded(), (MARK, *headers)

    return keep


def reader(folder: Path, *, fails: bool = True, headers: bool = True, bytes_max: int = 1_000) -> StoredValues:
    store = open_store(folder.as_uri(), 5)
    return StoredValues(store, bytes_max, shared_loop(), DataLoss(fails=fails), keeps_headers=headers)


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[Row]:
    return [
        (row["value"], None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]])
        for batch in batches
        for row in batch.to_pylist()
    ]


def test_rows_have_the_values_of_their_objects(tmp_path: Path, kept: Any) -> None:
    rows: list[Row] = [
        (b"plain", None),
        kept("t/1", b"first" * 20),
        (None, [("h", b"1")]),
        kept("t/2", b"second" * 20, ("h", b"2"), ("n", None)),
    ]
    found = list(reader(tmp_path).batches(batch_of(rows)))
    assert rows_of(found) == [
        (b"plain", None),
        (b"first" * 20, None),
        (None, [("h", b"1")]),
        (b"second" * 20, [("h", b"2"), ("n", None)]),
    ]
    (without,) = reader(tmp_path, headers=False).batches(batch_of(rows))
    assert without.schema.names == ["value", "topic", "partition", "offset"]
    (plain,) = reader(tmp_path).batches(batch_of(rows[:1]))
    assert rows_of([plain]) == rows[:1]


def test_batches_are_bounded_by_the_size_of_their_values(
    tmp_path: Path, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_values, "BATCH_BYTES", 250)
    rows = [kept(f"t/{number}", b"%03d" % number * 33) for number in range(7)]
    found = list(reader(tmp_path).batches(batch_of(rows)))
    assert [batch.num_rows for batch in found] == [2, 2, 2, 1]
    assert [row[0] for row in rows_of(found)] == [b"%03d" % number * 33 for number in range(7)]


def test_a_lost_value_ends_the_query_or_leaves_its_row_out(tmp_path: Path, kept: Any) -> None:
    good = kept("t/good", b"good")
    lost: list[tuple[Row, str]] = [
        ((ObjectReference.to("t/gone", b"gone").encoded(), (MARK,)), "there is no object"),
        ((ObjectReference("t/good", 4, bytes(32)).encoded(), (MARK,)), "its SHA-256 is another"),
        ((b"junk", (MARK,)), "a reference has"),
        ((ObjectReference("../x", 4, bytes(32)).encoded(), (MARK,)), "invalid part"),
        (kept("t/large", b"x" * 1_001), "largeMessageMaxBytes is 1000"),
    ]
    for row, why in lost:
        with pytest.raises(DataLost, match=f"t-0: the value of the record at offset 1 is lost: .*{why}"):
            list(reader(tmp_path).batches(batch_of([good, row])))
    rows = [good, *(row for row, _ in lost), (b"plain", None)]
    found = list(reader(tmp_path, fails=False).batches(batch_of(rows)))
    assert rows_of(found) == [(b"good", None), (b"plain", None)]


@pytest.mark.cluster
@pytest.mark.timeout(170)
def test_a_query_reads_values_from_a_store(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("stored-values")
    store = tmp_path.as_uri()
    large = [f"{number:06d}" * 500 for number in range(20)]
    with topics.producer(
        large_messages="reference", large_message_store=store, large_message_segment_size=100
    ) as producer:
        for number, text in enumerate(large):
            producer.send(topic, text.encode())
            producer.send(topic, b"small %d" % number)
    expected = sorted([*large, *(f"small {number}" for number in range(20))])
    assert values(topics.batch(subscribe=topic, largeMessageStore=store)) == expected
    raw = topics.batch(subscribe=topic, includeHeaders="true").where("headers is not null").collect()
    assert {row.headers[0]["key"] for row in raw} == {REFERENCE_HEADER}
