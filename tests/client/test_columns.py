"""Columns become batches, and the other way round: both implementations alike, exactly once and in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.arrow import need_pyarrow
from ottla.client.producer import Producer
from ottla.client.producing.appending import TopicBatches
from ottla.client.producing.columns import rows_in_python
from ottla.client.producing.columns.sending import BatchOfRows, RowPlacement, batches, place
from ottla.client.producing.columns.source import ColumnSource
from ottla.client.producing.partitioner import StickyChoice, murmur2_partition
from ottla.client.producing.pending import estimated_bytes
from ottla.client.transactions.writer import TransactionWriter
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import decode_records, encode_batch, encode_batch_of
from tests.client.fake_cluster import Fault, fake_cluster

try:
    from ottla.client.producing.columns import _rows as in_c
except ImportError:
    in_c = None

BOTH = [
    pytest.param(rows_in_python, id="in Python"),
    pytest.param(
        in_c, id="in C", marks=pytest.mark.skipif(in_c is None, reason="the extension is not built")
    ),
]
KINDS = (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())
FAULTS = [
    fault for fault in Fault if fault not in (Fault.NONE, Fault.HANG, Fault.INVALID_TIMESTAMP, Fault.REFUSED)
]
texts = st.none() | st.text(st.characters(codec="utf-8"), max_size=40)
header_lists = st.none() | st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=4), texts), max_size=2
)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.fixture(params=BOTH)
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Run each test with both row codecs."""
    module: ModuleType = request.param
    monkeypatch.setattr("ottla.client.producing.columns.source.Rows", module.Rows)
    monkeypatch.setattr("ottla.client.producing.columns.sending.rows_by_partition", module.rows_by_partition)
    return module


def source(data: Any, **options: Any) -> ColumnSource:
    chosen = {"key": "key", "value": "value", "partition": None, "timestamp": 0, "headers": None} | options
    return ColumnSource(data, **chosen)


def placement(partitions: int, batch_bytes: int = 1000, seed: int = 0) -> RowPlacement:
    choice = StickyChoice(batch_bytes, random.Random(seed).randrange)
    return RowPlacement(partitions, range(partitions), TopicBatches(partitions), choice)


def records_of(batch: BatchOfRows) -> list[tuple[Any, ...]]:
    return [record[1:] for record in decode_records(b"".join(encode_batch_of(batch.records)))]


def outcome(what: Callable[[], object]) -> object:
    try:
        return what()
    except (ValueError, OverflowError) as error:
        return type(error)


@given(
    made=st.lists(st.tuples(texts, texts, st.none() | st.integers(0, 1 << 42), header_lists), max_size=40),
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    cut=st.integers(0, 5),
    limit=st.integers(1, 600),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=200)
def test_batches_hold_the_rows_in_order_and_both_make_the_same(
    made: list[Any], kinds: tuple[Any, Any], cut: int, limit: int, seed: int
) -> None:
    def encoded(texts: list[str | None]) -> list[bytes | None]:
        return [None if text is None else text.encode() for text in texts]

    columns: list[Any] = [list(column) for column in zip(*made, strict=True)] or [[], [], [], []]
    listed = [
        None
        if some is None
        else [{"key": name, "value": None if text is None else text.encode()} for name, text in some]
        for some in columns[3]
    ]
    header = pa.struct({"key": pa.string(), "value": pa.binary()})
    table = pa.table(
        {
            "k": pa.array(encoded(columns[0]), pa.binary()).cast(kinds[0]),
            "v": pa.array(encoded(columns[1]), pa.binary()).cast(kinds[1]),
            "ms": pa.array(columns[2], pa.int64()),
            "h": pa.array(listed, pa.list_(header)),
        }
    ).slice(cut)
    expected = [
        (key, value, 77 if ms is None else ms, [tuple(pair.values()) for pair in some or ()])
        for key, value, ms, some in zip(
            encoded(columns[0]), encoded(columns[1]), columns[2], listed, strict=True
        )
    ][cut:]
    results = []
    for module in (rows_in_python, in_c or rows_in_python):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ottla.client.producing.columns.source.Rows", module.Rows)
            patch.setattr(
                "ottla.client.producing.columns.sending.rows_by_partition", module.rows_by_partition
            )
            given = source(table, key="k", value="v", timestamp="ms", headers="h")
            given._stamp_ms = 77
            where = placement(3, limit, seed)
            found = []
            for block in given.blocks():
                found += list(batches(block, place(block, None, where), 3, limit))
        results.append((found, where.sticky.sticky, where.sticky.sticky_left))
    assert results[0] == results[1]
    found = results[0][0]
    by_partition: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for batch in found:
        taken = [(ms, key, value, list(some)) for ms, key, value, some in records_of(batch)]
        assert batch.size <= limit or len(taken) == 1
        by_partition[batch.partition] += taken
    left = [(ms, key, value, some) for key, value, ms, some in expected]
    for partition, taken in by_partition.items():
        for record in taken:
            left.remove(record)
            assert record[1] is None or murmur2_partition(record[1], 3) == partition
        order = [record for record in ((ms, k, v, h) for k, v, ms, h in expected) if record in taken]
        assert [record for record in order if record[1]] == [record for record in taken if record[1]]
    assert left == []


