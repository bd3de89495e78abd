"""The offset from which a copy is not compacted: a promotion at a cut must find the records as of the cut."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.mirroring.compaction_hold import held_bytes, held_from
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_cuts import cut_reached_record
from ottla.protocol.cluster.mirror_table import FaultKind, MirrorPhase
from ottla.protocol.messages.mirror_records import (
    MirrorCutRecord,
    MirrorCutsTrimmedRecord,
    MirrorPartitionRecord,
    MirrorRecord,
)
from tests.dataplane.mirroring.test_rounds import HERE, Quorum

LOG_EPOCH = 4


def image_of(rounds: int = 0, reached: Sequence[tuple[int, int]] = ()) -> ClusterImage:
    """Return an image. `reached`: numbers of rounds, and the copy's cuts in them."""
    image = Quorum().image
    for number in range(rounds):
        image.apply(MirrorCutRecord(mirror="m", number=number, cut=number, metadata_offset=0, time_ms=0))
    for number, offset in reached:
        image.apply(cut_reached_record("m", number, {(HERE, 0): offset}))
    return image


def copy_of(*segments: tuple[int, int]) -> Any:
    """Return a copy with segments of these base offsets and sizes."""
    log = SimpleNamespace(
        leader_epochs=SimpleNamespace(latest_epoch=LOG_EPOCH),
        segments=[SimpleNamespace(base_offset=base, size=size) for base, size in segments],
    )
    return cast(Any, SimpleNamespace(topic_id=HERE, index=0, log=log))


@pytest.mark.parametrize(
    ("rounds", "reached", "expected"),
    [
        pytest.param(0, [], None, id="a-source-without-cuts"),
        pytest.param(1, [], 0, id="none-is-whole-yet"),
        pytest.param(2, [(0, 100)], 100, id="the-newest-is-not-reached-yet"),
        pytest.param(2, [(0, 100), (1, 150)], 100, id="the-oldest-is-still-there"),
        pytest.param(2, [(1, 150)], 0, id="the-oldest-may-still-be-reached"),
    ],
)
def test_compaction_waits_at_the_oldest_cut_at_which_a_promotion_is_possible(
    rounds: int, reached: list[tuple[int, int]], expected: int | None
) -> None:
    assert held_from(image_of(rounds, reached), copy_of()) == expected


def test_it_waits_for_the_first_cut_that_a_source_is_to_tell() -> None:
    """Seed 1658 of the two clusters: a copy was compacted before it heard of the first cut, which lay further back.

    Keys were lost whose newer records lay between.
    """
    image = image_of()
    image.apply(MirrorCutsTrimmedRecord(mirror="m", number=0))
    assert held_from(image, copy_of()) == 0
    image.apply(MirrorCutRecord(mirror="m", number=0, cut=1, metadata_offset=0, time_ms=0))
    assert held_from(image, copy_of()) == 0
    image.apply(cut_reached_record("m", 0, {(HERE, 0): 10}))
    assert held_from(image, copy_of()) == 10


def test_it_goes_on_to_the_next_cut_once_that_is_whole() -> None:
    image = image_of(2, [(0, 100), (1, 150)])
    image.apply(MirrorCutsTrimmedRecord(mirror="m", number=1))
    assert held_from(image, copy_of()) == 150


def test_it_is_free_once_the_mirror_is_promoted() -> None:
    image = image_of(1, [(0, 100)])
    image.apply(MirrorRecord(name="m", source_cluster_id="there", topics="t", phase=MirrorPhase.PROMOTED))
    assert held_from(image, copy_of()) is None


@pytest.mark.parametrize(("epoch", "expected"), [(LOG_EPOCH + 1, 80), (LOG_EPOCH, None)])
def test_a_log_that_is_still_to_be_cut_is_held_there(epoch: int, expected: int | None) -> None:
    """A follower may hear of the promotion long before it follows a leader of the new epoch."""
    image = image_of(1, [(0, 80)])
    image.apply(
        MirrorPartitionRecord(
            topic_id=HERE, partition=0, promoted_epoch=epoch, resumed_epoch=epoch, resumed_offset=80
        )
    )
    image.apply(MirrorRecord(name="m", source_cluster_id="there", topics="t", phase=MirrorPhase.PROMOTED))
    assert held_from(image, copy_of()) == expected


@pytest.mark.parametrize(("kind", "expected"), [(FaultKind.DIVERGED, 60), (FaultKind.GAP, None)])
def test_what_may_be_cut_off_once_a_person_accepts_a_fault_replaces_nothing(
    kind: FaultKind, expected: int | None
) -> None:
    image = image_of()
    image.apply(MirrorPartitionRecord(topic_id=HERE, partition=0, fault=kind, fault_first=60, fault_end=90))
    assert held_from(image, copy_of()) == expected


def test_closed_segments_behind_the_cut_are_told() -> None:
    copy = copy_of((0, 10), (100, 20), (200, 40), (300, 80))
    assert [held_bytes(copy, offset) for offset in (0, 100, 150, 250, 400)] == [70, 60, 60, 40, 0]
