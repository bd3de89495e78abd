"""A single valid batch is recognised in one step, in C as in Python.

Everything else is left to the general checks, which name the fault.
"""

from __future__ import annotations

import struct
from types import ModuleType

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import KafkaError
from ottla.protocol.records import record_validation
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.produced_batch import BrokenRules, walk_records
from ottla.protocol.records.record import encode_batch
from ottla.protocol.records.record_batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    HEADER_SIZE,
    BatchHeader,
    validate_produced,
)
from tests.protocol.produced import MALFORMED, NOW, produced

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
_FIELDS = {"q": 8, "i": 4, "b": 1, "I": 4, "h": 2}
_PLACES = [
    (name, code, sum(_FIELDS[before] for before in "qiibIhiqqqhii"[:number]))
    for number, (name, code) in enumerate(zip(BatchHeader._fields, "qiibIhiqqqhii", strict=True))
]
Found = tuple[BatchHeader, int | None] | None

batches = st.builds(
    lambda records, codec, producer: encode_batch(
        records,
        compression=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=producer[3],
    ),
    st.lists(
        st.tuples(st.none() | st.binary(max_size=20), st.binary(max_size=200), st.integers(-1, 1 << 42)),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4]),
    st.sampled_from([(-1, -1, -1, False), (7, 0, 5, False), (7, 3, 2**31 - 1, True)]),
)
# Numbers that say something wrong, or something else, in some field.
numbers = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 0x20, 0x10, 5, 8, 61, 2**31 - 1])


def find(
    module: ModuleType, batch: bytes, earliest: int = -EVER, latest: int = EVER, *, keyed: bool = False
) -> Found:
    found: Found = module.sole_batch(
        memoryview(batch), crc32c(batch[ATTRIBUTES_AT:]), earliest, latest, keyed
    )
    return found


def with_right_crc(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


def by_the_general_checks(batch: bytes, earliest: int, latest: int, *, keyed: bool) -> Found:
    try:
        parsed = validate_produced(batch)
        if len(parsed) != 1:
            return None
        header = parsed[0][1]
        if header.attributes & COMPRESSION_MASK:
            return header, None
        return header, walk_records(memoryview(batch), header, earliest, latest, keyed)
    except (KafkaError, BrokenRules):
        return None


@pytest.mark.parametrize("module", BOTH)
@given(
    batch=batches,
    field=st.sampled_from(_PLACES),
    number=numbers,
    change=st.sampled_from(["none", "field", "byte", "cut", "twice", "more"]),
    place=st.integers(0),
    mends_crc=st.booleans(),
    earliest=st.sampled_from([-EVER, 1 << 40]),
    latest=st.sampled_from([EVER, 1 << 41]),
    keyed=st.booleans(),
)
def test_it_is_found_where_the_general_checks_have_nothing_to_say(
    module: ModuleType,
    batch: bytes,
    field: tuple[str, str, int],
    number: int,
    change: str,
    place: int,
    mends_crc: bool,
    earliest: int,
    latest: int,
    keyed: bool,
) -> None:
    changed = bytearray(batch)
    if change == "field":
        _, code, at = field
        bits = 8 * _FIELDS[code]
        changed[at : at + bits // 8] = (number % (1 << bits)).to_bytes(bits // 8, "big")
    elif change == "byte":
        changed[place % len(changed)] ^= 1 + place % 255
    elif change == "cut":
        del changed[place % len(changed) :]
    elif change == "twice":
        changed += batch
    elif change == "more":
        changed += b"\0"
    tested = with_right_crc(changed) if mends_crc and len(changed) >= HEADER_SIZE else bytes(changed)
    expected = by_the_general_checks(tested, earliest, latest, keyed=keyed)
    found = find(module, tested, earliest, latest, keyed=keyed)
    assert found == expected
    assert found is None or type(found[0]) is BatchHeader


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_records_are_not_found(module: ModuleType, what: str) -> None:
    count, body, _ = MALFORMED[what]
    assert find(module, bytes(produced(count, body, Compression.NONE))) is None


@pytest.mark.parametrize("module", BOTH)
def test_what_comes_out(module: ModuleType) -> None:
    batch = encode_batch(
        [(b"k", b"v", NOW), (None, b"w", NOW + 5)], producer_id=9, producer_epoch=1, base_sequence=4
    )
    found = find(module, batch)
    assert found is not None
    header, largest_ms = found
    assert largest_ms == NOW + 5
    assert (header.record_count, header.producer_id, header.base_sequence) == (2, 9, 4)
    assert find(module, batch, keyed=True) is None, "a record has no key"
    assert find(module, batch, latest=NOW) is None, "a record is too young"
    assert module.sole_batch(memoryview(batch), 0, -EVER, EVER, False) is None, "the CRC is wrong"


@NEEDS_C
def test_arguments_are_checked() -> None:
    batch = encode_batch([(b"k", b"v", NOW)])
    with pytest.raises(TypeError):
        in_c.sole_batch(memoryview(batch), 0, 0, 0)
    with pytest.raises(TypeError):
        in_c.sole_batch("text", 0, 0, 0, False)
    with pytest.raises(TypeError):
        in_c.sole_batch(memoryview(batch), None, 0, 0, False)
    with pytest.raises(OverflowError):
        in_c.sole_batch(memoryview(batch), 0, 1 << 64, 0, False)
