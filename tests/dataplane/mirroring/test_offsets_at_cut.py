"""The offsets that groups had committed at a cut: a fold of the copy of their offsets."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.coordinated_log.batches import BatchWriter, batch_of, transactional_batch_of
from ottla.dataplane.groups.offsets import CommittedOffset, TopicPartition
from ottla.dataplane.groups.records import (
    OffsetRecord,
    offset_record,
    read_records,
)
from ottla.dataplane.mirroring.offsets_at_cut import OffsetsAtCut, copied_offset
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.messages.metadata_records import TopicRecord
from ottla.protocol.messages.mirror_records import MirrorPartitionRecord, MirrorTopicRecord
from ottla.protocol.records.record import ControlRecord, ControlType, encode_control_batch
from ottla.protocol.records.record_batch import patch_offset_and_epoch
from ottla.protocol.wire.schema import ZERO_UUID

PLACE = (b"t" * 16, 0)
KEY: TopicPartition = ("t", 0)
"""A partition in the form of groups."""
THERE = b"s" * 16
"""Id of that topic at the source."""
PRODUCER, OTHER = 7, 8


class Log:
    """A log of consecutive batches with one record each, so that each offset is a batch."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def _append(self, batch: bytearray) -> int:
        offset = len(self.batches)
        patch_offset_and_epoch(batch, 0, offset, 0)
        self.batches.append(bytes(batch))
        return offset

    def commit(self, group: str, offset: int | None, producer: int | None = None) -> int:
        """Append an offset or a tombstone, in a producer's transaction or in none, and return its offset."""
        committed = None if offset is None else CommittedOffset(offset, 3, "kept", 1)
        records = [offset_record(OffsetRecord(group, KEY, committed))]
        if producer is None:
            return self._append(batch_of(records, 1))
        return self._append(transactional_batch_of(records, BatchWriter(producer, 0), 1))

    def mark(self, *, committed: bool, producer: int = PRODUCER) -> int:
        """Append a marker, and return its offset."""
        kind = ControlRecord(ControlType.COMMIT if committed else ControlType.ABORT, 0, 0)
        return self._append(
            bytearray(encode_control_batch(kind, timestamp_ms=1, producer_id=producer, producer_epoch=0))
        )

    def at(self, cut: int, wanted: Iterable[str] = ("g", "h")) -> dict[str, int]:
        """Return the offsets at a cut, by group; check that the log's division into pieces makes no difference."""
        whole, apart = OffsetsAtCut(cut), OffsetsAtCut(cut)
        whole.feed(memoryview(b"".join(self.batches)))
        for batch in self.batches:
            apart.feed(memoryview(batch))
        names = set(wanted)
        found, other = (
            dict(offsets.committed(names.__contains__, lambda _key, known: (PLACE, known.offset)))
            for offsets in (whole, apart)
        )
        assert found == other
        assert all(offsets.keys() == {PLACE} for offsets in found.values())
        assert all(metadata == "kept" for offsets in found.values() for _, metadata in offsets.values())
        return {group: offset for group, offsets in found.items() for offset, _ in offsets.values()}


def test_the_newest_commit_below_the_cut_counts() -> None:
    log = Log()
    log.commit("g", 5)
    second = log.commit("g", 9)
    log.commit("g", 12)
    assert log.at(0) == {}
    assert log.at(second) == {"g": 5}
    assert log.at(second + 1) == {"g": 9}
    assert log.at(100) == {"g": 12}


def test_a_transaction_counts_if_its_marker_is_below_the_cut() -> None:
    log = Log()
    log.commit("g", 5)
    log.commit("g", 9, PRODUCER)
    marker = log.mark(committed=True)
    assert log.at(marker) == {"g": 5}
    assert log.at(marker + 1) == {"g": 9}


def test_what_is_open_at_the_cut_or_was_aborted_does_not_count() -> None:
    log = Log()
    log.commit("g", 5, PRODUCER)
    log.mark(committed=False)
    log.commit("g", 7, OTHER)
    later = log.mark(committed=True, producer=OTHER)
    log.commit("g", 9, PRODUCER)
    assert log.at(later) == {}
    assert log.at(100) == {"g": 7}


