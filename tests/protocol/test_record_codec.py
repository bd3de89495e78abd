"""The record codec in C equals the one in Python, only faster: same results and same errors for any bytes."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import sysconfig
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import record_codec
from ottla.protocol.wire.primitives import zigzag
from tests.protocol.record_codecs import BOTH, NEEDS_C, in_c

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    f"protocol/records/{name}" for name in ("_record_codec.c", "_columns.c", "_columns.h", "_varints.h")
]
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), blobs), max_size=3)
plain = st.tuples(blobs, blobs, st.integers(0, 1 << 42))
new_records = st.lists(
    plain | st.tuples(blobs, blobs, st.integers(0, 1 << 42), headers), min_size=1, max_size=30
)


class Seen(NamedTuple):
    """A row with fields on both sides."""

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Any
    leader_epoch: int


class Bare(NamedTuple):
    """A row of nothing but the record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Any


def outcome(what: Callable[[], object]) -> object:
    """Return a call's result, or its error as kind and text."""
    try:
        return what()
    except (ValueError, OverflowError) as error:
        return type(error)
    except KafkaError as error:
        return error.code, error.message


def decoded(codec: ModuleType, body: bytes, count: int, portions: Random, **options: Any) -> list[object]:
    """Return all rows that a cursor gives in portions, and the final error if there is one."""
    base_offset, base_ms = options.pop("base_offset", 7), options.pop("base_ms", 1000)
    try:
        cursor = codec.RecordCursor(body, count, base_offset, base_ms, Seen, ("t",), (3,), **options)
    except KafkaError as error:
        return [(error.code, error.message)]
    found: list[object] = []
    while True:
        taken = outcome(lambda: cursor.take(portions.randint(1, 4)))
        if not isinstance(taken, list):
            return [*found, taken, outcome(lambda: cursor.take(1))]
        if not taken:
            return found
        assert all(type(row) is Seen for row in taken)
        found += taken


def same(body: bytes, count: int, seed: int, **options: Any) -> list[object]:
    """Return the common result of both codecs."""
    ours = decoded(record_codec, body, count, Random(seed), **options)
    assert decoded(in_c, body, count, Random(seed), **options) == ours
    return ours


@NEEDS_C
@given(records=new_records, first_ms=INT64, seed=st.integers(0, 1 << 32))
@settings(max_examples=200)
def test_both_write_the_same_bytes_and_read_them_alike(records: list[Any], first_ms: int, seed: int) -> None:
    moved = [(key, value, ms + first_ms, *rest) for key, value, ms, *rest in records]
    encoded = outcome(lambda: record_codec.encode_records(moved))
    assert outcome(lambda: in_c.encode_records(iter(moved))) == encoded
    if isinstance(encoded, tuple):
        body, count, base_ms, _ = encoded
        rows = same(body, count, seed, base_ms=base_ms)
        assert [(row.key, row.value, row.timestamp_ms) for row in rows] == [row[:3] for row in moved]


@NEEDS_C
@given(first=INT64, second=INT64, third=INT64)
@settings(max_examples=200)
def test_both_refuse_the_same_timestamps(first: int, second: int, third: int) -> None:
    records = [(None, b"v", ms) for ms in (first, second, third)]
    assert outcome(lambda: in_c.encode_records(records)) == outcome(
        lambda: record_codec.encode_records(records)
    )


@NEEDS_C
@given(
    records=new_records,
    from_offset=st.none() | st.integers(0, 40),
    stamp_ms=st.none() | INT64,
    base_offset=INT64 | st.integers(0, 50),
    base_ms=INT64,
    more=st.integers(-2, 2),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=200)
def test_both_read_from_any_offset(
    records: list[Any],
    from_offset: int | None,
    stamp_ms: int | None,
    base_offset: int,
    base_ms: int,
    more: int,
    seed: int,
) -> None:
    body, count, _, _ = record_codec.encode_records(records)
    place = {"base_offset": base_offset, "base_ms": base_ms}
    same(body, count + more, seed, from_offset=from_offset, stamp_ms=stamp_ms, **place)


