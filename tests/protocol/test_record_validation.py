"""Faults in a batch's records are found wherever its pieces end, in C as in Python."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import record_validation
from ottla.protocol.records.record_codec import NewRecord, encode_records
from tests.protocol.produced import FINE, MALFORMED, record

try:
    from ottla.protocol.records import _record_validation as in_c
except ImportError:
    in_c = None

NEEDS_C = pytest.mark.skipif(in_c is None, reason="the extension is not built")
BOTH = [
    pytest.param(record_validation, id="in Python"),
    pytest.param(in_c, id="in C", marks=NEEDS_C),
]
EVER = 2**63 - 1
blobs = st.none() | st.binary(max_size=200)
names = st.text(st.characters(codec="utf-8"), max_size=80)
new_records = st.lists(
    st.tuples(blobs, blobs, st.integers(-5, 1 << 42), st.lists(st.tuples(names, blobs), max_size=3)),
    min_size=1,
    max_size=20,
)

Result = tuple[int | tuple[ErrorCode, str], list[tuple[int, int | None]], int]


def walk(
    module: ModuleType,
    count: int,
    base_ms: int,
    pieces: list[bytes],
    earliest_ms: int = -EVER,
    latest_ms: int = EVER,
    keyed: bool = False,
) -> Result:
    validator = module.RecordValidator(count, base_ms, earliest_ms, latest_ms, keyed)
    end: int | tuple[ErrorCode, str]
    try:
        for piece in pieces:
            validator.feed(piece)
        end = validator.finish()
    except KafkaError as error:
        end = error.code, error.message
    return end, validator.refused, validator.refused_count


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(ends)]


def byte_by_byte(body: bytes) -> list[bytes]:
    return [body[at : at + 1] for at in range(len(body))]


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_malformed_is_named(module: ModuleType, what: str) -> None:
    count, body, part = MALFORMED[what]
    base_ms = 1 << 62
    end, _, _ = walk(module, count, base_ms, [body])
    assert isinstance(end, tuple), f"accepted: {what}"
    assert end[0] is ErrorCode.INVALID_RECORD
    assert part in end[1]
    assert walk(module, count, base_ms, byte_by_byte(body))[0] == end


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize("what", FINE)
def test_what_is_fine_passes(module: ModuleType, what: str) -> None:
    count, body = FINE[what]
    assert isinstance(walk(module, count, 1_000, [body])[0], int)
    assert isinstance(walk(module, count, 1_000, byte_by_byte(body))[0], int)


@pytest.mark.parametrize("module", BOTH)
@given(records=new_records, places=st.lists(st.integers(0, 5000), max_size=4))
@settings(max_examples=40)
def test_the_largest_timestamp_is_that_of_the_records(
    module: ModuleType, records: list[NewRecord], places: list[int]
) -> None:
    body, count, first_ms, last_ms = encode_records(records)
    assert walk(module, count, first_ms, cut(body, places)) == (max(last_ms, -1), [], 0)


@pytest.mark.parametrize("module", BOTH)
@given(
    records=new_records,
    earliest_ms=st.integers(-10, 1 << 42),
    span_ms=st.integers(0, 1 << 41),
    keyed=st.booleans(),
)
@settings(max_examples=40)
def test_records_that_a_topic_refuses_are_named(
    module: ModuleType, records: list[NewRecord], earliest_ms: int, span_ms: int, keyed: bool
) -> None:
    body, count, first_ms, _ = encode_records(records)
    expected: list[tuple[int, int | None]] = []
    for number, pair in enumerate(records):
        if keyed and pair[0] is None:
            expected.append((number, None))
        elif pair[2] != -1 and not earliest_ms <= pair[2] <= earliest_ms + span_ms:
            expected.append((number, pair[2]))
    end, refused, refused_count = walk(
        module, count, first_ms, [body], earliest_ms, earliest_ms + span_ms, keyed
    )
    assert isinstance(end, int)
    assert (refused, refused_count) == (expected, len(expected))


@pytest.mark.parametrize("module", BOTH)
def test_of_very_many_refused_records_a_thousand_are_named(module: ModuleType) -> None:
    body = b"".join(record(number, key=None) for number in range(1500))
    end, refused, refused_count = walk(module, 1500, 0, [body], keyed=True)
    assert (end, len(refused), refused_count) == (0, record_validation.REFUSED_MAX, 1500)


@pytest.mark.parametrize("module", BOTH)
def test_an_error_stays_one(module: ModuleType) -> None:
    validator = module.RecordValidator(1, 0, -EVER, EVER, False)
    for _ in range(2):
        with pytest.raises(KafkaError, match="its offset delta is 3"):
            validator.feed(record(3))
    with pytest.raises(KafkaError, match="its offset delta is 3"):
        validator.finish()


def mutated(body: bytes, chance: Random) -> bytes:
    """Change, remove or insert a few bytes, mostly the first ones, where lengths are."""
    out = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(min(len(out), chance.choice([8, 40, 10_000])) or 1)
        match chance.randrange(4):
            case 0 if out:
                out[at] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            case 1:
                del out[at:]
            case 2:
                del out[at : at + chance.randrange(4)]
            case _:
                out[at:at] = chance.choices(b"\0\1\2\x80\xff", k=chance.randrange(4))
    return bytes(out)


@NEEDS_C
@given(
    records=new_records,
    seed=st.integers(0, 1 << 60),
    more=st.integers(-1, 1),
    places=st.lists(st.integers(0, 5000), max_size=5),
    bounds=st.sampled_from([(-EVER, EVER), (0, 1 << 40)]),
    keyed=st.booleans(),
    base_ms=st.sampled_from([0, -1, 1_700_000_000_000, EVER - 5]),
)
@settings(max_examples=300)
def test_both_say_the_same_of_any_bytes(
    records: list[NewRecord],
    seed: int,
    more: int,
    places: list[int],
    bounds: tuple[int, int],
    keyed: bool,
    base_ms: int,
) -> None:
    chance = Random(seed)
    body, count, _, _ = encode_records(records)
    body = chance.randbytes(chance.randrange(60)) if seed % 11 == 0 else mutated(body, chance)
    whole = walk(in_c, count + more, base_ms, [body], *bounds, keyed)
    for module in (in_c, record_validation):
        assert walk(module, count + more, base_ms, cut(body, places), *bounds, keyed) == whole
        assert walk(module, count + more, base_ms, byte_by_byte(body), *bounds, keyed) == whole
