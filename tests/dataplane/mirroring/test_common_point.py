"""The point at which the logs of two clusters diverge, compared with complete logs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.mirroring.common_point import (
    PlannedPartition,
    check_is_new,
    common_offset,
    merged,
    planned,
    promoted_offset,
)
from ottla.protocol.cluster.mirror_table import Mirror, MirrorPhase
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.failback import DescribedLineage, LineageTopic
from ottla.protocol.messages.mirror_records import SourceEpoch

from .test_fetch_outcome import lineage_of

ID = b"t" * 16
THERE = b"u" * 16


@given(data=st.data())
def test_the_common_point_is_where_the_epochs_of_the_records_part(data: st.DataObject) -> None:
    """Leaders of one epoch share one log, so records with the same epoch and offset are equal, and so are all before
    them.
    """
    epochs = st.lists(st.integers(0, 2), max_size=6).map(sorted)
    shared = data.draw(epochs)
    lowest = shared[-1] if shared else 0
    ours = shared + sorted(
        lowest + more for more in data.draw(st.lists(st.sampled_from([1, 3, 5]), max_size=4))
    )
    copied = shared + sorted(
        lowest + more for more in data.draw(st.lists(st.sampled_from([2, 4, 6]), max_size=4))
    )
    common = common_offset(lineage_of(ours), len(ours), lineage_of(copied), len(copied))
    assert common == len(shared)


@given(data=st.data())
def test_what_was_copied_and_cut_off_by_a_promotion_is_not_common(data: st.DataObject) -> None:
    """A promotion at a cut ends the copy there. The epochs of its later records are still known."""
    ours = data.draw(st.lists(st.integers(0, 3), max_size=8).map(sorted))
    known = data.draw(st.integers(0, len(ours)))
    cut = data.draw(st.integers(0, known))
    assert common_offset(lineage_of(ours), len(ours), lineage_of(ours[:known]), cut) == cut


def log(*epochs: tuple[int, int], start: int = 0, end: int = 0, **fields: Any) -> DescribedLineage:
    found = DescribedLineage(leader_epoch=9, log_start_offset=start, log_end_offset=end, **fields)
    found.epochs = pairs(*epochs)
    return found


def pairs(*epochs: tuple[int, int]) -> list[SourceEpoch]:
    return [SourceEpoch(epoch=epoch, start_offset=start) for epoch, start in epochs]


def here(*partitions: DescribedLineage, **changes: Any) -> LineageTopic:
    values = {"name": "t", "topic_id": ID, "partition_count": len(partitions), **changes}
    return LineageTopic(partitions=list(partitions), **values)


def there(*partitions: DescribedLineage, **changes: Any) -> LineageTopic:
    return here(*partitions, **{"topic_id": THERE, "source_topic_id": ID, **changes})


def plan(ours: DescribedLineage, theirs: DescribedLineage) -> PlannedPartition:
    topic = planned(here(ours), there(theirs), "here")
    assert (topic.topic_id, topic.source_topic_id) == (ID, THERE)
    (found,) = topic.partitions
    return found


PROMOTED_AT_100 = log((2, 0), (3, 60), (4, 100), end=150, promoted_offset=100, lineage=pairs((7, 0), (8, 50)))


def test_what_was_written_after_the_last_copied_record_is_lost() -> None:
    found = plan(log((7, 0), (8, 50), (9, 120), end=130), PROMOTED_AT_100)
    assert (found.common_offset, found.lost, found.cuts) == (100, 30, True)
    assert found.lineage == ((2, 0), (3, 60))


def test_nothing_is_lost_where_all_was_copied() -> None:
    found = plan(log((7, 0), (8, 50), (9, 100), end=100), PROMOTED_AT_100)
    assert (found.common_offset, found.lost, found.cuts) == (100, 0, False)


def test_what_was_lost_here_comes_back() -> None:
    found = plan(log((7, 0), (8, 50), (9, 80), end=80), PROMOTED_AT_100)
    assert (found.common_offset, found.lost) == (80, 0)
    assert found.lineage == ((2, 0), (3, 60))
    found = plan(log((7, 0), (8, 50), (9, 80), end=95), PROMOTED_AT_100)
    assert (found.common_offset, found.lost) == (80, 15)


def test_what_is_gone_here_by_retention_counts_as_alike() -> None:
    found = plan(log((9, 90), start=90, end=90), PROMOTED_AT_100)
    assert (found.common_offset, found.lost, found.cuts) == (90, 0, False)
    found = plan(log((9, 140), start=140, end=145), PROMOTED_AT_100)
    assert (found.common_offset, found.lost, found.cuts) == (100, 5, True)


def test_a_partition_that_was_made_after_the_promotion_has_nothing_in_common() -> None:
    new = log((4, 0), end=20, promoted_offset=0)
    assert not plan(log((9, 0)), new).cuts
    found = plan(log((9, 0), end=3), new)
    assert (found.common_offset, found.lost) == (0, 3)


def test_where_the_source_does_not_reach_back_to_its_promotion_all_is_lost() -> None:
    forgotten = log((4, 120), start=120, end=150, promoted_offset=-1, lineage=pairs((7, 0)))
    found = plan(log((7, 10), (9, 100), start=10, end=100), forgotten)
    assert (found.common_offset, found.lost, found.cuts) == (0, 90, True)


@pytest.mark.parametrize(
    ("epochs", "promoted_epoch", "offset"),
    [
        ([(2, 0), (4, 100)], 4, 100),
        ([(2, 0), (5, 100)], 4, 100),  # no one led in epoch 4 for long enough
        ([(2, 60), (4, 100)], 4, 100),
        ([(4, 0)], 4, 0),  # nothing was copied
        ([(4, 120)], 4, -1),  # the copied records are gone, and so is their end
        ([(5, 120), (6, 130)], 4, -1),
        ([(2, 0), (3, 50)], -1, 0),
        ([(2, 0)], 4, -1),
    ],
)
def test_where_a_promoted_log_begins_to_be_its_own(
    epochs: list[tuple[int, int]], promoted_epoch: int, offset: int
) -> None:
    assert promoted_offset(epochs, promoted_epoch) == offset


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({"is_copy": True, "mirror": "m"}, {}, "is a copy of mirror 'm' already"),
        ({}, None, "the source has no topic 't'"),
        ({}, {"source_topic_id": bytes(16)}, "never was a copy"),
        ({}, {"source_cluster_id": "elsewhere"}, "is a copy of cluster elsewhere"),
        ({}, {"source_topic_id": b"x" * 16}, "deleted here, and made anew"),
        (
            {},
            {"is_copy": True, "mirror": "m", "source_cluster_id": "here"},
            "still the copy of its mirror 'm'",
        ),
        ({"partition_count": 2}, {}, "has 2 partitions, and 1 at the source"),
    ],
)
def test_what_cannot_become_a_copy(ours: dict[str, Any], theirs: dict[str, Any] | None, said: str) -> None:
    topic = None if theirs is None else there(PROMOTED_AT_100, **theirs)
    with pytest.raises(KafkaError, match=said) as refusal:
        planned(here(log((7, 0)), **ours), topic, "here")
    assert not refusal.value.code.retriable


@pytest.mark.parametrize(
    ("phase", "ours", "said"),
    [
        (MirrorPhase.ACTIVE, {"is_copy": True, "mirror": "m"}, "'ottla mirror status m' tells"),
        (MirrorPhase.PAUSED, {}, "'ottla mirror status m' tells"),
        (None, {"is_copy": True, "mirror": "m"}, "'ottla mirror status m' tells"),  # this broker is behind
        (MirrorPhase.PROMOTED, {}, "which is promoted: delete it first"),
    ],
)
def test_a_failback_that_was_done_and_not_answered_is_not_told_to_be_undone(
    phase: MirrorPhase | None, ours: dict[str, Any], said: str
) -> None:
    known = {} if phase is None else {"m": Mirror("m", "c", "there:9092", ".*", "", -2, phase)}
    with pytest.raises(KafkaError, match=said) as refusal:
        check_is_new("m", known, [here(log((7, 0)), **ours)])
    assert refusal.value.code is ErrorCode.DUPLICATE_RESOURCE
    check_is_new("other", known, [here(log((7, 0)), **ours)])


def test_every_leader_has_to_tell() -> None:
    silent = DescribedLineage(partition=0, error_code=ErrorCode.OFFSET_NOT_AVAILABLE)
    for ours, theirs, said in ((silent, log((2, 0)), "t-0 here"), (log((7, 0)), silent, "t-0 at the source")):
        with pytest.raises(KafkaError, match=said) as refusal:
            planned(here(ours), there(theirs), "here")
        assert refusal.value.code.retriable


def test_of_two_leaders_the_later_one_counts() -> None:
    former = DescribedLineage(partition=0, leader_epoch=3, log_end_offset=30)
    later = DescribedLineage(partition=0, leader_epoch=4, log_end_offset=20)
    other = DescribedLineage(partition=1, leader_epoch=1)
    internal = here(log((1, 0)), name="__consumer_offsets")
    for answers in (([here(former)], [here(later, other), internal]), ([here(other, later)], [here(former)])):
        found = merged(answers)
        assert list(found) == ["t"]
        assert found["t"].partitions == [later, other]
        assert found["t"].partition_count == 2
    with pytest.raises(KafkaError, match="do not agree yet"):
        merged([[here(former)], [here(former, topic_id=THERE)]])