@NEEDS_C
@given(records=new_records, seed=st.integers(0, 1 << 32), from_offset=st.none() | st.integers(0, 40))
@settings(max_examples=1000)
def test_both_find_the_same_damage(records: list[Any], seed: int, from_offset: int | None) -> None:
    chance = Random(seed)
    body, count, _, _ = record_codec.encode_records(records)
    damaged = bytearray(body)
    for _ in range(chance.randint(0, 4)):
        place = chance.randrange(len(damaged))
        match chance.randrange(4):
            case 0:
                damaged[place] ^= 1 << chance.randrange(8)
            case 1:
                damaged[place : place + 1] = zigzag(chance.choice((-1, 1, 1 << 31, 1 << 62, -(1 << 63))))
            case 2:
                damaged[place:place] = b"\xff" * chance.randint(1, 10)
            case _:
                damaged[place] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    if chance.random() < 0.3:
        del damaged[chance.randrange(len(damaged)) :]
    same(bytes(damaged), count, seed, from_offset=from_offset)


@NEEDS_C
@given(body=st.binary(max_size=60), count=st.integers(0, 20))
@settings(max_examples=1000)
def test_both_make_the_same_of_any_bytes(body: bytes, count: int) -> None:
    same(body, count, 0)


def record(fields: bytes) -> bytes:
    """Return these fields, preceded by their length."""
    return zigzag(len(fields)) + fields


GOOD = record(b"\0\0\0\1\1\0")
TOO_LONG = b"\xff" * 9 + b"\2"
DAMAGED = {
    "it claims 5 bytes, and has 6": zigzag(5) + GOOD[1:],
    "it claims -1 bytes, and has 6": zigzag(-1) + GOOD[1:],
    "the data ends within it": GOOD[:-1],
    "a varint is longer than 64 bits": record(b"\0" + TOO_LONG + b"\0\1\1\0"),
    "an offset delta of 2147483648": record(b"\0\0" + zigzag(1 << 31) + b"\1\1\0"),
    "a length of 1000, 3 bytes are left": record(b"\0\0\0" + zigzag(1000) + b"ab\0"),
    f"a length of {(1 << 63) - 1}, 1 bytes are left": record(b"\0\0\0\1" + zigzag((1 << 63) - 1) + b"\0"),
    "-1 headers, 0 bytes are left": record(b"\0\0\0\1\1" + zigzag(-1)),
    "1000000 headers, 2 bytes are left": record(b"\0\0\0\1\1" + zigzag(1_000_000) + b"ab"),
    "a header without a name": record(b"\0\0\0\1\1" + zigzag(1) + b"\1\1"),
    "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte": record(
        b"\0\0\0\1\1" + zigzag(1) + zigzag(1) + b"\xff\1"
    ),
}


@pytest.mark.parametrize("codec", BOTH)
@pytest.mark.parametrize("what", DAMAGED)
def test_damage_is_named_after_the_records_before_it(codec: ModuleType, what: str) -> None:
    cursor = codec.RecordCursor(GOOD + GOOD + DAMAGED[what], 3, 0, 0, Bare)
    assert len(cursor.take(100)) == 2
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            cursor.take(100)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert caught.value.message == f"a record is damaged: {what}"


@pytest.mark.parametrize("codec", BOTH)
def test_what_a_header_claims_is_checked(codec: ModuleType) -> None:
    for count, base_offset, text in (
        (-1, 0, "-1 records in 7 bytes"),
        (8, 0, "8 records in 7 bytes"),
        (1, -1, "a batch at offset -1"),
        (1, 1 << 62 | 1 << 61 | (1 << 61) - 1, f"a batch at offset {(1 << 63) - 1}"),
    ):
        with pytest.raises(KafkaError, match=text):
            codec.RecordCursor(GOOD, count, base_offset, 0, Bare)
    cursor = codec.RecordCursor(GOOD + b"??", 1, 0, 0, Bare)
    assert len(cursor.take(5)) == 1
    with pytest.raises(KafkaError, match="2 bytes follow the last record"):
        cursor.take(5)


@pytest.mark.parametrize("codec", BOTH)
def test_what_is_no_record_is_refused(codec: ModuleType) -> None:
    for records, error in (
        ([], ValueError),
        ([(b"k", b"v")], ValueError),
        ([(b"k", b"v", 1, [], 2)], ValueError),
        ([(b"k", "text", 1)], TypeError),
        ([(b"k", 5, 1)], TypeError),
        ([(b"k", b"v", None)], TypeError),
        ([(b"k", b"v", 1 << 63)], OverflowError),
        ([(b"k", b"v", 0), (b"k", b"v", 1 << 63)], OverflowError),
        ([(b"k", b"v", 1, [("name",)])], ValueError),
        ([(b"k", b"v", 1, [("name", "text")])], TypeError),
        ([(b"k", b"v", 1, [("\ud800", b"lone surrogate")])], UnicodeEncodeError),
        ([(b"k", b"v", 1), 5], TypeError),
        (5, TypeError),
    ):
        with pytest.raises(error):
            codec.encode_records(records)


