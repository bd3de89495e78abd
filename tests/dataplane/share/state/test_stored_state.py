"""Kafka's checks of reads and changes of a share-partition's state, and their effects."""

from __future__ import annotations

import pytest

from ottla.dataplane.share.state.stored_state import (
    Change,
    Initialize,
    Read,
    ShareState,
    StoredShareState,
    Write,
    check_change,
    initialized,
)
from ottla.dataplane.share.states import DurableState, StateBatch
from ottla.protocol.errors import ErrorCode, KafkaError

ACKED = StateBatch(12, 14, DurableState.ACKNOWLEDGED)


def state() -> ShareState:
    return ShareState(StoredShareState(2, 5, 10, 0))


@pytest.mark.parametrize(
    "change",
    [
        Initialize(-1, 0),
        Initialize(0, -2),
        Read(-1),
        Write(-1, 0, 0, 0),
        Write(0, -1, 0, 0),
        Write(0, 0, -2, 0),
        Write(0, 0, 0, 0, (StateBatch(5, 4, DurableState.ACKNOWLEDGED),)),
        Write(0, 0, 0, 0, (StateBatch(-1, 4, DurableState.ACKNOWLEDGED),)),
        Write(0, 0, 0, 0, (StateBatch(1, 4, DurableState.AVAILABLE, 2**15),)),
    ],
)
def test_values_that_no_state_has_are_refused(change: Change) -> None:
    with pytest.raises(KafkaError) as caught:
        check_change(0, change)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_negative_partition_is_refused() -> None:
    with pytest.raises(KafkaError, match="negative"):
        check_change(-1, Initialize(0, 0))


def test_an_older_leader_neither_reads_nor_writes() -> None:
    for refused in (lambda: state().check_read(Read(4)), lambda: state().check_write(Write(2, 4, 10, 0))):
        with pytest.raises(KafkaError) as caught:
            refused()
        assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH


def test_a_write_for_a_former_state_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        state().check_write(Write(1, 5, 10, 0))
    assert caught.value.code is ErrorCode.FENCED_STATE_EPOCH


def test_a_read_raises_the_leader_epoch_and_a_write_does_not() -> None:
    kept = state()
    assert kept.read_by(Read(5)) is None
    update = kept.read_by(Read(6))
    assert update is not None
    kept.apply(update)
    assert kept.leader_epoch == 6
    kept.check_write(Write(2, 9, 10, 0))
    kept.apply(kept.written(Write(2, 9, 10, 0)))
    assert kept.leader_epoch == 6


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [(-1, 7, (10, 3)), (9, 7, (10, 3)), (10, 7, (10, 7)), (10, 2, (10, 3)), (11, 1, (11, 1))],
)
def test_the_start_offset_never_falls_and_the_count_belongs_to_it(
    start: int, count: int, expected: tuple[int, int]
) -> None:
    kept = ShareState(StoredShareState(0, 0, 10, 3))
    kept.apply(kept.written(Write(0, 0, start, count)))
    assert (kept.start_offset, kept.delivery_complete_count) == expected


def test_a_start_offset_drops_the_batches_before_it() -> None:
    kept = state()
    kept.apply(kept.written(Write(2, 5, 10, 3, (ACKED,))))
    assert kept.stored.batches == (ACKED,)
    kept.apply(kept.written(Write(2, 5, 14, 1)))
    assert kept.stored == StoredShareState(2, 5, 14, 1, (ACKED._replace(first=14),))


def test_an_initialization_replaces_all_but_the_leader_epoch() -> None:
    kept = state()
    kept.apply(kept.written(Write(2, 5, 10, 3, (ACKED,))))
    assert initialized(kept, Initialize(3, 40)) == StoredShareState(3, 5, 40, 0)
    assert initialized(kept, Initialize(2, -1)) == StoredShareState(2, 5, -1, -1)
    assert initialized(None, Initialize(0, 7)) == StoredShareState(0, 0, 7, 0)
    with pytest.raises(KafkaError) as caught:
        initialized(kept, Initialize(1, 0))
    assert caught.value.code is ErrorCode.FENCED_STATE_EPOCH
