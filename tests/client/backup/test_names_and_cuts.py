"""Keys of a backup's objects, and the content of its cuts and epochs: what is written is read."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.backup.catalog import EpochFile, read_epoch
from ottla.client.backup.cut_file import (
    BackedPartition,
    BackedTopic,
    CutFile,
    MissedRecords,
    read,
    written,
)
from ottla.client.backup.names import (
    CutId,
    CutName,
    PartitionFolder,
    SegmentName,
    alive_in,
    alive_key,
    cut_id,
    cut_in,
    epoch_in,
    epoch_key,
    segment_in,
)
from ottla.client.failures import BackupUnusable
from ottla.client.objects.store import check_key

EPOCHS = st.integers(1, 10**8 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
CUTS = st.builds(CutId, EPOCHS, EPOCHS)
PLACES = st.builds(
    PartitionFolder, st.binary(min_size=16, max_size=16), st.integers(0, 999_999), st.integers(0, 9_999)
)
SEGMENTS = st.builds(
    SegmentName, PLACES, OFFSETS, OFFSETS, CUTS, st.binary(min_size=32, max_size=32).map(bytes.hex)
)
PARTITIONS = st.builds(
    BackedPartition,
    st.integers(0, 5),
    st.integers(0, 3),
    OFFSETS,
    OFFSETS,
    st.integers(-1, 9),
    st.lists(st.tuples(st.integers(0, 9), OFFSETS), max_size=3).map(tuple),
)
TOPICS = st.builds(
    BackedTopic,
    st.text(min_size=1, max_size=9),
    st.binary(min_size=16, max_size=16),
    st.integers(1, 5),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.lists(PARTITIONS, max_size=3).map(tuple),
)
GROUPS = st.dictionaries(
    st.text(max_size=5),
    st.dictionaries(st.text(max_size=5), st.dictionaries(st.integers(0, 9), OFFSETS, max_size=2), max_size=2),
    max_size=2,
)
CUT_FILES = st.builds(
    CutFile,
    CUTS,
    st.integers(0, 2**48),
    st.text(max_size=9),
    st.none() | st.integers(-1, 2**40),
    st.text(max_size=9),
    st.text(max_size=9),
    st.lists(TOPICS, max_size=3).map(tuple),
    GROUPS,
    st.dictionaries(st.text(max_size=5), st.integers(-1, 2**40), max_size=3),
    st.none() | st.just(((2, "orders", 3, "User:ann", "*", 3, 3),)),
    st.none() | st.just((({"user": None}, {"consumer_byte_rate": 1.5}),)),
    st.lists(
        st.builds(MissedRecords, st.text(max_size=3), st.integers(0, 9), OFFSETS, OFFSETS), max_size=2
    ).map(tuple),
    st.lists(st.text(max_size=5), max_size=2).map(tuple),
)


@given(SEGMENTS)
def test_a_segment_is_known_by_its_key(segment: SegmentName) -> None:
    assert segment_in(check_key(segment.key)) == segment
    assert segment.key.startswith(segment.place.folder)


@given(st.lists(SEGMENTS, min_size=2, max_size=5))
def test_keys_of_segments_sort_by_offset(segments: list[SegmentName]) -> None:
    of_one = [segment._replace(place=segments[0].place) for segment in segments]
    assert [segment_in(key) for key in sorted(segment.key for segment in of_one)] == sorted(of_one)


@given(CUTS, st.integers(0, 10**15 - 1), EPOCHS, EPOCHS)
def test_cuts_epochs_and_signs_of_life_are_known_by_their_keys(
    cut: CutId, time_ms: int, epoch: int, renewal: int
) -> None:
    name = CutName(cut, time_ms)
    assert cut_in(check_key(name.key)) == name
    assert cut_id(str(cut)) == cut
    assert epoch_in(check_key(epoch_key(epoch))) == epoch
    assert alive_in(check_key(alive_key(epoch, renewal))) == (epoch, renewal)


@pytest.mark.parametrize("key", ["cuts/1-2", "cuts/00000001-00000002", "data/x", "epochs/1", "alive/1.2", ""])
def test_files_of_other_programs_are_left_alone(key: str) -> None:
    assert cut_in(key) is segment_in(key) is epoch_in(key) is alive_in(key) is None


@given(CUT_FILES)
def test_a_cut_is_read_as_it_was_written(cut: CutFile) -> None:
    assert read(written(cut), "k") == cut


@given(CUT_FILES, st.data())
def test_a_damaged_cut_is_refused_by_its_key(cut: CutFile, data: st.DataObject) -> None:
    whole = bytearray(written(cut))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BackupUnusable, match="cuts/x"):
        read(bytes(whole), "cuts/x")
    with pytest.raises(BackupUnusable, match="cuts/x"):
        read(written(cut)[:place], "cuts/x")


def test_a_later_format_is_refused() -> None:
    with pytest.raises(BackupUnusable, match="k has format 2; this release reads 1"):
        read(zlib.compress(b'{"format": 2}'), "k")
    with pytest.raises(BackupUnusable, match="k has format 2; this release reads 1"):
        read_epoch(b'{"format": 2}', "k")


@given(st.builds(EpochFile, EPOCHS, st.text(max_size=9), st.dictionaries(EPOCHS, EPOCHS, max_size=3)))
def test_an_epoch_is_read_as_it_was_written(epoch: EpochFile) -> None:
    assert read_epoch(epoch.written(), "k") == epoch


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": "1"}', b"\xff"])
def test_an_object_that_is_no_epoch_is_refused(data: bytes) -> None:
    with pytest.raises(BackupUnusable, match="epochs/1"):
        read_epoch(data, "epochs/1")
