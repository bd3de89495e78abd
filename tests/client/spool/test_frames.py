"""Frames are read unchanged, also next to damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.spool.frames import (
    FILE_HEADER_BYTES,
    FRAME_HEADER,
    BadFileHeader,
    Frame,
    Gap,
    SpooledRecord,
    decode_frame,
    encode_frame,
    file_header,
    read_file_header,
    walk,
)

MARKER = b"\x01marker\xff"
texts = st.text(st.characters(codec="utf-8"), max_size=20)
fields = st.none() | st.binary(max_size=40)
records = st.builds(
    SpooledRecord,
    st.integers(0, 1 << 62),
    texts,
    st.none() | st.integers(0, (1 << 31) - 1),
    fields,
    fields | st.just(MARKER) | st.just(MARKER * 5),
    st.integers(0, (1 << 63) - 1),
    st.lists(st.tuples(texts, fields), max_size=3).map(tuple),
)


def found(buffer: bytes) -> list[SpooledRecord]:
    return [decode_frame(buffer, part) for part in walk(buffer, MARKER) if isinstance(part, Frame)]


@given(st.lists(records, max_size=8))
def test_what_is_written_is_read(written: list[SpooledRecord]) -> None:
    assert found(b"".join(encode_frame(record, MARKER) for record in written)) == written


@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_a_file_cut_anywhere_has_all_that_is_whole(written: list[SpooledRecord], data: st.DataObject) -> None:
    frames = [encode_frame(record, MARKER) for record in written]
    whole = b"".join(frames)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, frames[: index + 1])) for index in range(len(frames))]
    buffer = whole[:cut]
    assert found(buffer) == [record for record, end in zip(written, ends, strict=True) if end <= cut]
    gaps = [part for part in walk(buffer, MARKER) if isinstance(part, Gap)]
    assert len(gaps) == (cut not in (0, *ends))
    assert all(gap.torn and gap.end == cut for gap in gaps)


@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_damage_costs_only_the_frames_that_it_hits(written: list[SpooledRecord], data: st.DataObject) -> None:
    frames = [encode_frame(record, MARKER) for record in written]
    whole = bytearray(b"".join(frames))
    start = data.draw(st.integers(0, len(whole) - 1))
    length = data.draw(st.integers(1, 60))
    noise = data.draw(st.binary(min_size=length, max_size=length))
    hit = []
    at = 0
    for frame in frames:
        changed = any(
            start <= at + index < start + length and frame[index] != noise[at + index - start]
            for index in range(len(frame))
        )
        hit.append(changed)
        at += len(frame)
    whole[start : start + length] = noise[: len(whole) - start]
    pieces = list(walk(bytes(whole), MARKER))
    assert found(bytes(whole)) == [
        record for record, changed in zip(written, hit, strict=True) if not changed
    ]
    # Nothing is passed over untold.
    assert [piece.start for piece in pieces] == [0, *[piece.end for piece in pieces[:-1]]]
    assert pieces[-1].end == len(whole)


def test_a_value_cannot_pass_for_a_frame() -> None:
    """The value's author knows the format, but not the marker."""
    forged = encode_frame(SpooledRecord(1, "t", None, None, b"forged", 0, ()), b"guessed!")
    frame = bytearray(encode_frame(SpooledRecord(1, "t", None, None, forged, 0, ()), MARKER))
    frame[10] ^= 1
    assert found(bytes(frame)) == []


def test_a_length_is_not_believed_beyond_what_is_there() -> None:
    good = encode_frame(SpooledRecord(1, "t", None, None, b"v", 0, ()), MARKER)
    lie = FRAME_HEADER.pack(MARKER, 0xFFFFFFFF, 0)
    assert [type(part) for part in walk(lie + good, MARKER)] == [Gap, Frame]
    assert list(walk(good + lie, MARKER))[1:] == [Gap(len(good), len(good + lie), torn=False)]


@given(st.integers(0, FILE_HEADER_BYTES - 1), st.integers(1, 255))
def test_a_damaged_file_header_is_noticed(place: int, change: int) -> None:
    header = bytearray(file_header(MARKER))
    assert read_file_header(bytes(header)) == MARKER
    header[place] ^= change
    with pytest.raises(BadFileHeader):
        read_file_header(bytes(header))
    with pytest.raises(BadFileHeader):
        read_file_header(file_header(MARKER)[:place])
