"""Cuts of mirrors in the image: a copy of them stays unchanged, and contradictions are detected."""

from __future__ import annotations

import pytest

from ottla.protocol.cluster.cluster_image import ClusterImage, ImageInconsistent
from ottla.protocol.cluster.mirror_cuts import NOT_REACHED, MirrorCuts, cut_reached_record
from ottla.protocol.cluster.mirror_versions import mirrored_versions
from ottla.protocol.messages.metadata_records import Record, TopicRecord, TopicRemovedRecord
from ottla.protocol.messages.mirror_records import (
    MirrorCutReachedRecord,
    MirrorCutRecord,
    MirrorCutsTrimmedRecord,
    MirrorPartitionRecord,
    MirrorRecord,
    MirrorRemovedRecord,
    MirrorTopicRecord,
    MirrorVersionsRecord,
    ReachedPartition,
    ReachedTopic,
)

TOPIC = b"t" * 16
PLACE = (TOPIC, 0)


def image(*more: Record) -> ClusterImage:
    """Return an image with one copy, two rounds, of which it has reached the first, and the given records."""
    made = ClusterImage()
    for record in (
        TopicRecord(topic_id=TOPIC, name="t"),
        MirrorRecord(name="m", phase=1),
        MirrorTopicRecord(topic_id=TOPIC, mirror="m", source_topic_id=TOPIC),
        MirrorCutRecord(mirror="m", number=0, cut=7, metadata_offset=70, time_ms=700),
        MirrorCutRecord(mirror="m", number=1, cut=8, metadata_offset=80, time_ms=800, has_offsets=True),
        cut_reached_record("m", 0, {PLACE: 10}),
        MirrorVersionsRecord(
            mirror="m", cut=7, next_offset=70, versions=mirrored_versions([("x", 1), ("y", 2)])
        ),
        MirrorVersionsRecord(
            mirror="m", cut=8, next_offset=80, versions=mirrored_versions([("x", 3), ("y", -1)])
        ),
        *more,
    ):
        made.apply(record)
    return made


CHANGES = (
    MirrorCutRecord(mirror="m", number=2, cut=9),
    cut_reached_record("m", 1, {PLACE: 11}),
    cut_reached_record("m", 0, {PLACE: NOT_REACHED}),
    MirrorCutsTrimmedRecord(mirror="m", number=1),
    MirrorVersionsRecord(mirror="m", cut=9, next_offset=90, versions=mirrored_versions([("x", 4)])),
    MirrorVersionsRecord(mirror="m", cut=9, next_offset=90, is_whole=True),
    MirrorPartitionRecord(topic_id=TOPIC, resumed_epoch=3, resumed_offset=5),
    MirrorRemovedRecord(name="m"),
    TopicRemovedRecord(topic_id=TOPIC),
)


@pytest.mark.parametrize("record", CHANGES, ids=lambda record: type(record).__name__)
def test_a_frozen_image_does_not_follow(record: Record) -> None:
    moving = image()
    frozen, before = moving.frozen(), list(moving.mirror_cuts.records())
    moving.apply(record)
    assert list(frozen.mirror_cuts.records()) == before
    assert frozen.mirror_cuts != moving.mirror_cuts


@pytest.mark.parametrize("record", CHANGES, ids=lambda record: type(record).__name__)
def test_their_records_rebuild_them(record: Record) -> None:
    cuts, again = image(record).mirror_cuts, MirrorCuts()
    for entry in cuts.records():
        again.apply(entry)
    assert again == cuts


def test_numbers_go_on_where_no_round_is_left() -> None:
    cuts, again = image(MirrorCutsTrimmedRecord(mirror="m", number=2)).mirror_cuts, MirrorCuts()
    assert (cuts.of("m").rounds, cuts.of("m").reached, cuts.of("m").next_number) == ((), {}, 2)
    for entry in cuts.records():
        again.apply(entry)
    assert again == cuts


def test_a_copy_that_is_promoted_keeps_what_it_has_reached() -> None:
    promoted = MirrorPartitionRecord(topic_id=TOPIC, resumed_epoch=3, resumed_offset=10, promoted_epoch=3)
    assert image(promoted).mirror_cuts.of("m").offset(PLACE, 0) == 10


@pytest.mark.parametrize(
    "record",
    [
        MirrorCutRecord(mirror="m", number=5),
        MirrorCutReachedRecord(
            mirror="m",
            number=5,
            topics=[ReachedTopic(topic_id=TOPIC, partitions=[ReachedPartition(offset=1)])],
        ),
    ],
    ids=["gap of numbers", "no such round"],
)
def test_what_contradicts_itself_is_found(record: Record) -> None:
    with pytest.raises(ImageInconsistent, match="round"):
        image(record).check()
