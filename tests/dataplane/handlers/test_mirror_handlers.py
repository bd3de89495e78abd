"""A broker's description of mirrors that it knows from the image alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.dataplane.handlers.mirrors import MirrorHandlers
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import FaultKind, offsets_copy
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from ottla.protocol.messages.mirror_records import (
    MirrorOffsetsDueRecord,
    MirrorOffsetsToldRecord,
    MirrorPartitionRecord,
    MirrorRecord,
    MirrorTopicRecord,
)
from ottla.protocol.messages.mirrors import DescribedMirrorPartition, DescribeMirrorsRequest

COPY = b"c" * 16
LED, HAS_TOLD, LOST = 0, 1, 2


def promoted_at_a_cut() -> ClusterImage:
    """Return an image with three partitions of committed offsets, of which one has a leader, and one has reported all
    its offsets.
    """
    image = ClusterImage()
    image.apply(MirrorRecord(name="m", source_cluster_id="there", topics="t", groups="g", phase=3))
    image.apply(TopicRecord(topic_id=COPY, name=offsets_copy("m")))
    leaders = {LED: 4, HAS_TOLD: -1, LOST: -1}
    for index, leader in leaders.items():
        state = {"replicas": [4, 2], "isr": [4], "leader": leader}
        image.apply(PartitionRecord(topic_id=COPY, partition=index, **state))
    image.apply(MirrorTopicRecord(topic_id=COPY, mirror="m", source_topic_id=b"s" * 16))
    for index in leaders:
        at_cut = {"resumed_epoch": 2, "resumed_offset": 7, "promoted_epoch": 2}
        image.apply(MirrorPartitionRecord(topic_id=COPY, partition=index, **at_cut))
    image.apply(MirrorOffsetsDueRecord(mirror="m", topic_id=COPY))
    image.apply(MirrorOffsetsToldRecord(mirror="m", partition=HAS_TOLD, is_last=True))
    return image


def described(image: ClusterImage) -> dict[int, DescribedMirrorPartition]:
    quorum = SimpleNamespace(image=image)
    mirrors = SimpleNamespace(links={}, trouble_of=lambda _name: "")
    handlers = MirrorHandlers(cast(Any, quorum), cast(Any, mirrors), cast(Any, None))
    (mirror,) = handlers.describe(cast(Any, None), DescribeMirrorsRequest()).mirrors
    assert mirror.takes_offsets
    return {partition.partition: partition for partition in mirror.topics[0].partitions}


def test_committed_offsets_that_nobody_can_tell_are_a_gap() -> None:
    image = promoted_at_a_cut()
    partitions = described(image)
    assert (partitions[LED].fault, partitions[HAS_TOLD].fault) == (0, 0)
    lost = partitions[LOST]
    assert (lost.fault, lost.fault_first, lost.fault_end) == (FaultKind.GAP, 0, 7)
    assert "no broker that has them is there (2, 4)" in lost.fault_reason
    image.apply(MirrorOffsetsToldRecord(mirror="m", partition=LOST, is_last=True, is_given_up=True))
    assert not any(partition.fault for partition in described(image).values())
