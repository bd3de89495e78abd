"""The table of mirrors: a copy of it stays unchanged, and contradictions are detected."""

from __future__ import annotations

import pytest

from ottla.protocol.cluster.cluster_image import ClusterImage, ImageInconsistent
from ottla.protocol.cluster.mirror_table import MirrorPartition, MirrorTable, Resumption, ResumptionKind
from ottla.protocol.messages.metadata_records import TopicRecord, TopicRemovedRecord
from ottla.protocol.messages.mirror_records import (
    MirrorPartitionRecord,
    MirrorRecord,
    MirrorRemovedRecord,
    MirrorTopicRecord,
    SourceEpoch,
)

EXACT, CUT, KEPT = ResumptionKind.EXACT, ResumptionKind.CUT, ResumptionKind.KEPT
TOPIC = b"t" * 16


def image(*pairs: tuple[int, int]) -> ClusterImage:
    """Return an image with one copy, whose partition 0 has this lineage."""
    made = ClusterImage()
    for record in (
        TopicRecord(topic_id=TOPIC, name="t"),
        MirrorRecord(name="m", phase=1),
        MirrorTopicRecord(topic_id=TOPIC, mirror="m", source_topic_id=TOPIC),
        MirrorPartitionRecord(
            topic_id=TOPIC, lineage=[SourceEpoch(epoch=epoch, start_offset=start) for epoch, start in pairs]
        ),
    ):
        made.apply(record)
    return made


def test_a_frozen_image_does_not_follow() -> None:
    moving = image((1, 0))
    for record in (
        MirrorPartitionRecord(topic_id=TOPIC, fault=1, fault_first=1, fault_end=2),
        MirrorTopicRecord(topic_id=TOPIC, mirror="m", source_topic_id=b"n" * 16),
        MirrorRecord(name="m", phase=2),
        MirrorRemovedRecord(name="m"),
        TopicRemovedRecord(topic_id=TOPIC),
    ):
        frozen, before = moving.frozen(), list(moving.mirrors.records())
        moving.apply(record)
        assert list(frozen.mirrors.records()) == before
        assert frozen.mirrors != moving.mirrors


def test_its_records_rebuild_it() -> None:
    table, again = image((1, 0), (2, 5)).mirrors, MirrorTable()
    for record in table.records():
        again.apply(record)
    assert again == table


@pytest.mark.parametrize("pairs", [((1, 0), (1, 5)), ((2, 0), (1, 5)), ((1, 5), (2, 4))])
def test_a_lineage_that_does_not_rise_is_found(pairs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ImageInconsistent, match=f"{TOPIC.hex()}-0 does not rise"):
        image(*pairs).check()


@pytest.mark.parametrize(
    "record",
    [
        MirrorTopicRecord(topic_id=b"?" * 16, mirror="m"),
        MirrorPartitionRecord(topic_id=b"?" * 16),
        MirrorPartitionRecord(topic_id=b"o" * 16),
    ],
    ids=["no topic", "partition of no topic", "partition of no copy"],
)
def test_a_record_about_what_is_no_copy_is_refused(record: MirrorTopicRecord | MirrorPartitionRecord) -> None:
    there = image()
    there.apply(TopicRecord(topic_id=b"o" * 16, name="ours"))
    with pytest.raises(ImageInconsistent):
        there.apply(record)


@pytest.mark.parametrize(
    ("kind", "copied", "log_end", "offset"),
    [
        (EXACT, (0,), 30, 20),
        (EXACT, (0,), 10, 20),
        (CUT, (0,), 30, 20),
        (CUT, (0,), 10, None),
        (KEPT, (0,), 30, None),
        (KEPT, (0,), 10, None),
        # Others have gone on from there. A broker that was away has later records that belong to no history.
        (KEPT, (0, 20), 30, 20),
        (KEPT, (0, 20), 10, None),
    ],
)
def test_the_log_of_a_copy_goes_on_elsewhere_once(
    kind: ResumptionKind, copied: tuple[int, ...], log_end: int, offset: int | None
) -> None:
    copy = MirrorPartition(tuple(enumerate(copied)), resumption=Resumption(5, 20, kind))
    assert copy.goes_on_at(4, log_end, 5) == offset
    assert copy.goes_on_at(4, log_end, 7) == offset
    assert copy.goes_on_at(5, log_end, 7) is None
    assert copy.goes_on_at(3, log_end, 4) is None
    assert MirrorPartition().goes_on_at(4, log_end, 5) is None