@pytest.mark.parametrize("codec", BOTH)
def test_anything_with_a_buffer_is_a_value(codec: ModuleType) -> None:
    mutable = bytearray(b"value")
    body, *_ = codec.encode_records([(memoryview(b"key"), mutable, 5, [("h", memoryview(b"x"))])])
    mutable += b"!"  # nothing holds on to it
    assert codec.RecordCursor(body, 1, 0, 5, Bare).take(1) == [Bare(0, 5, b"key", b"value", [("h", b"x")])]


@NEEDS_C
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_kept(seed: int) -> None:
    """After any decoding, refusal or interruption, memory and shared objects are as before."""
    chance = Random(seed)
    topic, epoch = "a topic of this test", 987_654_321
    value, name = os.urandom(50), "a header's name"
    records = [(b"key", value, 10**12 + index, [(name, value)] * (index % 3)) for index in range(20)]
    body, count, _, _ = in_c.encode_records(records)
    shared = (topic, epoch, value, name, body, Seen, KafkaError)

    def use() -> None:
        for end in range(0, len(body), 7):
            damaged = bytearray(body[:end])
            if damaged and chance.random() < 0.5:
                damaged[chance.randrange(end)] ^= 1 << chance.randrange(8)
            outcome(
                lambda data=damaged: in_c.RecordCursor(data, count, 0, 0, Seen, (topic,), (epoch,)).take(9)
            )
        cursor = in_c.RecordCursor(body, count, 0, 0, Seen, (topic,), (epoch,))
        assert len(cursor.take(5)) == 5
        in_c.encode_records(records)
        for bad in ((b"k", 5, 1), (value, value, 1, [(name, value), (name, 5)]), 7):
            with pytest.raises(TypeError):
                in_c.encode_records([*records, bad])

    def measured() -> tuple[int, list[int]]:
        for _ in range(20):
            use()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], [sys.getrefcount(factory) for factory in shared]

    tracemalloc.start()
    try:
        measured()
        before, counts = measured()
        after, counts_after = measured()
    finally:
        tracemalloc.stop()
    assert counts_after == counts
    assert after - before < 2_000, "one leaked object for each use would be more"


@NEEDS_C
def test_a_body_is_held_while_it_is_read() -> None:
    body = bytearray(GOOD)
    cursor = in_c.RecordCursor(body, 1, 0, 0, Bare)
    with pytest.raises(BufferError):
        body.clear()
    del cursor
    body.clear()


@NEEDS_C
def test_rows_are_tuples_only() -> None:
    for row in (dict, int, object):
        with pytest.raises(TypeError):
            in_c.RecordCursor(GOOD, 1, 0, 0, row)


@NEEDS_C
def test_what_could_be_part_of_a_cycle_is_collected() -> None:
    (row,) = in_c.RecordCursor(record(b"\0\0\0\1\1\2\2a\1"), 1, 0, 0, Bare).take(1)
    row.headers.append(row)
    assert gc.is_tracked(row)


CHOICES = {
    "": "C" if in_c is not None else "python",
    "import os; os.environ['OTTLA_PURE_PYTHON'] = '1'": "python",
    "import sys; sys.modules['ottla.protocol.records._record_codec'] = None": "python",
}


@pytest.mark.parametrize("before", CHOICES)
def test_the_codec_is_chosen_at_import(before: str) -> None:
    program = f"{before}\nfrom ottla.protocol.records.record import CODEC\nprint(CODEC)"
    environment = {name: value for name, value in os.environ.items() if name != "OTTLA_PURE_PYTHON"}
    codec = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert codec.strip() == CHOICES[before]


def test_it_is_built_without_a_compiler(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", *SOURCES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    environment = os.environ | {"CC": "false", "LDSHARED": "false"}
    subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", "built"],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
    )
    assert not list(tmp_path.rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"))