@given(stamps=st.lists(INT64, min_size=1, max_size=4))
@settings(max_examples=100)
def test_timestamps_that_are_too_far_apart_are_refused_by_both(stamps: list[int]) -> None:
    raw = pa.array(stamps, pa.int64()).buffers()[1]
    order = pa.array(range(len(stamps)), pa.int32()).buffers()[1]
    outcomes = []
    for module in (rows_in_python, in_c or rows_in_python):
        made = module.Rows(len(stamps), None, None, raw, None)
        outcomes.append(
            outcome(lambda made=made: made.encode(memoryview(order)[: 4 * len(stamps)], 0, 10_000))
        )
    assert outcomes[0] == outcomes[1]
    if isinstance(outcomes[0], tuple):
        body = encode_batch([(None, None, stamp) for stamp in stamps])[61:]
        assert outcomes[0][0] == body


@pytest.mark.parametrize("ends", [[0, 5, 3], [0, 2, 99], [-1, 2, 3], [3, 2, 3]])
def test_columns_that_point_outside_of_their_data_are_refused(rows: ModuleType, ends: list[int]) -> None:
    buffers = (0, None, pa.array(ends, pa.int32()).buffers()[1], b"abc", False)
    made = rows.Rows(2, None, buffers, 0)
    with pytest.raises(ValueError, match=r"row \d: its column says that it lies outside of the data"):
        made.first_above(1000)
    with pytest.raises(ValueError, match="lies outside of the data"):
        made.encode(pa.array([0, 1], pa.int32()).buffers()[1].slice(0, 8), 0, 1000)


def test_columns_that_are_too_short_are_refused(rows: ModuleType) -> None:
    ends = pa.array([0, 1, 2], pa.int32()).buffers()[1].slice(0, 12)
    for buffers in (
        (0, None, ends, b"ab", False),
        (1, None, ends, b"ab", False),
        (0, b"", ends, b"ab", False),
    ):
        with pytest.raises(ValueError, match="a column has less than its 3 rows"):
            rows.Rows(3, None, buffers, 0)
    with pytest.raises(ValueError, match="a column has less than its 2 rows"):
        rows.Rows(2, None, None, bytes(15))
    with pytest.raises(ValueError, match="row 0: there is no partition 3 among 3"):
        rows.rows_by_partition(pa.array([3], pa.int32()).buffers()[1].slice(0, 4), 3)


def test_estimates_are_those_of_send(rows: ModuleType) -> None:
    table = pa.table({"key": [b"k", None], "value": [b"v" * 100, None]})
    (block,) = source(table).blocks()
    sizes = [estimated_bytes((b"k", b"v" * 100, 0, ())), estimated_bytes((None, None, 0, ()))]
    assert block.rows.first_above(sizes[0]) is None
    assert block.rows.first_above(sizes[0] - 1) == (0, sizes[0])
    assert block.rows.encode(pa.array([1], pa.int32()).buffers()[1].slice(0, 4), 0, 1)[4] == sizes[1]


