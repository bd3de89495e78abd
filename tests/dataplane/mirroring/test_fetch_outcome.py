"""A copy leader's conclusions from its source's answers, compared with complete histories of the source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.mirroring.fetch_outcome import (
    Arrived,
    Begin,
    agrees_to,
    arrived,
    asked_next,
    epoch_end,
    kept,
    out_of_range,
)
from ottla.protocol.cluster.mirror_table import (
    FaultKind,
    MirrorFault,
    MirrorPartition,
    Resumption,
    ResumptionKind,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.log.batches import make_batch

History = list[int]
"""The leader epoch of each record, by offset."""


def lineage_of(history: History) -> tuple[tuple[int, int], ...]:
    starts: dict[int, int] = {}
    for offset, epoch in enumerate(history):
        starts.setdefault(epoch, offset)
    return tuple(starts.items())


def end_of_epoch(history: History, asked: int) -> tuple[int, int]:
    """Return OffsetForLeaderEpoch's answer: the largest epoch not above the requested one, and its end."""
    known = [epoch for epoch in history if epoch <= asked]
    return (known[-1], len(known)) if known else (-1, -1)


@given(
    shared=st.lists(st.integers(0, 2), max_size=8),
    lost=st.integers(0, 6),
    anew=st.integers(0, 6),
    copied=st.integers(0, 14),
    same_leader=st.booleans(),
)
def test_where_histories_part_is_found(
    shared: list[int], lost: int, anew: int, copied: int, same_leader: bool
) -> None:
    """The source goes on after an unclean election, in a higher epoch, at an offset that it had passed."""
    rising = sorted(shared)
    top = rising[-1] if rising else 0
    before = rising + [top + (0 if same_leader else 1)] * lost
    after = rising + [top + 2] * anew
    copy_of = before[:copied]
    if not copy_of:
        return
    copy = MirrorPartition(lineage_of(copy_of))
    asked = copy.source_epoch_below(len(copy_of))
    epoch, end = end_of_epoch(after, asked)
    fault = epoch_end(copy, len(copy_of), asked, epoch, end)
    parts = min(len(copy_of), len(rising))
    if epoch == -1 or parts == len(copy_of):
        assert fault is None
    else:
        assert fault is not None
        assert (fault.kind, fault.first, fault.end) == (FaultKind.DIVERGED, parts, len(copy_of))


@given(
    shared=st.lists(st.integers(0, 2), max_size=4).map(sorted),
    ours=st.lists(st.sampled_from([3, 5, 7]), min_size=1, max_size=5).map(sorted),
    theirs=st.lists(st.sampled_from([4, 6, 8]), max_size=5).map(sorted),
)
def test_where_histories_part_is_found_behind_several_elections(
    shared: list[int], ours: list[int], theirs: list[int]
) -> None:
    """Each of the two has since had leaders that the other does not know."""
    copied, source = shared + ours, shared + theirs
    copy, fault, asked = MirrorPartition(lineage_of(copied)), None, copied[-1]
    while True:
        # Below its first epoch a leader tells that the epoch ends where its log begins.
        epoch, end = end_of_epoch(source, asked) if source and source[0] <= asked else (asked, 0)
        fault = epoch_end(copy, len(copied), asked, epoch, end) or fault
        older = asked_next(copy, asked, epoch)
        if older is None:
            break
        asked = older
    assert fault is not None
    assert (fault.first, fault.end) == (len(shared), len(copied))


@pytest.mark.parametrize(
    ("lineage", "ours", "theirs", "expected"),
    [
        (((0, 0),), (0, 50), (0, 60), None),
        (((0, 0),), (0, 50), (50, 60), None),
        (((0, 0),), (0, 50), (80, 90), (FaultKind.GAP, 50, 80)),
        (((0, 0),), (50, 50), (80, 90), (FaultKind.GAP, 50, 80)),
        (((0, 0),), (0, 50), (0, 30), (FaultKind.DIVERGED, 30, 50)),
        ((), (0, 0), (80, 90), 80),
    ],
)
def test_out_of_range_is_loss_unless_nothing_was_copied(
    lineage: tuple[tuple[int, int], ...],
    ours: tuple[int, int],
    theirs: tuple[int, int],
    expected: tuple[FaultKind, int, int] | int | None,
) -> None:
    found = out_of_range(MirrorPartition(lineage), *ours, *theirs)
    if isinstance(found, MirrorFault):
        assert (found.kind, found.first, found.end) == expected
        assert str(found.first) in found.reason
    else:
        assert (found.offset if isinstance(found, Begin) else found) == expected


def test_whole_batches_and_new_epochs_of_an_answer() -> None:
    batches = (
        make_batch(3, base_offset=10, leader_epoch=4)
        + make_batch(2, base_offset=13, leader_epoch=4)
        + make_batch(1, base_offset=20, leader_epoch=6)
    )
    copy = MirrorPartition(((1, 0),))
    size = len(batches)
    rest = bytes(make_batch(5, base_offset=21, leader_epoch=7))[:-1]
    assert arrived(copy, memoryview(batches + rest)) == Arrived(size, 21, ((4, 10), (6, 20)))
    assert arrived(MirrorPartition(((6, 0),)), memoryview(batches)).epochs == ()
    assert arrived(copy, memoryview(rest)) == Arrived(0, 0, ())


@pytest.mark.parametrize(
    ("batches", "reached"),
    [
        pytest.param([(7, 30)], 20, id="compaction-has-taken-all"),
        pytest.param([(3, 12), (3, 15), (7, 30)], 20, id="some-are-left"),
        pytest.param([(3, 12)], 13, id="what-follows-is-not-known-yet"),
        pytest.param([(1, 9), (7, 30)], 20, id="an-offset-before-does-not-matter"),
        pytest.param([], 10, id="nothing-is-known"),
        pytest.param([(1, 10)], None, id="of-an-older-epoch"),
        pytest.param([(3, 12), (7, 19)], None, id="of-a-later-epoch"),
    ],
)
def test_a_source_agrees_up_to_the_first_batch_of_another_epoch(
    batches: list[tuple[int, int]], reached: int | None
) -> None:
    copy = MirrorPartition(((1, 0), (3, 10)))
    batches_there = b"".join(make_batch(1, base_offset=at, leader_epoch=epoch) for epoch, at in batches)
    assert agrees_to(copy, 10, 20, memoryview(batches_there)) == reached


def test_an_older_format_cannot_be_copied() -> None:
    batch = make_batch(1)
    batch[16] = 1
    with pytest.raises(KafkaError, match="format 1") as refusal:
        arrived(MirrorPartition(), memoryview(batch))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize(
    ("kind", "starts", "end", "is_fault"),
    [
        (ResumptionKind.KEPT, (0, 15), 23, True),
        (ResumptionKind.KEPT, (0, 15), 20, False),
        (ResumptionKind.KEPT, (0, 15), 18, False),
        (ResumptionKind.KEPT, (0, 20), 23, False),
        (ResumptionKind.CUT, (0, 15), 23, False),
        (ResumptionKind.EXACT, (0, 15), 23, False),
    ],
)
def test_what_was_written_here_after_the_count_of_a_failback_is_a_divergence(
    kind: ResumptionKind, starts: tuple[int, ...], end: int, is_fault: bool
) -> None:
    copy = MirrorPartition(tuple(enumerate(starts)), resumption=Resumption(3, 20, kind))
    fault = kept(copy, end)
    assert (fault is not None) == is_fault
    if fault is not None:
        assert (fault.kind, fault.first, fault.end) == (FaultKind.DIVERGED, 20, end)
    assert kept(MirrorPartition(), end) is None
