"""A log notices when its parts contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.producers.producer_state import ProducedBatch
from tests.dataplane.log.batches import make_batch


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Return a log of six batches of two in three segments and two epochs, of one producer."""
    log = PartitionLog.open(
        tmp_path / "t-0",
        LogConfig(message_timestamp_after_max_ms=2**60),
        clean_shutdown=False,
        recovery_point=0,
        now_ms=1,
    )
    for number in range(6):
        batch = make_batch(2, producer=(9, 0, 2 * number))
        log.produced.append(memoryview(batch), number // 3, 1)
        if number in (1, 3):
            log.roll(1)
    log.flush()
    log.check()
    return log


def _start_below_the_first_segment(log: PartitionLog) -> None:
    log.segment_list.drop_first(4, 1)


def _start_past_the_end(log: PartitionLog) -> None:
    log.log_start_offset = 13


def _flushed_past_the_end(log: PartitionLog) -> None:
    log.durability.recovery_point = 13


def _segments_fall(log: PartitionLog) -> None:
    segments = log.segment_list._segments
    segments[0], segments[1] = segments[1], segments[0]
    log.segment_list._bases = [segment.base_offset for segment in segments]


def _bases_of_others(log: PartitionLog) -> None:
    log.segment_list._bases[0] = 1


def _active_in_the_middle(log: PartitionLog) -> None:
    log.segment_list.active = log.segments[1]


def _two_open(log: PartitionLog) -> None:
    log.segments[0].open()


def _descriptor_of_a_resting_log(log: PartitionLog) -> None:
    log.segment_list.active.close()


def _end_elsewhere(log: PartitionLog) -> None:
    log.segment_list.active.size -= 1


def _end_within_an_older_segment(log: PartitionLog) -> None:
    log.log_end_offset = log.durability.recovery_point = 3


def _epochs_fall(log: PartitionLog) -> None:
    log.leader_epochs._entries.append((1, 8))


def _epoch_past_the_end(log: PartitionLog) -> None:
    log.leader_epochs.assign(9, 13)


def _epoch_before_the_start(log: PartitionLog) -> None:
    log.log_start_offset = 2


def _producer_misfiled(log: PartitionLog) -> None:
    log.producers._entries[8] = log.producers._entries[9]


def _batches_fall(log: PartitionLog) -> None:
    log.producers._entries[9].batches[-1] = ProducedBatch(12, 13, 3, 4, 0)


def _window_too_large(log: PartitionLog) -> None:
    log.producers._entries[9].batches.append(ProducedBatch(12, 13, 3, 4, 0))


def _batch_of_another_size(log: PartitionLog) -> None:
    log.producers._entries[9].batches[-1] = ProducedBatch(10, 12, 10, 11, 0)


def _transaction_past_the_end(log: PartitionLog) -> None:
    log.producers._entries[9].transaction_first_offset = 12


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_start_below_the_first_segment, "first segment 4 <= log start"),
        (_start_past_the_end, "log start <= log end does not hold"),
        (_flushed_past_the_end, "flushed to 13"),
        (_segments_fall, "do not rise"),
        (_bases_of_others, "are not those of the segments"),
        (_active_in_the_middle, "the active segment is not the last"),
        (_two_open, "more than the last segment"),
        (_descriptor_of_a_resting_log, "is not the descriptor of the active segment"),
        (_end_elsewhere, "where the last segment ends"),
        (_end_within_an_older_segment, "begins past the log end 3"),
        (_epochs_fall, "epoch 1 starts at 8, after epoch 1 at 6"),
        (_epoch_past_the_end, "starts past the log end"),
        (_epoch_before_the_start, "begin below the log start 2"),
        (_producer_misfiled, "producer 9 is filed under 8"),
        (_window_too_large, "6 batches are remembered"),
        (_batches_fall, "is not between 10 and the log end 12"),
        (_batch_of_another_size, "more offsets than sequences, or less"),
        (_transaction_past_the_end, "its transaction begins at 12"),
    ],
)
def test_a_log_that_contradicts_itself(
    log: PartitionLog, spoil: Callable[[PartitionLog], None], said: str
) -> None:
    spoil(log)
    with pytest.raises(AssertionError, match=said):
        log.check()


def test_a_log_that_is_offline_may_look_as_it_likes(log: PartitionLog) -> None:
    log.close(clean=False)
    _start_past_the_end(log)
    log.check()