def test_what_cannot_be_sent_is_named() -> None:
    table = pa.table({"n": [1], "value": [b"v"], "text": ["3"], "many": pa.array(["a"]).dictionary_encode()})
    for options, error, text in (
        ({"value": "n"}, TypeError, "column 'n' is of int64, and has to be of binary or string"),
        ({"key": "many"}, TypeError, "column 'many' is of dictionary"),
        ({"key": "missing"}, ValueError, "there is no one column 'missing' among n, value, text, many"),
        ({"partition": "text"}, TypeError, "column 'text' is of string, and partitions are whole numbers"),
        ({"partition": 1.5}, TypeError, "partition is a number, the name of a column, or None, not 1.5"),
        ({"partition": True}, TypeError, "partition is a number, the name of a column, or None, not True"),
        ({"partition": -1}, ValueError, "partition is 0 or more, not -1"),
        ({"timestamp": 1.5e12}, TypeError, "timestamp is a number of ms, a datetime, .* not 1500000000000.0"),
        ({"timestamp": Decimal(5)}, TypeError, "timestamp is a number of ms, a datetime"),
        ({"timestamp": True}, TypeError, "timestamp is a number of ms, a datetime"),
        ({"timestamp": -7}, ValueError, "timestamp is a whole number of milliseconds since 1970, not -7"),
        ({"timestamp": 1 << 63}, ValueError, "timestamp is a whole number of milliseconds since 1970"),
        ({"timestamp": datetime(1960, 1, 1, tzinfo=UTC)}, ValueError, "milliseconds since 1970"),
        ({"timestamp": "text"}, TypeError, "column 'text' is of string, and has to be of timestamp or int64"),
        ({"headers": "text"}, TypeError, "column 'text' is of string, and has to be of list"),
    ):
        with pytest.raises(error, match=text):
            source(table, **options)
    with pytest.raises(TypeError, match=r"data is a pyarrow\.RecordBatch or Table, not list"):
        source([b"v"])
    with pytest.raises(ValueError, match="row 1: column 'p' has no partition"):
        source(pa.table({"value": ["a", "b"], "p": [0, None]}), partition="p").partition_bounds()
    with pytest.raises(ValueError, match="row 1: column 'p' has -3, partitions are 0 or more"):
        source(pa.table({"value": ["a", "b"], "p": [0, -3]}), partition="p").partition_bounds()


def test_nothing_but_nulls_is_a_column_too(rows: ModuleType) -> None:
    (block,) = source(pa.table({"key": [None, None], "value": [None, None]})).blocks()
    found = list(batches(block, place(block, None, placement(1)), 1, 1000))
    assert [record[1:3] for record in records_of(found[0])] == [(None, None)] * 2