def test_a_commit_without_a_transaction_that_came_later_wins() -> None:
    log = Log()
    log.commit("g", 5, PRODUCER)
    log.commit("g", 3)
    log.mark(committed=True)
    assert log.at(100) == {"g": 3}


def test_a_removed_offset_is_none() -> None:
    log = Log()
    log.commit("g", 5)
    tombstone = log.commit("g", None)
    assert log.at(tombstone) == {"g": 5}
    assert log.at(tombstone + 1) == {}


def test_only_groups_that_are_wanted_are_told() -> None:
    log = Log()
    log.commit("g", 5)
    log.commit("h", 6)
    assert log.at(100, ["h"]) == {"h": 6}


Event = tuple[str, str, int]
"""An event: the kind of append, its producer or group, and an offset; 0 for a tombstone."""
EVENTS = st.one_of(
    st.tuples(st.just("alone"), st.sampled_from("gh"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["first", "second"]), st.sampled_from("gh"), st.integers(1, 9)),
    st.tuples(st.sampled_from(["commits", "aborts"]), st.sampled_from(["first", "second"]), st.just(0)),
)
PRODUCERS = {"first": PRODUCER, "second": OTHER}


def by_hand(events: list[Event], cut: int) -> dict[str, int]:
    """Return each group's last commit in the log, of those without a transaction and those in committed ones."""
    counts: dict[str, dict[int, int]] = {"g": {}, "h": {}}
    pending: dict[str, list[tuple[str, int, int]]] = {"first": [], "second": []}
    for position, (kind, name, offset) in enumerate(events[:cut]):
        if kind in pending:
            pending[kind].append((name, position, offset))
        elif kind == "alone":
            counts[name][position] = offset
        else:
            for group, at, committed in pending[name]:
                if kind == "commits":
                    counts[group][at] = committed
            pending[name] = []
    newest = {group: found[max(found)] for group, found in counts.items() if found}
    return {group: offset for group, offset in newest.items() if offset}


@given(events=st.lists(EVENTS, max_size=30), cut=st.integers(0, 30))
def test_every_history_is_folded_as_by_hand(events: list[Event], cut: int) -> None:
    log = Log()
    for kind, name, offset in events:
        if kind in ("commits", "aborts"):
            log.mark(committed=kind == "commits", producer=PRODUCERS[name])
        else:
            log.commit(name, offset or None, PRODUCERS.get(kind))
    assert log.at(cut) == by_hand(events, cut)


@pytest.fixture
def image() -> ClusterImage:
    """Return an image in which mirror "m" was promoted at a cut, and its copy of t-0 ends at 40."""
    image = ClusterImage()
    image.apply(TopicRecord(topic_id=PLACE[0], name="t"))
    image.apply(TopicRecord(topic_id=b"o" * 16, name="own"))
    image.apply(MirrorTopicRecord(topic_id=PLACE[0], mirror="m", source_topic_id=THERE))
    image.apply(
        MirrorPartitionRecord(topic_id=PLACE[0], resumed_epoch=3, resumed_offset=40, promoted_epoch=3)
    )
    return image


def told(image: ClusterImage, key: TopicPartition, offset: int, topic_id: bytes = ZERO_UUID) -> object:
    return copied_offset(image, "m")(key, CommittedOffset(offset, 3, "", 1, topic_id))


def test_an_offset_behind_the_end_of_the_copy_is_set_back_to_it(image: ClusterImage) -> None:
    assert told(image, KEY, 40) == (PLACE, 40)
    assert told(image, KEY, 41) == (PLACE, 40)
    assert told(image, KEY, 7, THERE) == (PLACE, 7)


def test_offsets_of_topics_that_are_not_copied_are_passed_over(image: ClusterImage) -> None:
    assert told(image, ("own", 0), 7) is None
    assert told(image, ("unknown", 0), 7) is None
    assert told(image, ("t", 1), 7) is None
    assert told(image, KEY, 7, b"another" + bytes(9)) is None, "the topic that had this name before"


def test_a_committed_offset_remembers_that_a_mirror_has_committed_it() -> None:
    committed = CommittedOffset(5, -1, "", 1, THERE, "m")
    batch = batch_of([offset_record(OffsetRecord("g", KEY, committed))], 1)
    assert list(read_records(memoryview(batch))) == [OffsetRecord("g", KEY, committed)]