def test_timestamps_of_every_unit_become_milliseconds(rows: ModuleType) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123000, UTC)
    for kind in (pa.timestamp("s", "UTC"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns")):
        plain = moment if kind.tz else moment.replace(tzinfo=None)
        table = pa.table(
            {
                "value": ["a", "b"],
                "at": pa.array([plain, None], pa.timestamp("us", kind.tz)).cast(kind, safe=False),
            }
        )
        (block,) = source(table, timestamp="at").blocks()
        _, _, first_ms, _, _ = block.rows.encode(bytes(4), 0, 1)
        expected = int(moment.timestamp() * 1000)
        assert first_ms == (expected // 1000 * 1000 if kind.unit == "s" else expected)
    (block,) = source(pa.table({"value": ["a"]}), timestamp=moment).blocks()
    assert block.rows.encode(bytes(4), 0, 1)[2] == int(moment.timestamp() * 1000)


def test_without_pyarrow_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[arrow\]' in a checkout"):
        need_pyarrow()


@pytest.mark.parametrize("seed", range(15))
async def test_rows_and_records_arrive_once_and_in_order_whatever_fails(seed: int, rows: ModuleType) -> None:
    chance = random.Random(seed)

    def fault() -> Fault:
        return chance.choice(FAULTS) if chance.random() < 0.3 else Fault.NONE

    async with fake_cluster(brokers=3, partitions=4, fault=fault) as cluster:
        async with Producer(
            bootstrap_servers=cluster.bootstrap,
            batch_size=chance.choice([200, 1000, 16384]),
            buffer_memory=chance.choice([2000, 1 << 25]),
            linger_ms=chance.choice([0, 0, 1]),
            retry_backoff_max_ms=5,
        ) as producer:
            sent: list[list[bytes]] = [[] for _ in range(4)]
            summaries = []
            number = 0
            for _ in range(30):
                if chance.random() < 0.5:
                    partition = chance.randrange(4)
                    sent[partition].append(b"%d-%d" % (partition, number))
                    await producer.send("t", sent[partition][-1], partition=partition)
                    number += 1
                    continue
                places = [chance.randrange(4) for _ in range(chance.randrange(60))]
                values = [b"%d-%d" % (place, number + at) for at, place in enumerate(places)]
                number += len(values)
                for place, value in zip(places, values, strict=True):
                    sent[place].append(value)
                data = pa.table({"value": pa.array(values, pa.binary()), "p": pa.array(places, pa.int8())})
                summaries.append((places, values, await producer.send_arrow("t", data, partition="p")))
            for places, values, delivery in summaries:
                columns_sent = await delivery
                assert columns_sent.records == len(values), f"seed {seed}"
                assert {place: rows_sent.records for place, rows_sent in columns_sent.partitions.items()} == {
                    place: places.count(place) for place in sorted(set(places))
                }
                for place, rows_sent in columns_sent.partitions.items():
                    of_place = [value for at, value in zip(places, values, strict=True) if at == place]
                    assert cluster.logs[place].values[rows_sent.base_offset] == of_place[0]
                    assert cluster.logs[place].values[rows_sent.last_offset] == of_place[-1]
        assert [log.values for log in cluster.logs] == sent, f"seed {seed}"


async def test_nothing_is_sent_of_data_with_a_fault() -> None:
    async with fake_cluster(partitions=2) as cluster:
        async with Producer(
            bootstrap_servers=cluster.bootstrap, batch_size=100, max_request_size=200, max_block_ms=100
        ) as producer:
            large = pa.table({"value": [b"v"] * 5 + [b"v" * 200]})
            with pytest.raises(KafkaError, match="row 5 takes 221 bytes, max_request_size is 200") as caught:
                await producer.send_arrow("t", large)
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            for partition in ("p", 2):
                with pytest.raises(KafkaError, match="topic 't' has 2 partitions, there is none numbered"):
                    await producer.send_arrow(
                        "t", pa.table({"value": ["a", "b"], "p": [0, 7]}), partition=partition
                    )
            empty = await producer.send_arrow("t", pa.table({"value": pa.array([], pa.string())}))
            assert await empty == ("t", 0, {})
        assert [log.values for log in cluster.logs] == [[], []]
        async with Producer(
            bootstrap_servers=cluster.bootstrap, partitioner=lambda key, count: 0
        ) as producer:
            with pytest.raises(ValueError, match="a partitioner of one's own"):
                await producer.send_arrow("t", pa.table({"key": ["k"], "value": ["a"]}))


async def test_a_batch_that_is_refused_fails_the_delivery_once_all_are_settled() -> None:
    refuse = asyncio.Event()

    def fault() -> Fault:
        if refuse.is_set():
            refuse.clear()
            return Fault.REFUSED
        return Fault.NONE

    async with (
        fake_cluster(partitions=1, fault=fault) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, batch_size=100, max_in_flight=1) as producer,
    ):
        refuse.set()
        delivery = await producer.send_arrow("t", pa.table({"value": ["a" * 70, "b" * 70, "c" * 70]}))
        with pytest.raises(KafkaError):
            await delivery
        with pytest.raises(KafkaError):  # every time
            await delivery
        assert cluster.logs[0].values == [b"b" * 70, b"c" * 70]


def test_writers_in_transactions_have_it_too() -> None:
    assert TransactionWriter.send_arrow is Producer.send_arrow
